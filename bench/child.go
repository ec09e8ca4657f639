package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"sync/atomic"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/faults"
	"github.com/redquorum/redquorum/node/embedded"
)

// Embedded servers, proxies and, if every holder is to be a process, holders have
// processes of their own. So the CPU, allocations and memory of a client are its own.
// Parent and child exchange JSON over the child's standard input and output, one answer
// to each request; at the end of its input the child ends.

type request struct {
	Do string `json:"do"`

	N     int      `json:"n,omitempty"`     // serve: how many servers
	Addrs []string `json:"addrs,omitempty"` // link: the servers; open: where the client goes

	Sealed bool `json:"sealed,omitempty"` // link: commands are encrypted, and cannot be counted

	Link    int            `json:"link,omitempty"` // conduct: which
	Conduct faults.Conduct `json:"conduct"`

	Contestant string        `json:"contestant,omitempty"` // open
	URLs       []string      `json:"urls,omitempty"`       // open: of servers that are Given
	RTT        time.Duration `json:"rtt,omitempty"`        // open
	Timeout    time.Duration `json:"timeout,omitempty"`    // open
	Callers    int           `json:"callers,omitempty"`    // take: how many
	Turns      turns         `json:"turns"`                // take: what each of them does
	Pressure   pressure      `json:"pressure"`             // hold and press
}

type answer struct {
	Error    string        `json:"error,omitempty"`
	Addrs    []string      `json:"addrs,omitempty"`
	CPU      time.Duration `json:"cpu,omitempty"`
	Commands int64         `json:"commands,omitempty"` // that went through all links
	Records  []record      `json:"records,omitempty"`  // of each caller
	Pressed  pressed       `json:"pressed"`
}

// A child is the parent's side.
type child struct {
	cmd   *exec.Cmd
	stdin io.Closer
	to    *json.Encoder
	from  *json.Decoder
}

func start(self []string) (*child, error) {
	cmd := exec.Command(self[0], self[1:]...)
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return &child{cmd: cmd, stdin: stdin, to: json.NewEncoder(stdin), from: json.NewDecoder(stdout)}, nil
}

func (c *child) ask(r request) (a answer, err error) {
	if err = c.to.Encode(r); err == nil {
		err = c.from.Decode(&a)
	}
	if err == nil && a.Error != "" {
		err = errors.New(a.Error)
	}
	if err != nil {
		return a, fmt.Errorf("the process for %s: %w", r.Do, err)
	}
	return a, nil
}

func (c *child) close() {
	c.stdin.Close()
	late := time.AfterFunc(10*time.Second, func() { _ = c.cmd.Process.Kill() })
	_ = c.cmd.Wait()
	late.Stop()
}

// A helper is the child's side.
type helper struct {
	contestants []Contestant
	servers     []*embedded.Server
	links       []*faults.Proxy
	commands    atomic.Int64
	client      Client
	held        []Held
}

func help(ctx context.Context, contestants []Contestant, in io.Reader, out io.Writer) error {
	signal.Ignore(endings...) // the parent decides, who may get the same of a terminal
	h := &helper{contestants: contestants}
	defer h.close()
	from, to := json.NewDecoder(in), json.NewEncoder(out)
	for {
		var r request
		if err := from.Decode(&r); err != nil {
			return nil // the parent is done, or gone
		}
		a, err := h.answer(ctx, r)
		if err != nil {
			a.Error = err.Error()
		}
		a.CPU = processCPU()
		if err := to.Encode(a); err != nil {
			return err
		}
	}
}

func (h *helper) answer(ctx context.Context, r request) (a answer, err error) {
	switch r.Do {
	case "serve":
		for range r.N {
			s, err := embedded.StartServer()
			if err != nil {
				return a, err
			}
			h.servers = append(h.servers, s)
			a.Addrs = append(a.Addrs, s.Addr())
		}
	case "link":
		tap := func() io.Writer { return &counter{total: &h.commands} }
		if r.Sealed {
			tap = nil
		}
		for _, addr := range r.Addrs {
			p, err := faults.NewProxy(addr, tap)
			if err != nil {
				return a, err
			}
			h.links = append(h.links, p)
			a.Addrs = append(a.Addrs, p.Addr())
		}
	case "conduct":
		err = h.links[r.Link].Set(r.Conduct)
	case "count":
		a.Commands = h.commands.Load()
	case "open":
		for _, c := range h.contestants {
			if c.Name != r.Contestant {
				continue
			}
			t := Target{Callers: 1, RTT: r.RTT, Timeout: r.Timeout}
			if t.Servers, err = optionsOf(r.URLs, r.Addrs); err != nil {
				return a, err
			}
			if h.client, err = c.Open(ctx, t); err == nil {
				err = warmUp(ctx, h.client, r.Turns.Name, r.Turns.Lease)
			}
			return a, err
		}
		err = fmt.Errorf("there is no contestant %s", r.Contestant)
	case "take":
		a.Records = make([]record, r.Callers)
		err = atOnce(ctx, r.Callers, func(ctx context.Context, i int) (err error) {
			a.Records[i], err = r.Turns.take(ctx, h.client)
			return err
		})
	case "hold":
		h.held, err = r.Pressure.hold(ctx, h.client)
	case "press":
		a.Pressed = r.Pressure.press(ctx, h.client, h.held)
		if ours, ok := h.client.(*redquorum); ok {
			ours.lost.Store(0) // that is a figure here
		}
	case "end":
		client := h.client
		h.client = nil
		err = client.Close()
	case "cpu": // is in every answer
	default:
		err = fmt.Errorf("what is %q", r.Do)
	}
	return a, err
}

