package main

import (
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/redquorum/redquorum/internal/assert"
	"github.com/redquorum/redquorum/internal/tests"
)

// A session is a shell on a terminal that the test types on.
type session struct {
	program
	keys *os.File
	dir  string // the shell's
}

// onTerminal starts a shell. Its $RUN is "redquorum run" on nodes of the test, also
// inside another one.
func onTerminal(t *testing.T, urls string, args ...string) *session {
	t.Helper()
	keys, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Skip("no terminal can be made here: ", err)
	}
	number, err := unix.IoctlGetInt(int(keys.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(keys.Fd()), unix.TIOCSPTLCK, 0)
	}
	assert.Succeed(t, err)
	tty, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Skip(err)
	}
	defer tty.Close()
	c := &session{program: program{t: t, cmd: exec.Command(args[0], args[1:]...)}, keys: keys, dir: t.TempDir()}
	c.cmd.Dir, c.cmd.Stdin, c.cmd.Stdout, c.cmd.Stderr = c.dir, tty, tty, tty
	run := "env " + actAsProgram + "=yes " + os.Args[0] + " run --nodes " + urls
	c.cmd.Env = append(os.Environ(), actAsProgram+"=yes", "RUN="+run, "PS1=$ ", "ENV=", "HISTFILE=")
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true, Ctty: 0}
	assert.Succeed(t, c.cmd.Start())
	read := make(chan struct{})
	go func() {
		defer close(read)
		for b := make([]byte, 4096); ; {
			n, err := keys.Read(b)
			_, _ = c.out.Write(b[:n])
			if err != nil {
				return
			}
		}
	}()
	t.Cleanup(func() {
		_ = c.cmd.Process.Kill()
		_ = c.cmd.Wait()
		keys.Close() // all others on it get HUP
		<-read
	})
	return c
}

// types types text.
func (c *session) types(text string) {
	c.t.Helper()
	assert.Succeed(c.t, assert.ErrorOf(c.keys.WriteString(text)))
}

// says waits for a text on the terminal, consumes it, and returns what came before.
func (c *session) says(text string) (before string) {
	c.t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		shown := c.out.String()
		if at := strings.Index(shown, text); at >= 0 {
			c.out.forget(at + len(text))
			return shown[:at]
		}
		assert.Must(c.t, !time.Now().After(end), "%q is not on the terminal:\n%s", text, shown)
	}
}

const (
	ctrlC = "\x03"
	ctrlZ = "\x1a"
)

func TestCtrlCWhileTheCommandBegins(t *testing.T) {
	tests.NeedSeconds(t)
	urls := parallelNodes(t, 1)
	for i := 0; i < 20; i += tests.Times(4, 1) {
		c := onTerminal(t, urls, "sh", "-c", "exec $RUN --name job --verbose -- sleep 5")
		c.says("acquired job")
		time.Sleep(time.Duration(i) * time.Millisecond)
		c.types(ctrlC)
		_ = c.cmd.Wait()
		if status := c.cmd.ProcessState.Sys().(syscall.WaitStatus); !status.Signaled() || status.Signal() != syscall.SIGINT {
			t.Fatalf("after %d ms: status %d:\n%s", i, status.ExitStatus(), c.out.String())
		}
	}
}

// ask asks on the terminal, as programs do for a password.
const ask = `sh -c 'stty -echo </dev/tty; printf "Your %s: " word >/dev/tty; read word </dev/tty; stty echo </dev/tty; echo "it was $word" >&3'`

func TestRunAsksOnTerminal(t *testing.T) {
	urls := parallelNodes(t, 1)
	for _, line := range []string{
		"%s",
		"true | %s | cat",
		"$RUN --name outer -- %s >out",
		"%s >out",
		"%s </dev/null",
		"%s </dev/null >out 2>&1",
		"%s | cat",
		"true | %s",
		"$RUN --name outer -- $RUN --name middle -- %s | cat",
		"timeout 60 true; (exec %s)",
	}[:tests.Times(3, 10)] {
		c := onTerminal(t, urls, "sh", "-c", `exec 3>answer; `+fmt.Sprintf(line, "$RUN --name job -- "+ask)+`; cat answer`)
		c.says("Your word: ")
		c.types("s3same\n")
		c.says("it was s3same")
		_ = c.cmd.Wait()
		assert.Must(t, !t.Failed(), "%v", line)
	}
}

