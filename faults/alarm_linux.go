package faults

import (
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// An alarm sleeps exactly. A timer of the Go runtime can be a whole millisecond
// late on Linux, when nothing else happens, because an idle program waits in
// epoll, which counts in milliseconds; a timerfd is an event there.
type alarm struct{ file *os.File }

func newAlarm() (*alarm, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("timerfd_create", err)
	}
	return &alarm{os.NewFile(uintptr(fd), "alarm")}, nil
}

// sleep returns after d, which is more than 0.
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
		time.Sleep(d)
	}
}

func (a *alarm) close() { a.file.Close() }
