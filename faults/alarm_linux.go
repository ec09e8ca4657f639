package faults

import (
	"context"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// An alarm sleeps exactly. On Linux a timer of an idle Go program can be a millisecond
// late, because the runtime waits in epoll, which counts milliseconds; a timerfd is an
// event there.
type alarm struct {
	ctx  context.Context
	file *os.File
	stop func() bool
}

func newAlarm(ctx context.Context) (*alarm, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("timerfd_create", err)
	}
	file := os.NewFile(uintptr(fd), "alarm")
	return &alarm{ctx, file, context.AfterFunc(ctx, func() { file.Close() })}, nil
}

// sleep returns after d, which must be positive, or when ctx ends.
func (a *alarm) sleep(d time.Duration) {
	spec := unix.ItimerSpec{Value: unix.NsecToTimespec(int64(d))}
	raw, err := a.file.SyscallConn()
	if err == nil {
		_ = raw.Control(func(fd uintptr) { err = unix.TimerfdSettime(int(fd), 0, &spec, nil) })
	}
	if err == nil {
		var expirations [8]byte
		_, err = a.file.Read(expirations[:])
	}
	if err != nil {
		doze(a.ctx, d)
	}
}

func (a *alarm) close() {
	a.stop()
	a.file.Close()
}