func (h *helper) close() {
	if h.client != nil {
		_ = h.client.Close()
	}
	for _, p := range h.links {
		_ = p.Close()
	}
	for _, s := range h.servers {
		s.Close()
	}
}

// A turn is one time that a caller held the lock. The instants are those of the system's
// clock, which all processes share.
type turn struct {
	Asked    clock.Instant `json:"a"`
	Got      clock.Instant `json:"g"`
	Released clock.Instant `json:"r"` // when Unlock was called
	Over     clock.Instant `json:"o"` // when it had returned
}

type record struct {
	Turns []turn `json:"turns,omitempty"`
	// Unserved is how long it had waited for the next turn when the time was up.
	Unserved time.Duration `json:"unserved,omitempty"`
	Reads    bool          `json:"reads,omitempty"` // it shares the lock with others that do
	Owner    int           `json:"-"`               // whose turns they are: of a caller, or of a process
}

// turns is what a caller does that competes for a lock: it takes it, holds it, gives it
// back and thinks, from an instant until another.
type turns struct {
	Name        string        `json:"name"`
	Kind        string        `json:"kind,omitempty"` // plain, reading or writing
	Lease       time.Duration `json:"lease"`
	Hold, Think time.Duration
	From        clock.Instant `json:"from"` // 0: now
	Until       clock.Instant `json:"until"`
}

func (t *turns) lock(ctx context.Context, client Client) (Held, error) {
	if t.Kind == plain {
		return client.Lock(ctx, t.Name, t.Lease)
	}
	if sharer, ok := client.(Sharer); ok {
		return sharer.Share(ctx, t.Name, t.Lease, t.Kind == writing)
	}
	return nil, fmt.Errorf("readers and writers: %w", errors.ErrUnsupported)
}

func (t *turns) take(ctx context.Context, client Client) (all record, err error) {
	now := clock.System().Now
	all.Reads = t.Kind == reading
	time.Sleep(t.From.Sub(now()))
	// A caller that waits at the end need not be served any more, but its wait counts.
	ctx, cancel := context.WithTimeout(ctx, t.Until.Sub(now()))
	defer cancel()
	for {
		one := turn{Asked: now()}
		held, err := t.lock(ctx, client)
		if ctx.Err() != nil {
			all.Unserved = max(0, t.Until.Sub(one.Asked))
			if err == nil {
				err = held.Unlock(context.WithoutCancel(ctx))
			} else {
				err = nil
			}
			return all, err
		}
		if err != nil {
			return all, err
		}
		one.Got = now()
		time.Sleep(t.Hold)
		one.Released = now()
		err = held.Unlock(context.WithoutCancel(ctx))
		if err != nil {
			return all, err
		}
		one.Over = now()
		all.Turns = append(all.Turns, one)
		time.Sleep(t.Think)
	}
}

// A counter counts the commands that a client sends over one connection: arrays of bulk
// strings, one after the other.
type counter struct {
	total *atomic.Int64
	state counterState
	n     int // the number that is being read
	left  int // strings of the command that are still to come
	skip  int // bytes of the present string that are still to come
}

type counterState uint8

const (
	betweenCommands counterState = iota
	inCount                      // after *
	betweenStrings
	inLength // after $
	inString
)

func (c *counter) Write(b []byte) (int, error) {
	for i := 0; i < len(b); i++ {
		switch ch := b[i]; {
		case c.state == inString:
			n := min(c.skip, len(b)-i)
			if c.skip -= n; c.skip == 0 {
				if c.left--; c.left > 0 {
					c.state = betweenStrings
				} else {
					c.state = betweenCommands
				}
			}
			i += n - 1
		case ch == '*' && c.state == betweenCommands:
			c.total.Add(1)
			c.state, c.n = inCount, 0
		case ch == '$' && c.state == betweenStrings:
			c.state, c.n = inLength, 0
		case ch >= '0' && ch <= '9':
			c.n = 10*c.n + int(ch-'0')
		case ch == '\n' && c.state == inCount:
			c.left, c.state = c.n, betweenStrings
		case ch == '\n' && c.state == inLength:
			c.skip, c.state = c.n+len("\r\n"), inString
		}
	}
	return len(b), nil
}
