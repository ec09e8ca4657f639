package redisserver

import (
	"os"
	"os/exec"
	"runtime"
)

// A process is a child of this one.
type process struct {
	cmd    *exec.Cmd
	exited chan struct{} // closed when it has ended and been waited for
}

// startProcess starts a program whose output goes to a file.
func startProcess(binary string, args []string, out string) (*process, error) {
	output, err := os.Create(out)
	if err != nil {
		return nil, err
	}
	defer output.Close()
	cmd := exec.Command(binary, args...)
	cmd.Stdout, cmd.Stderr = output, output
	cmd.SysProcAttr = attributes()

	p := &process{cmd: cmd, exited: make(chan struct{})}
	started := make(chan error)
	go func() {
		// The death that Linux reports to the child is that of the thread which
		// started it (golang/go#27505), so this one is kept until the child has
		// ended.
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

func (p *process) pid() int { return p.cmd.Process.Pid }

func (p *process) signal(sig os.Signal) error { return p.cmd.Process.Signal(sig) }

// kill ends the process, even a stopped one, and waits for it.
func (p *process) kill() {
	p.cmd.Process.Kill() // fails if it has ended already
	<-p.exited
}
