//go:build !linux

package packets

import (
	"errors"
	"fmt"
	"io"
	"os/exec"
	"runtime"

	"github.com/redquorum/redquorum/internal/process"
)

var errNone = fmt.Errorf("no network namespaces on %s: %w", runtime.GOOS, errors.ErrUnsupported)

// Start starts a command in a network namespace of its own, which only Linux has.
func Start(*exec.Cmd) (*process.Process, error) { return nil, errNone }

func openDevice() (io.ReadWriteCloser, error) { return nil, errNone }
