package failover

import (
	"io"
	"net"
	"sync"
)

// A door is a TCP proxy to one server that can be shut: then nothing comes through in either direction, and
// connections stay. When it opens again they are reset.
type door struct {
	to       string
	listener net.Listener
	tasks    sync.WaitGroup

	mu    sync.Mutex
	open  chan struct{} // closed while it is open
	conns map[net.Conn]bool
	ended bool
}

func newDoor() (*door, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	d := &door{listener: l, open: make(chan struct{}), conns: make(map[net.Conn]bool)}
	close(d.open)
	return d, nil
}

// lead begins to carry connections to an address.
func (d *door) lead(to string) {
	d.to = to
	d.tasks.Go(func() {
		for {
			c, err := d.listener.Accept()
			if err != nil {
				return
			}
			d.tasks.Go(func() { d.carry(c) })
		}
	})
}

func (d *door) port() string {
	_, port, _ := net.SplitHostPort(d.listener.Addr().String())
	return port
}

func (d *door) isOpen() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.open
}

// keep notes a connection, or ends it if the door is closed for good.
func (d *door) keep(c net.Conn) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ended {
		c.Close()
		return false
	}
	d.conns[c] = true
	return true
}

func (d *door) forget(c net.Conn) {
	d.mu.Lock()
	delete(d.conns, c)
	d.mu.Unlock()
	c.Close()
}

func (d *door) carry(client net.Conn) {
	if !d.keep(client) {
		return
	}
	defer d.forget(client)
	<-d.isOpen()
	server, err := net.Dial("tcp", d.to)
	if err != nil || !d.keep(server) {
		return
	}
	defer d.forget(server)
	var both sync.WaitGroup
	for _, way := range [][2]net.Conn{{server, client}, {client, server}} {
		both.Go(func() {
			_, _ = io.Copy(way[0], passing{way[1], d})
			way[0].Close()
			way[1].Close()
		})
	}
	both.Wait()
}

// A passing connection gives what it reads once the door is open.
type passing struct {
	net.Conn
	door *door
}

func (p passing) Read(b []byte) (int, error) {
	n, err := p.Conn.Read(b)
	<-p.door.isOpen()
	return n, err
}

func (d *door) shut() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.open = make(chan struct{})
}

// reopen opens a shut door, and resets what has gone through it.
func (d *door) reopen() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for c := range d.conns {
		c.Close()
	}
	select {
	case <-d.open:
	default:
		close(d.open)
	}
}

func (d *door) close() {
	d.listener.Close()
	d.mu.Lock()
	d.ended = true
	d.mu.Unlock()
	d.reopen()
	d.tasks.Wait()
}