// As process 1 of a session it is alone on the terminal, as in a container.
func TestRunLeadsSession(t *testing.T) {
	urls := parallelNodes(t, 1)
	c := onTerminal(t, urls, append([]string{os.Args[0]}, runOn(urls, "", "sh", "-c", `exec 3>&1; `+ask)...)...)
	c.says("Your word: ")
	c.types("s3same\n")
	c.says("it was s3same")
	_ = c.cmd.Wait()
}

// In the background it is stopped when it needs the terminal, and goes on in the
// foreground.
func TestRunInBackground(t *testing.T) {
	urls := parallelNodes(t, 1)
	for _, shell := range []string{"bash", "dash"}[:tests.Times(1, 2)] {
		c := interactive(t, urls, shell)
		c.types("$RUN --name job -- sh -c 'sleep 0.1; echo its work is done'; wait\n") // it needs none
		c.says("its work is done\r\n")
		for _, redirected := range []string{"", " | cat", " >out"} {
			c.types("exec 3>answer; $RUN --name job -- " + ask + redirected + " &\n")
			c.says("$ ")
			c.types("until jobs >all; grep -i stopped all; do sleep 0.05; done; echo job$((1))stops\n")
			c.says("job1stops")
			c.types("fg\n")
			c.says("Your word: ")
			c.types("s3same\n")
			c.says("$ ")
			c.types("cat answer\n")
			c.says("it was s3same")
		}
	}
}

// interactive starts a shell that has jobs.
func interactive(t *testing.T, urls, shell string) *session {
	t.Helper()
	args := []string{shell, "-i"}
	if shell == "bash" {
		args = []string{shell, "--norc", "--noprofile", "-i"}
	}
	if _, err := exec.LookPath(shell); err != nil {
		t.Skip(err)
	}
	c := onTerminal(t, urls, args...)
	c.says("$ ")
	return c
}

func TestRunStopsByKey(t *testing.T) {
	urls := parallelNodes(t, 1)
	for _, shell := range []string{"bash", "dash"}[:tests.Times(1, 2)] {
		for _, command := range []string{
			`sh -c 'echo begun; read line; echo "line: $line"'`,
			`sh -c 'trap "sleep 0.3; stty echo; echo tidied; trap - TSTP; kill -TSTP \$\$" TSTP; echo begun; until read line; do :; done; echo "line: $line"'`, // as editors do
		} {
			c := interactive(t, urls, shell)
			c.types("$RUN --name job -- " + command + "\n")
			c.says("begun\r\n")
			c.types(ctrlZ)
			if before := c.says("$ "); strings.Contains(command, "tidied") != strings.Contains(before, "tidied\r\n") {
				t.Errorf("the shell did not wait for the command to stop: %s", before)
			}
			c.types("echo shell$((1))reads\n")
			c.says("shell1reads")
			c.types("fg\n")
			c.types("typed\n")
			c.says("line: typed")
		}
	}
}

// A job that stays stopped is ended before it loses its lock.
func TestRunStaysStopped(t *testing.T) {
	tests.NeedSeconds(t)
	urls := parallelNodes(t, 1)
	c := interactive(t, urls, "bash")
	c.types("$RUN --name job --lease 2s -- sh -c 'echo begun; read line; echo \"line: $line\"'\n")
	c.says("begun\r\n")
	c.types(ctrlZ)
	c.says("$ ")
	ends(t, 0, runOn(urls, "--wait 20s", "true")...)
	c.types("wait %1; echo status=$?\n")
	c.says(fmt.Sprintf("status=%d", exitLost))
	tests.Says(t, c.out.String(), "!line:")
}

