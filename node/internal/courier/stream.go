package courier

import (
	"io"
	"runtime"
	"slices"
	"sync/atomic"
	"time"

	"github.com/redquorum/redquorum/node"
)

const (
	tick = time.Second

	// An idle connection is asked for its role after restAfter. That keeps middle boxes
	// from forgetting the connection, and notices if they did.
	restAfter = 15 * time.Second

	// roleEvery is how often a server is asked while commands go to it: the first command
	// of a batch follows the question. A replica that takes writes refuses no command.
	roleEvery = 100 * time.Millisecond
)

// A stream is the link of a direct route: one pipelined connection, written by the keeper
// and read by a goroutine of its own. Replies come in the order of the commands. It is
// never used again after an error.
type stream struct {
	*wire
	route  *direct
	begins []int            // where in out each call begins
	given  map[*script]bool // that the server has, once all is sent

	// leaving: no more is sent, and the stream ends when nothing is in flight.
	leaving atomic.Bool
}

func (t *stream) abort() { t.SetReadDeadline(time.Unix(1, 0)) }

func (t *stream) drop() { t.Close() }

// leave ends the sending. Calls in flight may still be answered.
func (t *stream) leave(q *queue) {
	t.leaving.Store(true)
	if q.inFlight() == 0 {
		t.abort()
	}
}

// carry is the writer.
func (t *stream) carry(q *queue, unused func() bool, life *node.Life) (err error) {
	ended := make(chan struct{})
	go func() {
		err = t.readAll(q, life)
		t.Close() // ends a Write
		close(ended)
	}()
	t.write(q, unused, life, ended)
	<-ended
	return err
}

func (t *stream) write(q *queue, unused func() bool, life *node.Life, ended <-chan struct{}) {
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	var batch []*call
	asked := q.clock.Now() // it counts the time for which the machine was suspended
	for {
		switch work, over := q.await(ticker.C, ended); {
		case over:
			t.abort()
			return
		case !work && q.clock.Now().Sub(asked) < restAfter && unused():
			continue
		}
		if t.leaving.Load() {
			return
		}
		// Let other goroutines queue the commands that they are about to submit: with 64
		// callers that saves half of the system calls.
		runtime.Gosched()
		if now := q.clock.Now(); now.Sub(asked) >= roleEvery {
			asked = now
			q.askRole(t.route.Timeout)
		}
		if batch = q.take(batch); len(batch) == 0 {
			continue
		}
		t.encode(batch, life)
		clear(batch) // they may be settled and used again as soon as they are sent
		if n, err := t.Write(t.out); err != nil {
			q.giveBack(t.unsent(n))
			t.leave(q)
			return
		}
	}
}

// encode makes out the commands of batch. life is the server's, nil if it is not known.
func (t *stream) encode(batch []*call, life *node.Life) {
	t.out, t.begins = t.out[:0], t.begins[:0]
	id := ""
	if life != nil {
		id = life.ID
	}
	for rest := batch; len(rest) > 0; rest = rest[rest[0].size():] {
		first, calls := rest[0], rest[:rest[0].size()]
		for range calls {
			t.begins = append(t.begins, len(t.out))
		}
		if first.together > 0 {
			t.appendEach(calls, id)
		} else {
			first.append(&t.out, first.asText || first.row != nil && t.lacks(first.row.script), id)
		}
	}
}

// appendEach appends the Redis command of a group to out, as append does for one call.
func (t *stream) appendEach(calls []*call, life string) {
	w, n, one := &t.out, len(calls), calls[0]
	script, keys, args := acquireEachScript, 2*n, 2+2*n
	if one.kind == node.Release {
		script, keys, args = releaseEachScript, 3*n, 2+4*n
	}
	w.run(script, t.lacks(script) || slices.ContainsFunc(calls, func(c *call) bool { return c.asText }), keys, args)
	for _, c := range calls {
		w.text(c.claims[0].Name)
	}
	for _, c := range calls {
		c.write(w, fenceKey, &c.claims[0])
	}
	if one.kind == node.Acquire {
		w.number(one.ttl)
		w.number(one.retention)
		for _, c := range calls {
			w.text(c.claims[0].Owner)
			w.number(int64(c.claims[0].Token))
		}
		return
	}
	for _, c := range calls {
		c.write(w, queueKey, &c.claims[0])
	}
	w.number(one.retention)
	w.text(life)
	for _, c := range calls {
		next := c.handover
		if !c.handsOver(life) {
			next = 0
		}
		w.text(c.claims[0].Owner)
		w.number(int64(c.claims[0].Token))
		c.write(w, channelArg, &c.claims[0])
		w.number(int64(next))
	}
}

// lacks reports whether the server was not given a script yet. It gets it now.
func (t *stream) lacks(one *script) bool {
	lacks := !t.given[one]
	t.given[one] = true
	return lacks
}

// unsent is how many calls are not among the first n bytes, not even in part.
func (t *stream) unsent(n int) (calls int) {
	for _, at := range t.begins {
		if at >= n {
			calls++
		}
	}
	return calls
}

func (t *stream) readAll(q *queue, life *node.Life) error {
	for {
		results, err := t.read()
		if len(results) > 0 && !q.settle(results, life) {
			t.leave(q)
		}
		clear(results)
		if err == nil && t.leaving.Load() && q.inFlight() == 0 {
			err = io.EOF
		}
		if err == nil {
			err = t.makeRoom()
		}
		if err != nil {
			return networkError(err)
		}
	}
}
