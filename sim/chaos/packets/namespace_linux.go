package packets

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/redquorum/redquorum/internal/process"
)

// Start starts a command in a network namespace of its own, as its administrator. Users other than
// root get a user namespace for that. The command and the namespace end with this process.
func Start(cmd *exec.Cmd) (*process.Process, error) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET}
	if os.Geteuid() != 0 {
		cmd.SysProcAttr.Cloneflags |= unix.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: os.Geteuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getegid(), Size: 1}}
	}
	p, err := process.Start(cmd)
	if err != nil {
		return nil, Lack("no network namespace: " + err.Error())
	}
	return p, nil
}

// openDevice makes a TUN device. A packet to the far address can be read from it.
func openDevice() (io.ReadWriteCloser, error) {
	if err := ownNetwork(); err != nil {
		return nil, err
	}
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, Lack("no TUN device: " + err.Error())
	}
	if err = configure(fd); err != nil {
		unix.Close(fd)
		return nil, err
	}
	return os.NewFile(uintptr(fd), "/dev/net/tun"), nil
}

// ownNetwork returns an error unless this network is new: the one of a machine is left alone.
func ownNetwork() error {
	all, err := net.Interfaces()
	if err != nil {
		return err
	}
	for _, i := range all {
		if i.Flags&net.FlagUp != 0 {
			return fmt.Errorf("this process has no network namespace of its own: %s is up", i.Name)
		}
	}
	return nil
}

// configure gives the device its addresses, and takes it and the loopback interface up.
func configure(device int) error {
	const name = "links"
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(s)
	address := func(text string) func(*unix.Ifreq) error {
		return func(r *unix.Ifreq) error { return r.SetInet4Addr(net.ParseIP(text).To4()) }
	}
	flags := func(bits uint16) func(*unix.Ifreq) error {
		return func(r *unix.Ifreq) error { r.SetUint16(bits); return nil }
	}
	for _, step := range []struct {
		fd        int
		request   uint
		what      string
		name      string
		parameter func(*unix.Ifreq) error
	}{
		{device, unix.TUNSETIFF, "no TUN device", name, flags(unix.IFF_TUN | unix.IFF_NO_PI)},
		{s, unix.SIOCSIFADDR, "no address", name, address(Near)},
		{s, unix.SIOCSIFDSTADDR, "no address of the peer", name, address(Far)},
		{s, unix.SIOCSIFFLAGS, "the TUN device does not come up", name, flags(unix.IFF_UP)},
		{s, unix.SIOCSIFFLAGS, "the loopback interface does not come up", "lo", flags(unix.IFF_UP)},
	} {
		r, err := unix.NewIfreq(step.name)
		if err == nil {
			err = step.parameter(r)
		}
		if err == nil {
			err = unix.IoctlIfreq(step.fd, step.request, r)
		}
		if err != nil {
			return Lack(step.what + ": " + err.Error())
		}
	}
	return nil
}
