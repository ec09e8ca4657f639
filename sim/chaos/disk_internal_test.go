package chaos

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redquorum/redquorum/faults"
	"github.com/redquorum/redquorum/internal/assert"
	"github.com/redquorum/redquorum/internal/tests"
)

func TestSlowDisks(t *testing.T) {
	for _, c := range []struct {
		plan string
		want faults.Set
	}{
		{"at 1s delay c*<n1,n3 1ms", faults.Of(0) | faults.Of(2)},
		{"at 1s delay c*<n1 1ms\nat 2s delay c*<n2 1ms", faults.Of(0) | faults.Of(1)},
		{"at 1s delay c*-n1 1ms", 0},
		{"at 1s delay c*>n1 1ms", 0},
		{"at 1s delay c1<n1 1ms", 0},
		{"at 1s delay c*<n1 1ms\nat 2s heal c1-n1", 0},
		{"at 1s delay c*<n1 1ms\nat 2s full n2 disk", 0},
		{"at 1s delay c*<n1 1ms\nat 2s full n2 memory", faults.Of(0)},
	} {
		assert.Equal(t, slowDisks(parse(t, "nodes 3\nclients 2\n"+c.plan+"\n")), c.want, c.plan)
	}
}

// A server whose disk is slow takes that long for what it writes, and for nothing else. When the disk
// hangs, the server does.
func TestSlowDisk(t *testing.T) {
	tests.NeedServer(t)
	t.Parallel()
	const plan = "nodes 1\nclients 1\nat 1s delay c*<n1 400ms for 1s\nat 3s block n1 for 300ms\n"
	if err := clockWorks(""); err != nil {
		t.Skip(err)
	}
	ctx := t.Context()
	h := startHost(t, plan)
	slow, hang := &h.w.p.Events[0], &h.w.p.Events[1]
	_ = h.admin(func(c *redis.Client) error {
		takes := func(do func() error) time.Duration {
			begun := time.Now()
			assert.NoError(t, do())
			return time.Since(begun)
		}
		write := func() time.Duration { return takes(func() error { return c.Set(ctx, "x", "1", 0).Err() }) }
		read := func() time.Duration { return takes(func() error { return c.Get(ctx, "x").Err() }) }
		// look is what is wrong, as it may be on a busy machine.
		look := func() string {
			before := write()
			h.strike(slow, false)
			slowly, reads := write(), read()
			h.strike(slow, true)
			after := write()
			h.strike(hang, false)
			ended := make(chan struct{})
			time.AfterFunc(hang.For, func() { h.strike(hang, true); close(ended) })
			time.Sleep(hang.For / 10) // the server hangs by now
			hangs := read()
			<-ended
			switch {
			case slowly < slow.Range.Min || max(before, after, reads) > slow.Range.Min/2:
				return fmt.Sprintf("a write takes %v, before %v, after %v; a read takes %v", slowly, before, after, reads)
			case hangs < hang.For/2 || hangs > 2*hang.For:
				return fmt.Sprintf("a read takes %v while the disk hangs", hangs)
			}
			return ""
		}
		wrong := look()
		for try := 1; wrong != "" && try < 5; try++ {
			wrong = look()
		}
		assert.Equal(t, wrong, "")
		return nil
	})
}
