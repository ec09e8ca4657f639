package redisnode

import (
	"io"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/redquorum/redquorum/node"
)

// restAfter is for how long a connection may rest before INFO goes over it once
// more. That keeps middle boxes from forgetting the connection, and notices if
// they did.
const restAfter = 15 * time.Second

// readAtOnce is how much is read at once, unless a reply is longer.
const readAtOnce = 16 << 10

// A stream is the link of a direct route: one connection, written by the courier
// and read by a goroutine of its own, with as many calls in flight as there
// are. Replies come in the order of the commands, so they need no names. It is
// never used again after an error.
type stream struct {
	route *direct
	conn  *wire
	life  atomic.Pointer[node.Life] // of the server, from the handshake on

	// leaving: no more is sent, and the stream ends when nothing is in flight.
	leaving atomic.Bool
}

func (t *stream) abort() { t.conn.SetReadDeadline(time.Unix(1, 0)) }

func (t *stream) close() { t.route.drop(t.conn) }

// leave ends the sending. What is in flight may still be answered.
func (t *stream) leave(s *server) {
	t.leaving.Store(true)
	if s.inFlight() == 0 {
		t.abort()
	}
}

// carry is the writer. The introduction goes first, together with what is queued already:
// its answers come before all others, so no reply is without its life.
func (t *stream) carry(s *server) (met bool, err error) {
	s.introduce(t.route.patience)
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
	var (
		batch []*call
		begin []int // where in out each call of batch begins
		out   words
		given = make(scriptSet)
	)
	used := time.Now()
	for {
		switch s.await(ticker.C, ended) {
		case over:
			t.abort()
			return
		case idle:
			if time.Since(used) >= restAfter {
				s.introduce(t.route.patience)
			}
			continue
		}
		if t.leaving.Load() {
			return
		}
		// Let those who are about to say something say it: with 64 callers that
		// saves half of the system calls.
		runtime.Gosched()
		batch, begin, out = s.take(batch), begin[:0], out[:0]
		life := ""
		if known := t.life.Load(); known != nil {
			life = known.ID
		}
		for rest := batch; len(rest) > 0; rest = rest[rest[0].size():] {
			at, calls := len(out), rest[:rest[0].size()]
			for range calls {
				begin = append(begin, at)
			}
			if calls[0].together == 0 {
				calls[0].append(&out, calls[0].asText || calls[0].row != nil && given.add(calls[0].row.script), life)
			} else {
				appendEach(&out, calls, given, life)
			}
		}
		clear(batch) // they may be settled and used again as soon as they are sent
		used = time.Now()
		n, err := t.conn.Write(out)
		if err == nil {
			continue
		}
		unsent := 0
		for _, at := range begin {
			if at >= n {
				unsent++
			}
		}
		s.giveBack(unsent)
		t.leave(s)
		return
	}
}

// read settles what comes back until the stream ends, and says why it does.
func (t *stream) read(s *server) (met bool, _ error) {
	var (
		life    *node.Life
		buf     = make([]byte, readAtOnce)
		have    int // bytes in buf that have not been understood yet
		replies parser
		results []result
		answers []result // to the introduction
	)
	for {
		n, err := t.conn.Read(buf[have:])
		have += n
		var used int
		var bad error
		if results, used, bad = replies.results(buf[:have], results[:0]); bad != nil {
			err = bad
		}
		if !met {
			answers = append(answers, results...)
			var refused error
			if life, met, refused = t.meet(s, answers); refused != nil {
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
		if err != nil {
			return met, networkError(err)
		}
		have = copy(buf, buf[used:have])
		if have >= maxReply && (have >= maxInspect || !s.inspects()) {
			return met, networkError(errTooLong)
		}
		if have == 0 {
			buf = buf[:readAtOnce]
		}
		if have == len(buf) {
			buf = append(buf, make([]byte, len(buf))...)
		}
	}
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
