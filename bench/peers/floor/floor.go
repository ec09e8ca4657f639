// Package floor is our commands without an engine, for the engine to be measured
// against: not the least that any lock could cost, but the least that one with
// these scripts can. It is no lock to use. It sends exactly the commands that redquorum sends, with the same
// scripts, and is back at the majority; but nothing is renewed, guarded,
// observed or bounded by a lease, a waiter asks again and again, and names are
// not checked.
//
// Each node has one connection. Any caller writes to it, and one goroutine reads it. A
// command is encoded once for all nodes. A caller that finds a connection idle writes
// to it by itself, without waiting; what is said while replies are open is gathered,
// and a goroutine of the node writes it with one call. Replies come in the order of the
// commands, so an answer is counted by one atomic addition, and the one that makes the
// majority wakes the caller. Operations are used again: in the steady state nothing is
// allocated.
package floor

import (
	"bufio"
	"context"
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/node/redisnode"
)

// The scripts, in the text that redquorum sends.
var acquireText, releaseText = scriptText(node.Acquire), scriptText(node.Release)

var acquireSHA, releaseSHA = sha(acquireText), sha(releaseText)

func scriptText(kind node.Kind) (text string) {
	redisnode.Execute(node.Command{Kind: kind, Claims: []node.Claim{{Owner: "anybody"}}, TTL: time.Second},
		func(words []string) (any, error) {
			text = words[1]
			return nil, nil
		})
	return text
}

func sha(text string) string {
	sum := sha1.Sum([]byte(text))
	return hex.EncodeToString(sum[:])
}

const (
	retention   = "86400000" // of a fence, ms: redquorum's default
	uuid        = "6c0d5a7e-3f7b-4f0e-9d55-0a4d7c1b2e93:"
	flightLimit = 1 << 14 // commands that may be open on one node
	pause       = 100 * time.Millisecond
)

// A Client is one process's connections. Its methods may be called by many
// goroutines at once.
type Client struct {
	lanes []*lane
	need  uint32
	token atomic.Int64
	ops   sync.Pool
	tasks sync.WaitGroup
	ctx   context.Context
	end   context.CancelFunc
}

// Dial connects to all servers at once. It fails if it reaches no majority; a
// server that is missing is tried again and again.
func Dial(ctx context.Context, addrs []string) (*Client, error) {
	c := &Client{need: uint32(len(addrs)/2 + 1)}
	c.ctx, c.end = context.WithCancel(context.Background())
	c.ops.New = func() any { return &op{client: c, decided: make(chan struct{}, 1)} }
	dialed := make(chan error, len(addrs))
	for _, addr := range addrs {
		l := &lane{addr: addr, dead: true, wake: make(chan struct{}, 1)}
		l.attempt.init()
		c.lanes = append(c.lanes, l)
		c.tasks.Go(func() {
			err := l.dial(ctx)
			dialed <- err
			l.run(c.ctx, err == nil)
		})
	}
	reached := uint32(0)
	var failed error
	for range addrs {
		if err := <-dialed; err != nil {
			failed = err
		} else {
			reached++
		}
	}
	if reached < c.need {
		c.Close()
		return nil, fmt.Errorf("floor: %d of %d servers reached: %w", reached, len(addrs), failed)
	}
	return c, nil
}

// Close waits a second at most for what is still to be answered, so that the last
// releases reach all nodes, and closes the connections.
func (c *Client) Close() error {
	for end := time.Now().Add(time.Second); c.busy() && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	c.end()
	for _, l := range c.lanes {
		l.hangUp()
	}
	c.tasks.Wait()
	return nil
}

func (c *Client) busy() bool {
	return slices.ContainsFunc(c.lanes, func(l *lane) bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.open > 0
	})
}

// An op is one command to all nodes, and, of a lock, what its unlock needs.
type op struct {
	client  *Client
	command []byte
	release []byte
	state   atomic.Uint64 // the answers so far: yes in the low 16 bits, no in the next
	refs    atomic.Int32  // one for each answer to come, one for the caller
	fence   atomic.Int64  // the highest fence that refused
	decided chan struct{}
}

const (
	oneYes = 1
	oneNo  = 1 << 16
)

// A Held is a lock.
type Held struct{ op *op }

// Lock waits until name is held for lease on a majority.
func (c *Client) Lock(ctx context.Context, name string, lease time.Duration) (Held, error) {
	above := int64(0)
	for {
		o := c.newOp()
		token := c.nextToken(above)
		o.encode(name, rand.Uint64()>>1, token, node.Milliseconds(lease))
		granted, err := o.ask(ctx, o.command)
		if granted {
			return Held{o}, nil
		}
		above = o.fence.Load()
		undo := c.newOp()
		undo.ask(context.Background(), o.release)
		undo.drop()
		o.drop()
		if err != nil {
			return Held{}, err
		}
		if above >= token {
			continue
		}
		select {
		case <-ctx.Done():
			return Held{}, ctx.Err()
		case <-time.After(time.Millisecond + rand.N(2*time.Millisecond)):
		}
	}
}

