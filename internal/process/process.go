// Package process starts processes that do not outlive this one. On Linux they die with
// it, however it ends.
package process

import (
	"os"
	"os/exec"
	"runtime"
)

type Process struct {
	cmd    *exec.Cmd
	exited chan struct{}
}

// Start starts a command, in a process group of its own on Linux.
func Start(cmd *exec.Cmd) (*Process, error) {
	setAttributes(cmd)
	p := &Process{cmd: cmd, exited: make(chan struct{})}
	started := make(chan error)
	go func() {
		// Linux reports to the child the death of the thread that started it
		// (golang/go#27505), so this one is kept until the child has ended.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			cmd.Wait()
			close(p.exited)
		}
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return p, nil
}

// PID returns the process's number.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Exited is closed when the process has ended and was waited for.
func (p *Process) Exited() <-chan struct{} { return p.exited }

// ExitCode is the status of an ended process, or -1 after a signal.
func (p *Process) ExitCode() int { return p.cmd.ProcessState.ExitCode() }

// Signal sends the process a signal.
func (p *Process) Signal(sig os.Signal) error { return p.cmd.Process.Signal(sig) }

// Kill ends the process, even a stopped one, and waits for it.
func (p *Process) Kill() {
	p.cmd.Process.Kill() // fails if it has ended already
	<-p.exited
}
