package quorum

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/node"
)

// Each row is a rule of who may ask the nodes, among those that want one name in one process.
func TestQueueAdmits(t *testing.T) {
	plain, fair, several := settings{wait: -1}, settings{wait: -1, fair: true}, settings{wait: -1}
	several.names = []string{"x", "y"}
	reader, writer, try, tryRead := settings{wait: -1}, settings{wait: -1}, settings{}, settings{}
	reader.mode, writer.mode, tryRead.mode = node.Read, node.Write, node.Read
	for _, row := range []struct {
		says  string
		held  node.Mode // by a lease here, if taken
		taken bool
		queue []settings // waiters before it
		asks  settings
		want  bool
	}{
		{says: "the only waiter asks", asks: plain, want: true},
		{says: "a second waiter does not", queue: []settings{plain}, asks: plain},
		{says: "a waiter behind a holder does not", taken: true, asks: plain},
		{says: "a fair waiter does, for it needs a place", taken: true, asks: fair, want: true},
		{says: "a waiter for several names does, too", taken: true, asks: several, want: true},
		{says: "a reader behind a reader asks", queue: []settings{reader}, asks: reader, want: true},
		{says: "a reader behind a holder that reads asks", taken: true, held: node.Read, asks: reader, want: true},
		{says: "a writer behind a reader that waits does not", queue: []settings{reader}, asks: writer},
		{says: "a writer behind a holder that reads does, to keep new readers out", taken: true, held: node.Read, asks: writer, want: true},
		{says: "a writer behind a holder that writes does not", taken: true, held: node.Write, asks: writer},
		{says: "a reader behind a writer that waits does not", queue: []settings{writer}, asks: reader},
		{says: "a waiter for several names blocks nobody", queue: []settings{several}, asks: plain, want: true},
		{says: "TryLock does not look at waiters", queue: []settings{plain, fair}, asks: try, want: true},
		{says: "TryLock looks at holders", taken: true, asks: try},
		{says: "TryLock of a reader yields to a writer that waits", queue: []settings{writer}, asks: tryRead},
	} {
		at := new(queue)
		if row.taken {
			at.enter(&hold{mode: row.held})
		}
		for i := range row.queue {
			at.waiters = append(at.waiters, &waiter{request: &row.queue[i]})
		}
		w := &waiter{request: &row.asks}
		if row.asks.wait != 0 {
			at.waiters = append(at.waiters, w)
		}
		if got := at.admits(w); got != row.want {
			t.Errorf("%s: %v", row.says, got)
		}
	}
}

// Close waits for operations under way, and lets no other begin.
func TestLifecycle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		life := lifecycle{idle: clock.Runtime().NewSignal()}
		if !life.enter() || !life.close() || life.close() || life.enter() {
			t.Fatal("an operation begins before the end, and none after it; there is one end")
		}
		go func() {
			time.Sleep(time.Minute)
			life.leave()
		}()
		began := time.Now()
		life.awaitIdle()
		if took := time.Since(began); took != time.Minute {
			t.Errorf("waited for %v", took)
		}
	})
}
