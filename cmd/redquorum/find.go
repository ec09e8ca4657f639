package main

import (
	"bufio"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/redquorum/redquorum/internal/cli"
)

// findCommand finds a file as a shell does: in PATH, also in relative or empty entries.
func findCommand(name string) (path string, err error) {
	if strings.Contains(name, "/") {
		return name, executable(name)
	}
	dirs, set := os.LookupEnv("PATH")
	if !set {
		dirs = "/bin:/usr/bin" // as execvp does
	}
	found := exec.ErrNotFound
	for dir := range strings.SplitSeq(dirs, string(os.PathListSeparator)) {
		if dir == "" {
			dir = "."
		}
		path := filepath.Join(dir, name)
		if !filepath.IsAbs(path) {
			path = "./" + path
		}
		switch err := executable(path); {
		case name == "" || errors.Is(err, syscall.EISDIR):
		case err == nil:
			return path, nil
		case errors.Is(err, syscall.EACCES):
			found = err
		}
	}
	return "", found
}

// executable returns why a file cannot be executed, but for its interpreter.
func executable(path string) error {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return err
	case info.IsDir():
		return syscall.EISDIR
	}
	return unix.Access(path, unix.X_OK)
}

// failCommand says why the command could not be started. path is its file, if it was
// found.
func failCommand(stderr io.Writer, name, path string, err error) int {
	reason := err
	for inner := errors.Unwrap(err); inner != nil; inner = errors.Unwrap(inner) {
		reason = inner // the outer ones quote the name
	}
	text := reason.Error()
	if broken := interpreterOf(path); broken != "" {
		text = broken
	}
	fmt.Fprintf(stderr, "redquorum run: the command %s: %s\n", cli.Quoted(name), text)
	for _, full := range []error{syscall.EAGAIN, syscall.ENOMEM, syscall.EMFILE, syscall.ENFILE} {
		if errors.Is(err, full) {
			return exitOS
		}
	}
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, os.ErrNotExist) {
		return exitNotFound
	}
	return exitNotExecutable
}

// interpreterOf says what is wrong with a file's interpreter: the kernel reports that as
// an error of the file.
func interpreterOf(path string) string {
	file, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer file.Close()
	what, program := "interpreter", ""
	first, _ := bufio.NewReader(io.LimitReader(file, 4096)).ReadString('\n')
	if line, ok := strings.CutPrefix(first, "#!"); ok {
		line = strings.Trim(line, " \t\n")
		program, _, _ = strings.Cut(strings.ReplaceAll(line, "\t", " "), " ")
	} else if binary, err := elf.NewFile(file); err == nil {
		what = "loader"
		for _, p := range binary.Progs {
			if p.Type == elf.PT_INTERP {
				text, _ := io.ReadAll(io.LimitReader(p.Open(), 4096))
				program = strings.TrimRight(string(text), "\x00")
			}
		}
	}
	if program == "" {
		return ""
	}
	err = executable(program)
	text := fmt.Sprintf("its %s %q ", what, program)
	switch {
	case err == nil:
		return ""
	case errors.Is(err, os.ErrNotExist):
		text += "does not exist"
	default:
		text += "cannot be executed"
	}
	if strings.HasSuffix(program, "\r") {
		text += "; its lines end with a carriage return, as on Windows: convert it"
	}
	return text
}
