// Package packets has TCP run over links that lose, delay and reorder packets. The connections are the
// kernel's own, so they have its retransmissions, its backoff, and half-open ends that nobody resets.
//
// It needs Linux and a network namespace, in which [Open] makes one TUN device with a relay:
//
//	client, port 40000            relay             server, port 7000
//	10.0.0.1 -> 10.0.0.2   read ------> write   10.0.0.2 -> 10.0.0.1
//	10.0.0.2 -> 10.0.0.1   write <----- read    10.0.0.1 -> 10.0.0.2
//
// A server listens on [Near]. A client dials the same port of [Far], an address that no process has:
// its packets go to the device. The relay reads a packet, exchanges its two addresses, and writes it back. So
// either end sees a peer at the far address. In between the packet is on the [Link] of the server's
// port, and suffers what that link's trouble says.
package packets

import (
	"errors"
	"io"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/redquorum/redquorum/faults"
)

// The address that servers listen on, and the one that clients dial.
const (
	Near = "10.0.0.1"
	Far  = "10.0.0.2"
)

// A Relay carries all packets of a namespace. Its methods may be called by several goroutines at
// once.
type Relay struct {
	device io.ReadWriteCloser // a packet at a time
	done   chan struct{}

	mu    sync.Mutex
	links map[uint16]*Link // by the server's port
}

func newRelay(device io.ReadWriteCloser) *Relay {
	r := &Relay{device: device, done: make(chan struct{}), links: make(map[uint16]*Link)}
	go r.run()
	return r
}

// A Lack is an error that says in one line what this machine lacks. It is errors.ErrUnsupported.
type Lack string

func (l Lack) Error() string        { return string(l) }
func (l Lack) Is(target error) bool { return target == errors.ErrUnsupported }

// Open makes the device, in a process that [Start] has started, and carries packets until Close.
func Open() (*Relay, error) {
	device, err := openDevice()
	if err != nil {
		return nil, err
	}
	return newRelay(device), nil
}

// Close removes the device.
func (r *Relay) Close() error {
	err := r.device.Close()
	<-r.done
	return err
}

// Link returns a new link to the server that listens on Near at a port. Its faults are drawn from
// random.
func (r *Relay) Link(port int, random faults.Random) *Link {
	l := &Link{relay: r, port: uint16(port), random: random, began: make(map[uint16]time.Time)}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.links[l.port] = l
	return l
}

// Addr is the address at which clients reach the server over the link.
func (l *Link) Addr() string { return net.JoinHostPort(Far, strconv.Itoa(int(l.port))) }

// Close ends all faults of the link.
func (l *Link) Close() {
	l.relay.mu.Lock()
	defer l.relay.mu.Unlock()
	if l.relay.links[l.port] == l {
		delete(l.relay.links, l.port)
	}
}

// run carries packets until the device is closed.
func (r *Relay) run() {
	defer close(r.done)
	buffer := make([]byte, 1<<16)
	for {
		n, err := r.device.Read(buffer)
		if err != nil {
			return
		}
		if p, ok := parse(buffer[:n]); ok { // nobody here speaks anything but TCP
			r.take(p, time.Now())
		}
	}
}

// take carries a packet. Those that are late may overtake each other.
func (r *Relay) take(p packet, now time.Time) {
	var late time.Duration
	if l := r.linkOf(p); l != nil {
		var lost bool
		if late, lost = l.carry(p, now); lost {
			return
		}
	}
	p.turn()
	if late == 0 {
		_, _ = r.device.Write(p) // what the kernel refuses is lost
		return
	}
	p = append(packet(nil), p...)
	time.AfterFunc(late, func() { _, _ = r.device.Write(p) })
}

// linkOf returns the link that a packet is on, nil if there is none.
func (r *Relay) linkOf(p packet) *Link {
	r.mu.Lock()
	defer r.mu.Unlock()
	if l := r.links[p.to()]; l != nil {
		return l
	}
	return r.links[p.from()]
}
