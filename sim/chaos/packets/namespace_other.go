//go:build !linux

package packets

import (
	"io"
	"os/exec"
	"runtime"

	"github.com/redquorum/redquorum/internal/process"
)

var none = Lack("no network namespaces on " + runtime.GOOS)

// Start starts a command in a network namespace of its own, which only Linux has.
func Start(*exec.Cmd) (*process.Process, error) { return nil, none }

func openDevice() (io.ReadWriteCloser, error) { return nil, none }
