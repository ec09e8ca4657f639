package courier

import (
	"io"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/redquorum/redquorum/node"
)

const (
	// restAfter is for how long a connection may be idle before the server is asked for its role. That keeps
	// middle boxes from forgetting the connection, and notices if they did.
	restAfter = 15 * time.Second

	// roleEvery is how often a server is asked while commands go to it: the first command of a batch follows
	// the question. A replica that takes writes refuses no command.
	roleEvery = 100 * time.Millisecond
)

// readAtOnce is how much is read at once, unless a reply is longer.
const readAtOnce = 16 << 10

// A stream is the link of a direct route: one pipelined connection, written by the courier
// and read by a goroutine of its own. Replies come in the order of the commands. It is never
// used again after an error.
type stream struct {
	route *direct
	conn  *wire

	// leaving: no more is sent, and the stream ends when nothing is in flight.
	leaving atomic.Bool
}

func (t *stream) abort() { t.conn.SetReadDeadline(time.Unix(1, 0)) }

func (t *stream) close() { t.route.drop(t.conn) }

// leave ends the sending. Calls in flight may still be answered.
func (t *stream) leave(s *server) {
	t.leaving.Store(true)
	if s.inFlight() == 0 {
		t.abort()
	}
}

// carry is the writer.
func (t *stream) carry(s *server, life *node.Life) (err error) {
	ended := make(chan struct{})
	go func() {
		err = t.read(s, life)
		t.conn.Close() // ends a Write
		close(ended)
	}()
	t.write(s, life, ended)
	<-ended
	return err
}

// write sends what is queued until the stream ends.
func (t *stream) write(s *server, life *node.Life, ended <-chan struct{}) {
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	var batch []*call
	out := outgoing{given: make(scriptSet)}
	asked := time.Now()
	for {
		switch s.await(ticker.C, ended) {
		case over:
			t.abort()
			return
		case idle:
			if time.Since(asked) < restAfter && s.watch.idle() {
				continue
			}
		}
		if t.leaving.Load() {
			return
		}
		// Let other goroutines queue the commands that they are about to submit: with 64
		// callers that saves half of the system calls.
		runtime.Gosched()
		if time.Since(asked) >= roleEvery {
			asked = time.Now()
			s.askRole(t.route.Timeout)
		}
		if batch = s.take(batch); len(batch) == 0 {
			continue
		}
		out.encode(batch, life)
		clear(batch) // they may be settled and used again as soon as they are sent
		if n, err := t.conn.Write(out.words); err != nil {
			s.giveBack(out.unsent(n))
			t.leave(s)
			return
		}
	}
}

// An outgoing batch is what goes over a stream at once.
type outgoing struct {
	words words
	begin []int     // where in words each call begins
	given scriptSet // the scripts that the server has, once all is sent
}

// encode replaces what o has by the commands of batch. life is the server's, nil if it is
// not known.
func (o *outgoing) encode(batch []*call, life *node.Life) {
	o.words, o.begin = o.words[:0], o.begin[:0]
	id := ""
	if life != nil {
		id = life.ID
	}
	for rest := batch; len(rest) > 0; rest = rest[rest[0].size():] {
		first, calls := rest[0], rest[:rest[0].size()]
		for range calls {
			o.begin = append(o.begin, len(o.words))
		}
		if first.together > 0 {
			appendEach(&o.words, calls, o.given, id)
		} else {
			first.append(&o.words, first.asText || first.row != nil && o.given.add(first.row.script), id)
		}
	}
}

// unsent is how many calls are not among the first n bytes, not even in part.
func (o *outgoing) unsent(n int) (calls int) {
	for _, at := range o.begin {
		if at >= n {
			calls++
		}
	}
	return calls
}

// read settles what comes back until the stream ends, and says why it does.
func (t *stream) read(s *server, life *node.Life) error {
	in := newIncoming()
	for {
		results, err := in.read(t.conn)
		if len(results) > 0 && !s.settle(results, life) {
			t.leave(s)
		}
		clear(results)
		if err == nil && t.leaving.Load() && s.inFlight() == 0 {
			err = io.EOF
		}
		if err == nil {
			err = in.makeRoom(s.inspects)
		}
		if err != nil {
			return networkError(err)
		}
	}
}

// Incoming is what has come over a stream and is not settled yet.
type incoming struct {
	buf     []byte
	have    int // bytes in buf
	used    int // of these, that are in results
	replies parser
	results []result
}

func newIncoming() incoming { return incoming{buf: make([]byte, readAtOnce)} }

// read reads once, and returns what the replies say that are whole by now.
func (in *incoming) read(conn io.Reader) ([]result, error) {
	n, err := conn.Read(in.buf[in.have:])
	in.have += n
	var bad error
	if in.results, in.used, bad = in.replies.results(in.buf[:in.have], in.results[:0]); bad != nil {
		err = bad
	}
	return in.results, err
}

// makeRoom makes room for more of a reply that is not whole, unless it is too long. inspects reports
// whether it is to an Inspect; nil: it is not.
func (in *incoming) makeRoom(inspects func() bool) error {
	in.have = copy(in.buf, in.buf[in.used:in.have])
	if in.have >= maxReply && (in.have >= maxInspect || inspects == nil || !inspects()) {
		return errTooLong
	}
	if in.have == 0 {
		in.buf = in.buf[:readAtOnce]
	}
	if in.have == len(in.buf) {
		in.buf = append(in.buf, make([]byte, len(in.buf))...)
	}
	return nil
}

// results appends what the replies in b say that are whole. They have so many bytes.
func (p *parser) results(b []byte, results []result) (_ []result, used int, err error) {
	p.reset()
	for used < len(b) {
		reply, n, err := p.parse(b[used:])
		if n == 0 {
			return results, used, err
		}
		used += n
		results = append(results, understand(reply))
	}
	return results, used, nil
}