var errUnlock = errors.New("floor: no majority released the lock")

// Unlock returns when a majority has released the lock. It is called once.
func (h Held) Unlock(ctx context.Context) error {
	o := h.op.client.newOp()
	released, err := o.ask(ctx, h.op.release)
	o.drop()
	h.op.drop()
	if err == nil && !released {
		err = errUnlock
	}
	return err
}

func (c *Client) nextToken(above int64) int64 {
	now := max(time.Now().UnixMicro(), above+1)
	for {
		last := c.token.Load()
		t := max(now, last+1)
		if c.token.CompareAndSwap(last, t) {
			return t
		}
	}
}

func (c *Client) newOp() *op {
	o := c.ops.Get().(*op)
	o.state.Store(0)
	o.fence.Store(0)
	o.refs.Store(1)
	return o
}

func (o *op) drop() {
	if o.refs.Add(-1) == 0 {
		select { // decided, but the caller had gone
		case <-o.decided:
		default:
		}
		o.client.ops.Put(o)
	}
}

// encode writes both commands.
func (o *op) encode(name string, owner uint64, token, ttl int64) {
	var n, t, l, room [128]byte
	number := strconv.AppendUint(n[:0], owner, 10)
	tok, life := strconv.AppendInt(t[:0], token, 10), strconv.AppendInt(l[:0], ttl, 10)

	b := append(o.command[:0], "*9\r\n$7\r\nevalsha\r\n$40\r\n"...)
	b = append(b, acquireSHA...)
	b = append(b, "\r\n$1\r\n2\r\n"...)
	b = appendKeys(b, name)
	b = appendOwner(b, number)
	b = appendWord(b, tok)
	b = appendWord(b, life)
	o.command = appendText(b, retention)

	b = append(o.release[:0], "*10\r\n$7\r\nevalsha\r\n$40\r\n"...)
	b = append(b, releaseSHA...)
	b = append(b, "\r\n$1\r\n3\r\n"...)
	b = appendKeys(b, name)
	b = appendWord(b, node.AppendQueueKey(room[:0], name))
	b = appendOwner(b, number)
	b = appendWord(b, tok)
	b = appendText(b, retention)
	o.release = appendWord(b, node.AppendChannel(room[:0], name))
}

func appendKeys(b []byte, name string) []byte {
	b = appendText(b, name)
	var room [128]byte
	return appendWord(b, node.AppendFenceKey(room[:0], name))
}

func appendOwner(b, number []byte) []byte {
	b = appendLength(b, len(uuid)+len(number))
	b = append(b, uuid...)
	b = append(b, number...)
	return append(b, "\r\n"...)
}

func appendLength(b []byte, n int) []byte {
	b = append(b, '$')
	b = strconv.AppendInt(b, int64(n), 10)
	return append(b, "\r\n"...)
}

func appendWord(b, word []byte) []byte {
	b = appendLength(b, len(word))
	b = append(b, word...)
	return append(b, "\r\n"...)
}

func appendText(b []byte, word string) []byte {
	b = appendLength(b, len(word))
	b = append(b, word...)
	return append(b, "\r\n"...)
}

// ask sends command to all nodes and waits for a majority of one mind.
func (o *op) ask(ctx context.Context, command []byte) (yes bool, err error) {
	lanes := o.client.lanes
	o.refs.Add(int32(len(lanes)))
	for _, l := range lanes {
		l.submit(o, command)
	}
	if done := ctx.Done(); done == nil {
		<-o.decided
	} else {
		select {
		case <-o.decided:
		case <-done:
			return false, ctx.Err()
		}
	}
	return uint32(o.state.Load()&0xffff) >= o.client.need, nil
}

// answer counts one node's answer.
func (o *op) answer(yes bool) {
	add := uint64(oneNo)
	if yes {
		add = oneYes
	}
	s := o.state.Add(add)
	y, n := uint32(s&0xffff), uint32(s>>16)
	if yes && y == o.client.need || !yes && n == uint32(len(o.client.lanes))+1-o.client.need {
		o.decided <- struct{}{}
	}
	o.drop()
}

func (o *op) refused(fence int64) {
	for {
		f := o.fence.Load()
		if fence <= f || o.fence.CompareAndSwap(f, fence) {
			return
		}
	}
}

// A lane is the connection to one node.
type lane struct {
	addr string
	wake chan struct{} // for the writer

	mu      sync.Mutex
	conn    *net.TCPConn
	raw     syscall.RawConn
	attempt attempt
	out     []byte // to be written
	dead    bool
	asleep  bool  // the writer
	flight  []*op // a ring, in the order of the commands
	head    int
	open    int
}

// dial connects, and says both scripts to the server; their answers are the
// first to be read.
func (l *lane) dial(ctx context.Context) error {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", l.addr)
	if err != nil {
		return err
	}
	var b []byte
	for _, text := range []string{acquireText, releaseText} {
		b = fmt.Appendf(b, "*3\r\n$6\r\nSCRIPT\r\n$4\r\nLOAD\r\n$%d\r\n%s\r\n", len(text), text)
	}
	if _, err := conn.Write(b); err != nil {
		conn.Close()
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.conn = conn.(*net.TCPConn)
	l.raw, err = l.conn.SyscallConn()
	l.dead = err != nil
	return err
}

// hangUp closes the connection if there is one.
func (l *lane) hangUp() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dead = true
	l.out = nil
	if l.conn != nil {
		l.conn.Close()
	}
}

