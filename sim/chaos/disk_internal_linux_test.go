package chaos

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sys/unix"

	"github.com/redquorum/redquorum/faults"
	"github.com/redquorum/redquorum/internal/assert"
	"github.com/redquorum/redquorum/internal/tests"
	"github.com/redquorum/redquorum/sim"
)

// A server whose disk is full refuses writes because it could not write, and says so. It
// answers what reads. When there is room it takes writes again, and has lost nothing.
func TestFullDisk(t *testing.T) {
	tests.NeedServer(t)
	t.Parallel()
	ctx := t.Context()
	disk := &faults.Event{Verb: faults.Full, Mode: faults.Disk}
	memory := &faults.Event{Verb: faults.Full, Mode: faults.Memory}
	h := startHost(t, "nodes 1\nclients 1\nat 1s full n1 disk for 1s\n")
	strike := func(e *faults.Event, end bool) {
		h.strike(e, end)
		(<-h.jobs)(ctx)
	}
	_ = h.admin(func(c *redis.Client) error {
		assert.NoError(t, c.Set(ctx, "x", "before", 0).Err())
		strike(disk, false)
		strike(memory, false) // the end of one of them is not that of the other
		strike(memory, true)
		for range 3 {
			if err := c.Set(ctx, "x", "full", 0).Err(); err == nil || !strings.Contains(err.Error(), "MISCONF") || !strings.Contains(err.Error(), "File too large") {
				t.Errorf("a write: %v", err)
			}
		}
		have, err := c.Get(ctx, "x").Result()
		assert.That(t, have == "before", "it has %q, %v", have, err)
		said, err := os.ReadFile(filepath.Join(h.dataDir(ctx), "output"))
		assert.That(t, strings.Contains(string(said), "File too large"), "its log, %v:\n%s", err, said)
		strike(disk, true)
		err = c.Set(ctx, "x", "after", 0).Err()
		assert.That(t, err == nil, "there is room: %v", err)
		return nil
	})
	assert.Succeed(t, h.server.Load().Restart(false))
	_ = h.admin(func(c *redis.Client) error {
		assert.Equal(t, c.Get(ctx, "x").Val(), "after", "after a restart it has")
		strike(disk, false)
		h.strike(&faults.Event{Verb: faults.Restart}, false)
		(<-h.jobs)(ctx)
		assert.Says(t, c.Set(ctx, "x", "full", 0).Err(), "MISCONF", "after a restart on a full disk")
		return nil
	})
}

// A disk without room for the log of the faults is one error, not one for each of them.
func TestNoRoomForFaults(t *testing.T) {
	w := &world{dir: t.TempDir(), entries: make([]sim.Entry, 1000)}
	assert.Succeed(t, os.Symlink("/dev/full", filepath.Join(w.dir, "faults.jsonl")))
	_, err := w.gather()
	assert.That(t, errors.Is(err, unix.ENOSPC) && !strings.Contains(err.Error(), "\n"), "%.300v", err)
}
