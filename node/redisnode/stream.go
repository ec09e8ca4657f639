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

// carry is the writer. INFO goes first, together with what is queued already:
// its answer comes before all others, so no reply is without its life.
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
		given scriptSet
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
		for rest := batch; len(rest) > 0; rest = rest[rest[0].together:] {
			at, calls := len(out), rest[:rest[0].together]
			for range calls {
				begin = append(begin, at)
			}
			if len(calls) == 1 {
				calls[0].append(&out, calls[0].asText || given.add(calls[0].script()), life)
			} else {
				appendEach(&out, calls, &given, life)
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
		buf     = make([]byte, 16<<10)
		have    int // bytes in buf that have not been understood yet
		replies parser
		results []result
	)
	for {
		n, err := t.conn.Read(buf[have:])
		have += n
		used := 0
		results = results[:0]
		replies.reset()
		for used < have {
			val, n, bad := replies.parse(buf[used:have])
			if bad != nil {
				err = bad
			}
			if n == 0 {
				break
			}
			used += n
			if e, ok := val.(serverReply); ok {
				results = append(results, result{err: e})
			} else {
				results = append(results, result{val: val})
			}
		}
		if !met && len(results) > 0 {
			text, _ := results[0].val.(string)
			var refused error
			if life, refused = s.handshake([]string{text}, results[0].err); refused != nil {
				return false, refused
			}
			t.life.Store(life)
			met = true
			s.restore()
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
		if have > maxReply {
			return met, networkError(errProtocol)
		}
		if have == len(buf) {
			buf = append(buf, make([]byte, len(buf))...)
		}
	}
}