// Ctrl-C and a signal each reach the command once, in the foreground of a script.
func TestRunInterruptsOnce(t *testing.T) {
	if signal.Ignored(syscall.SIGINT) {
		t.Skip("SIGINT is ignored, as in the background of a script: no shell below these tests can trap it")
	}
	urls := parallelNodes(t, 1)
	const command = `sh -c 'n=0; trap "n=\$((n+1)); echo interrupt=\$n" INT; trap "echo \$n in all; exit 3" TERM; echo begun; while :; do sleep 0.02; done'`
	for _, line := range []string{"%s", "$RUN --name outer -- %s", "%s >out", "%s | cat"}[:tests.Times(2, 4)] {
		t.Run(line, func(t *testing.T) {
			c := onTerminal(t, urls, "sh", "-c", "trap : INT; "+fmt.Sprintf(line, "$RUN --name job -- "+strings.ReplaceAll(command, "echo", "echo >/dev/tty"))+"; echo over=$?")
			c.says("begun")
			c.signalFirst(syscall.SIGINT)
			c.says("interrupt=1")
			c.types(ctrlC)
			c.says("interrupt=2")
			c.types(ctrlC)
			c.says("interrupt=3")
			c.signalFirst(syscall.SIGTERM)
			c.says("3 in all")
			c.says("over=")
		})
	}
}

// signalFirst sends a signal to the shell's redquorum alone.
func (c *session) signalFirst(s syscall.Signal) {
	c.t.Helper()
	for _, pid := range childrenByParent()[c.cmd.Process.Pid] {
		if line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)); strings.HasPrefix(string(line), os.Args[0]+"\x00run") {
			_ = syscall.Kill(pid, s)
			return
		}
	}
	c.t.Fatal("no redquorum runs")
}

// A killed command leaves the terminal's modes as they were.
func TestRunRestoresTerminal(t *testing.T) {
	tests.NeedSeconds(t)
	t.Parallel()
	for name, ends := range map[string]func(c *session, urls string){
		"max hold": func(*session, string) {},
		"redquorum killed": func(c *session, _ string) {
			c.signalFirst(syscall.SIGKILL)
		},
		"killed": func(c *session, _ string) {
			pid := assert.Got(os.ReadFile(filepath.Join(c.dir, "pid")))(c.t)
			_ = exec.Command("kill", "-9", strings.TrimSpace(string(pid))).Run()
		},
		"warden killed": func(c *session, _ string) {
			for _, pid := range childrenByParent()[c.cmd.Process.Pid] {
				for _, warden := range childrenByParent()[pid] {
					_ = syscall.Kill(warden, syscall.SIGKILL)
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			if name != "killed" {
				tests.NeedLong(t)
			}
			urls := parallelNodes(t, 1)
			for _, command := range []string{
				`sh -c 'trap "" TERM; echo $$ >pid; stty raw -echo; echo begun; while :; do sleep 0.05; done'`,
				`bash --norc -ic 'trap "" TERM; set -m; sh -c "trap \"\" TERM; stty raw -echo; echo begun; while :; do sleep 0.05; done"; echo $$ >pid'`, // it gives the terminal to a group
			} {
				if name == "killed" && strings.HasPrefix(command, "bash") {
					continue
				}
				c := onTerminal(t, urls, "sh", "-c", "stty -a >before; $RUN --name job --lease 2s --max-hold 2s -- "+command+"; until stty -a | cmp -s - before; do sleep 0.1; done; read line && echo \"line: $line\"")
				c.says("begun")
				ends(c, urls)
				c.types("typed\n")
				c.says("line: typed")
			}
		})
	}
}

// A command that ends by itself may change the terminal's modes.
func TestRunSetsModes(t *testing.T) {
	urls := parallelNodes(t, 1)
	c := onTerminal(t, urls, "sh", "-c", "$RUN --name job -- stty -echoctl; stty -a")
	c.says("-echoctl")
}

// A signal ends a stopped command, with and without a terminal.
func TestRunEndsStopped(t *testing.T) {
	urls := parallelNodes(t, 1)
	const command = `trap 'echo "got $?"; exit 5' TERM HUP QUIT; echo begun; kill -STOP $$; while :; do sleep 0.02; done`
	stopped := func(parent int) bool {
		for _, warden := range childrenByParent()[parent] {
			for _, command := range childrenByParent()[warden] {
				stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", command))
				if strings.Contains(string(stat), ") T ") {
					return true
				}
			}
		}
		return false
	}
	for _, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT} {
		if signal.Ignored(s) { // as SIGHUP is under nohup: then no child can be ended by it
			continue
		}
		p := start(t, runOn(urls, "", "sh", "-c", command)...)
		assert.Eventually(t, "the command stopped", func() bool { return stopped(p.cmd.Process.Pid) })
		p.signal(s)
		p.exits(5)
	}
	p := start(t, runOn(urls, "", "sh", "-c", "kill -STOP $$; echo never")...)
	assert.Eventually(t, "the command stopped", func() bool { return stopped(p.cmd.Process.Pid) })
	p.signal(syscall.SIGINT)
	p.exits(-1, "!never")
	p = start(t, runOn(urls, "--max-hold 2s", "sh", "-c", command)...)
	p.exits(exitLost, "got")

	c := onTerminal(t, urls, append([]string{os.Args[0]}, runOn(urls, "", "sh", "-c", "echo begun; kill -STOP $$; echo never")...)...)
	c.says("begun")
	assert.Eventually(t, "the command stopped", func() bool { return stopped(c.cmd.Process.Pid) })
	c.types(ctrlC)
	_ = c.cmd.Wait()
	tests.Says(t, c.out.String(), "!never")
}

