package embedded

import (
	"net"
	"sync"
)

type door struct {
	listener net.Listener
	arrival  func()        // called for what comes, before the server gets it
	accepted chan struct{} // closed when no more will be

	mu      sync.Mutex
	flowing chan struct{} // closed unless stalled
}

// open hands every connection to serve, which must not block.
func open(l net.Listener, serve func(net.Conn), arrival func()) *door {
	d := &door{listener: l, arrival: arrival, accepted: make(chan struct{}), flowing: make(chan struct{})}
	close(d.flowing)
	go func() {
		defer close(d.accepted)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			serve(&gated{Conn: conn, door: d, closed: make(chan struct{})})
		}
	}()
	return d
}

// close refuses further connections.
func (d *door) close() {
	d.listener.Close()
	<-d.accepted
}

func (d *door) stall(stalled bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	select {
	case <-d.flowing:
		if stalled {
			d.flowing = make(chan struct{})
		}
	default:
		if !stalled {
			close(d.flowing)
		}
	}
}

func (d *door) flow() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.flowing
}

// gated reads nothing during a stall.
type gated struct {
	net.Conn
	door   *door
	once   sync.Once
	closed chan struct{}
}

func (c *gated) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	select {
	case <-c.door.flow():
		c.door.arrival()
		return n, err
	case <-c.closed:
		return 0, net.ErrClosed
	}
}

func (c *gated) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}
