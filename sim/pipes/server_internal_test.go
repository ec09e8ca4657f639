package pipes

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/redquorum/redquorum/faults"
	"github.com/redquorum/redquorum/internal/assert"
)

// A subscription on a closed connection leaves no goroutine behind.
func TestNothingAfterTheEnd(t *testing.T) {
	p := assert.Got(faults.Parse("redquorum plan 1\nnodes 1\n"))(t)
	synctest.Test(t, func(*testing.T) {
		w := &world{p: p, begun: time.Now()}
		s := newRedis(w, 0)
		c := &conn{l: &link{w: w}, s: s}
		c.up, c.down = newPipe(c, toNode), newPipe(c, toClient)
		s.connect(c)
		s.disconnect(c)
		s.execute(c, []string{"SUBSCRIBE", "x"}, "")
		s.close()
	})
}
