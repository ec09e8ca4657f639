//go:build !js

package faults

import (
	"context"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"time"
)

// A Proxy stands on one link of a deployment: a client that is given its address talks to
// the server behind it, as the proxy's [Conduct] lets it. Its methods are safe for
// concurrent use.
//
// Data goes out later by the delay, in order. On Linux that is exact to about 0.1 ms.
type Proxy struct {
	target, addr string
	tap          func() io.Writer
	ctx          context.Context // ends with Close
	cancel       context.CancelFunc

	mu       sync.Mutex
	conduct  Conduct
	flowing  chan struct{} // closed unless it hangs
	listener net.Listener  // nil when it is down
	conns    map[net.Conn]struct{}
	closed   bool
	tasks    sync.WaitGroup
}

// A Conduct is how a Proxy behaves. The zero Conduct passes everything on.
type Conduct struct {
	// Delay is drawn for all that comes in at once, in each direction. A new connection's
	// first bytes are late by a further round trip, for the handshake.
	Delay Range
	// Hang keeps connections, and takes new ones, but lets nothing through, like a
	// stopped process. Data goes on when it ends.
	Hang bool
	// Down breaks all connections and refuses new ones, like a killed process.
	Down bool
}

// NewProxy returns a proxy for the server at target, host:port, on a free port of the
// loopback interface. tap, if not nil, returns for each connection a writer that gets
// what the client sends.
func NewProxy(target string, tap func() io.Writer) (*Proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &Proxy{target: target, addr: l.Addr().String(), tap: tap, flowing: make(chan struct{}),
		conns: make(map[net.Conn]struct{})}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	close(p.flowing)
	p.serve(l)
	return p, nil
}

func (p *Proxy) Addr() string { return p.addr }

// Set changes how the proxy behaves from now on.
func (p *Proxy) Set(c Conduct) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return net.ErrClosed
	}
	was := p.conduct
	p.conduct = c
	if c.Hang && !was.Hang {
		p.flowing = make(chan struct{})
	} else if !c.Hang && was.Hang {
		close(p.flowing)
	}
	if c.Down {
		p.down()
	} else if p.listener == nil {
		l, err := net.Listen("tcp", p.addr)
		if err != nil {
			return err
		}
		p.serve(l)
	}
	return nil
}

// Close breaks all connections and ends the proxy. It may be called twice.
func (p *Proxy) Close() error {
	p.mu.Lock()
	p.closed = true
	p.down()
	p.mu.Unlock()
	p.cancel()
	p.tasks.Wait()
	return nil
}

func (p *Proxy) down() {
	if p.listener != nil {
		p.listener.Close()
		p.listener = nil
	}
	for c := range p.conns {
		c.Close()
	}
}

// serve is called with p.mu held, or before anybody else has p.
func (p *Proxy) serve(l net.Listener) {
	p.listener = l
	p.tasks.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			p.tasks.Go(func() { p.carry(conn) })
		}
	})
}

// add notes a connection, to be closed with the proxy, and reports whether it may be
// used.
func (p *Proxy) add(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listener == nil {
		c.Close()
		return false
	}
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // closing is a reset, as when a process dies
	}
	p.conns[c] = struct{}{}
	return true
}

func (p *Proxy) drop(c net.Conn) {
	c.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, c)
}

func (p *Proxy) delay() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	d := p.conduct.Delay
	return d.Min + time.Duration(rand.Int64N(int64(max(0, d.Max-d.Min))+1))
}

// gate returns a channel that is closed while data may pass.
func (p *Proxy) gate() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.flowing
}

func (p *Proxy) carry(client net.Conn) {
	if !p.add(client) {
		return
	}
	defer p.drop(client)
	ctx, cancel := context.WithCancel(p.ctx)
	defer cancel()
	server, err := new(net.Dialer).DialContext(ctx, "tcp", p.target)
	if err != nil || !p.add(server) {
		return
	}
	defer p.drop(server)
	var tap io.Writer
	if p.tap != nil {
		tap = p.tap()
	}
	end := func() {
		cancel()
		client.Close()
		server.Close()
	}
	var ways sync.WaitGroup
	ways.Go(func() { p.pump(ctx, client, server, tap, p.delay()+p.delay()); end() })
	ways.Go(func() { p.pump(ctx, server, client, nil, 0); end() })
	ways.Wait()
}

type parcel struct {
	bytes []byte
	due   time.Time
}

// pump carries one direction of a connection until it breaks, or ctx ends.
func (p *Proxy) pump(ctx context.Context, from, to net.Conn, tap io.Writer, late time.Duration) {
	line := make(chan parcel, 1024)
	var reader sync.WaitGroup
	reader.Go(func() {
		defer close(line)
		var last time.Time
		for {
			bytes := make([]byte, 16<<10)
			n, err := from.Read(bytes)
			if n > 0 {
				due := time.Now().Add(p.delay() + late)
				late = 0
				if due.Before(last) {
					due = last
				}
				last = due
				select {
				case line <- parcel{bytes[:n], due}:
				case <-ctx.Done():
					return
				}
			}
			if err != nil {
				return
			}
		}
	})
	err := p.deliver(ctx, line, to, tap)
	if err != nil {
		from.Close() // so that the reader ends
	}
	reader.Wait()
}

func (p *Proxy) deliver(ctx context.Context, line <-chan parcel, to net.Conn, tap io.Writer) error {
	alarm, err := newAlarm(ctx)
	if err != nil {
		return err
	}
	defer alarm.close()
	for sent := range line {
		if d := time.Until(sent.due); d > 0 {
			alarm.sleep(d)
		}
		select {
		case <-p.gate():
		case <-ctx.Done():
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if tap != nil {
			_, _ = tap.Write(sent.bytes)
		}
		if _, err := to.Write(sent.bytes); err != nil {
			return err
		}
	}
	return nil
}

func doze(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