// A signal that is not about this process is passed on; without a command it does
// nothing.
func TestRunPassesSignals(t *testing.T) {
	urls := parallelNodes(t, 1)
	others := []syscall.Signal{syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGWINCH, syscall.SIGALRM, syscall.SIGABRT, syscall.SIGCONT, 37}
	script := "echo begun; while :; do sleep 0.02; done"
	for _, s := range others {
		script = fmt.Sprintf("trap 'echo got-%d.' %d; ", s, s) + script
	}
	holder := start(t, runOn(urls, "", "sh", "-c", "trap 'exit 0' USR1; echo begun; while :; do sleep 0.02; done")...)
	holder.says("begun")
	p := start(t, runOn(urls, "", "sh", "-c", script)...)
	p.says("waiting")
	for _, s := range others {
		p.signal(s)
	}
	// It has them before this run begins; later ones would be passed on.
	c := onTerminal(t, urls, append([]string{os.Args[0]}, "run", "--name", "other", "--nodes", urls, "--", "sh", "-c", script)...)
	c.says("begun")
	holder.signal(syscall.SIGUSR1)
	holder.exits(0)
	p.says("begun")
	for _, s := range others {
		got := fmt.Sprintf("got-%d.", s)
		p.signal(s)
		p.says(got)
		c.program.signal(s)
		c.says(got)
	}
}

// Nothing that the command has started outlives the lock, in any group of the terminal.
func TestRunEndsTheTreeOnTerminal(t *testing.T) {
	tests.NeedSeconds(t)
	t.Parallel()
	for name, script := range escapes {
		t.Run(name, func(t *testing.T) {
			if name != "double fork" { // the one that is hardest to find
				tests.NeedLong(t)
			}
			urls := parallelNodes(t, 3)
			ticks := filepath.Join(t.TempDir(), "ticks")
			c := onTerminal(t, urls, "sh", "-c", `export TICK="trap '' TERM INT HUP; while :; do echo >>$0; sleep 0.02; done"; $RUN --name job --lease 3s -- sh -c "$1"; echo over=$?`, ticks, script)
			assert.Eventually(t, "the first tick", func() bool { _, err := os.Stat(ticks); return err == nil })
			want(t, exitOK, "", "break", "job", "--yes", "--nodes", urls)
			tests.Says(t, c.says(fmt.Sprintf("over=%d", exitLost)), "!never")
			still(t, ticks)
		})
	}
}
