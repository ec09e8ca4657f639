//go:build unix

package redisserver

import (
	"os"
	"syscall"
)

var stop, cont os.Signal = syscall.SIGSTOP, syscall.SIGCONT
