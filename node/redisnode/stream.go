package redisnode

import (
	"errors"
	"io"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/redquorum/redquorum/node"
)

// restAfter is for how long a connection may be idle before INFO is sent again. That keeps
// middle boxes from forgetting the connection, and notices if they did.
const restAfter = 15 * time.Second

// readAtOnce is how much is read at once, unless a reply is longer.
const readAtOnce = 16 << 10

// A stream is the link of a direct route: one pipelined connection, written by the courier
// and read by a goroutine of its own. Replies come in the order of the commands. It is never
// used again after an error.
type stream struct {
	route *direct
	conn  *wire
	life  atomic.Pointer[node.Life] // of the server, from the handshake on

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

// carry is the writer. The introduction goes first, together with the queued calls. As its
// answers come before all others, every reply has its life.
func (t *stream) carry(s *server) (met bool, err error) {
	s.introduce(t.route.handshakeTimeout)
	ended := make(chan struct{})
	go func() {
		met, err = t.read(s)
		t.conn.Close() // ends a Write
		close(ended)
	}()
	t.write(s, ended)
	<-ended
	return met, err
}

// write sends what is queued until the stream ends.
func (t *stream) write(s *server, ended <-chan struct{}) {
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	var batch []*call
	out := outgoing{given: make(scriptSet)}
	used := time.Now()
	for {
		switch s.await(ticker.C, ended) {
		case over:
			t.abort()
			return
		case idle:
			if time.Since(used) >= restAfter {
				s.introduce(t.route.handshakeTimeout)
			}
			continue
		}
		if t.leaving.Load() {
			return
		}
		// Let other goroutines queue the commands that they are about to submit: with 64
		// callers that saves half of the system calls.
		runtime.Gosched()
		batch = s.take(batch)
		out.encode(batch, t.life.Load())
		clear(batch) // they may be settled and used again as soon as they are sent
		used = time.Now()
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
//
// Commands are sent together with the introduction. A server that refuses INFO may execute them all
// the same. So the stream goes on for a moment, for their releases alone.
func (t *stream) read(s *server) (met bool, _ error) {
	var (
		life    *node.Life
		refused error
		in      = incoming{buf: make([]byte, readAtOnce)}
		answers []result // to the introduction
	)
	for {
		results, err := in.read(t.conn)
		if !met && refused == nil {
			answers = append(answers, results...)
			life, met, refused = t.meet(s, answers)
			switch {
			case errors.Is(refused, node.ErrAuth):
				s.admitReleases(refused)
				t.conn.SetReadDeadline(time.Now().Add(minSilence))
			case refused != nil:
				return false, refused
			}
		}
		if len(results) > 0 && !s.settle(results, life) {
			t.leave(s)
		}
		clear(results)
		if err == nil && t.leaving.Load() && s.inFlight() == 0 {
			err = io.EOF
		}
		if err == nil {
			err = in.makeRoom(s)
		}
		switch {
		case err != nil && refused != nil:
			return false, refused
		case err != nil:
			return met, networkError(err)
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

// makeRoom makes room for more of a reply that is not whole, unless it is too long.
func (in *incoming) makeRoom(s *server) error {
	in.have = copy(in.buf, in.buf[in.used:in.have])
	if in.have >= maxReply && (in.have >= maxInspect || !s.inspects()) {
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

// meet takes the answers to the introduction. met is whether they are all there, and the
// handshake is done.
func (t *stream) meet(s *server, answers []result) (life *node.Life, met bool, _ error) {
	text, whole, err := introduced(answers)
	if !whole {
		return nil, false, nil
	}
	if life, err = s.handshake([]string{text}, err); err != nil {
		return nil, false, err
	}
	t.life.Store(life)
	s.restore()
	return life, true, nil
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