// submit sends command, or leaves it to the writer.
func (l *lane) submit(o *op, command []byte) {
	l.mu.Lock()
	if l.dead || l.open == flightLimit {
		l.mu.Unlock()
		o.answer(false)
		return
	}
	idle := l.open == 0 // so nothing is to be written, either
	l.push(o)
	if idle {
		l.attempt.b, l.attempt.n = command, 0
		l.raw.Write(l.attempt.write)
		command = command[l.attempt.n:]
	}
	if len(command) > 0 {
		l.out = append(l.out, command...)
		if l.asleep {
			l.asleep = false
			l.wake <- struct{}{}
		}
	}
	l.mu.Unlock()
}

// An attempt is a write that does not wait: what does not fit remains.
type attempt struct {
	b     []byte
	n     int
	write func(fd uintptr) bool // once made, so that a write allocates nothing
}

func (a *attempt) init() {
	a.write = func(fd uintptr) bool {
		n, _ := syscall.Write(int(fd), a.b)
		a.n = max(n, 0)
		return true
	}
}

func (l *lane) push(o *op) {
	if l.open == len(l.flight) {
		ring := make([]*op, max(64, 2*l.open))
		for i := range l.open {
			ring[i] = l.flight[(l.head+i)%len(l.flight)]
		}
		l.flight, l.head = ring, 0
	}
	l.flight[(l.head+l.open)&(len(l.flight)-1)] = o
	l.open++
}

// pop takes the n oldest commands.
func (l *lane) pop(list []*op, n int) []*op {
	l.mu.Lock()
	for range min(n, l.open) {
		list = append(list, l.flight[l.head])
		l.flight[l.head] = nil
		l.head = (l.head + 1) & (len(l.flight) - 1)
		l.open--
	}
	l.mu.Unlock()
	return list
}

// run reads until the client is closed, over one connection after the other.
func (l *lane) run(ctx context.Context, connected bool) {
	for ; ; connected = l.dial(ctx) == nil {
		if connected && ctx.Err() == nil {
			l.converse()
		}
		select {
		case <-ctx.Done():
			l.hangUp()
			return
		case <-time.After(pause):
		}
	}
}

// converse carries commands until the connection breaks.
func (l *lane) converse() {
	stop := make(chan struct{})
	var writer sync.WaitGroup
	writer.Go(func() { l.write(stop) })
	l.read()
	l.hangUp()
	close(stop)
	writer.Wait()
	for _, o := range l.pop(nil, flightLimit) {
		o.answer(false)
	}
}

// write writes what is gathered.
func (l *lane) write(stop <-chan struct{}) {
	var b []byte
	for {
		l.mu.Lock()
		for len(l.out) == 0 {
			l.asleep = true
			l.mu.Unlock()
			select {
			case <-l.wake:
			case <-stop:
				return
			}
			l.mu.Lock()
		}
		l.mu.Unlock()
		runtime.Gosched() // let others say what they have to say: half the CPU at 64 callers
		l.mu.Lock()
		b, l.out = l.out, b[:0]
		conn := l.conn
		l.mu.Unlock()
		if _, err := conn.Write(b); err != nil {
			conn.Close()
			<-stop
			return
		}
	}
}

// read reads replies until the connection breaks.
func (l *lane) read() {
	r := bufio.NewReaderSize(l.conn, 64<<10)
	for range 2 * 2 { // what SCRIPT LOAD answers, two lines each
		if _, err := r.ReadSlice('\n'); err != nil {
			return
		}
	}
	var answers []bool
	var fences []int64
	var list []*op
	for {
		answers, fences = answers[:0], fences[:0]
		for {
			yes, fence, err := readReply(r)
			if err != nil {
				return
			}
			answers, fences = append(answers, yes), append(fences, fence)
			if r.Buffered() == 0 {
				break
			}
		}
		list = l.pop(list[:0], len(answers))
		for i, o := range list {
			if fences[i] > 0 {
				o.refused(fences[i])
			}
			o.answer(answers[i])
		}
		clear(list)
	}
}

// readReply reads one reply: 1 is a yes, and of a list the last number is a
// fence.
func readReply(r *bufio.Reader) (yes bool, fence int64, err error) {
	line, err := r.ReadSlice('\n')
	if err != nil {
		return false, 0, err
	}
	if line[0] != '*' {
		return line[0] == ':' && line[1] == '1', 0, nil
	}
	for n := line[1] - '0'; n > 0; n-- {
		if line, err = r.ReadSlice('\n'); err != nil {
			return false, 0, err
		}
	}
	fence, _ = strconv.ParseInt(string(line[1:len(line)-2]), 10, 64)
	return false, fence, nil
}
