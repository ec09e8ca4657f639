package chaos

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	_ "embed"
)

// Two ways to move clocks are here. A server reads a preloaded clock, which the parent
// moves. A client is a program of our own: its clock is a function of the plan and of
// true time.

//go:embed preload/clock.c
var clockSource string

// compileClock makes the library that a server's clock is, in a folder. It
// needs Linux, where a library can be preloaded, and a C compiler.
func compileClock(dir string) (library string, err error) {
	if runtime.GOOS != "linux" {
		return "", errors.New("the clock of a server can be moved on Linux only")
	}
	cc, err := exec.LookPath("cc")
	if err != nil {
		return "", errors.New("the clock of a server is a library in C: install a C compiler (cc)")
	}
	source := filepath.Join(dir, "clock.c")
	library = filepath.Join(dir, "clock.so")
	if err := os.WriteFile(source, []byte(clockSource), 0o666); err != nil {
		return "", err
	}
	if said, err := exec.Command(cc, "-O2", "-shared", "-fPIC", "-o", library, source,
		"-ldl").CombinedOutput(); err != nil {
		return "", fmt.Errorf("the clock of a server cannot be compiled: %s", strings.TrimSpace(string(said)))
	}
	return library, nil
}
