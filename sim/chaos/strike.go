package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/faults"
	"github.com/redquorum/redquorum/node/redisserver"
)

// This file has what faults do to servers.

// strike begins a fault, or ends it. Work that takes time goes on by itself, in the order
// of the faults.
func (h *host) strike(e *faults.Event, end bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, verb := range h.Strike(e, end) {
		h.do(verb, e, end)
	}
}

// do does what a fault comes to. h.mu is held.
func (h *host) do(verb faults.Verb, e *faults.Event, end bool) {
	switch verb {
	case faults.Crash:
		h.crash()
	case faults.Restart:
		h.later(h.restart)
	case faults.Demote:
		h.later(func(ctx context.Context) { h.demote(ctx, e) })
	case faults.Promote:
		h.later(h.promote)
	case faults.Block:
		if !end {
			go h.block(e.For)
		}
	case faults.Evict, faults.Flush, faults.ScriptFlush:
		h.later(func(ctx context.Context) { h.drop(ctx, e) })
	case faults.Pause, faults.Suspend:
		h.runs(h.Stopped == 0)
	case faults.Starve:
		if !end {
			h.w.tasks.Go(func() { h.starve(e) })
		}
	case faults.Full:
		h.later(h.fill)
	}
}

// later does something after what is under way. h.mu is held, but not by what is done.
func (h *host) later(job func(context.Context)) { h.jobs <- job }

// crash kills the process. h.mu is held.
func (h *host) crash() {
	if h.dead {
		return
	}
	h.dead = true
	if h.lag != nil {
		_ = h.lag.Set(faults.Conduct{Down: true})
	}
	h.server.Load().Kill()
}

// restart lets the host come back with what its crash has left, unless an earlier restart
// did: a crash meanwhile would go unseen.
func (h *host) restart(ctx context.Context) {
	h.mu.Lock()
	dead, mode := h.dead, h.Mode
	if dead {
		h.begun = clock.System().Now()
	}
	h.mu.Unlock()
	if !dead {
		return
	}
	err := h.comeBack(ctx, mode)
	if err != nil && ctx.Err() == nil {
		h.w.fail(fmt.Errorf("%s does not come back: %w", h.name, err))
	}
	h.mu.Lock()
	h.dead = false
	h.runs(h.Stopped == 0)
	lacks := h.Lacks(faults.Disk) || h.Lacks(faults.Memory)
	h.mu.Unlock()
	if lacks {
		h.fill(ctx)
	}
}

func (h *host) comeBack(ctx context.Context, mode faults.Mode) error {
	h.synced.Lock()
	defer h.synced.Unlock()
	s := h.server.Load()
	if h.w.config.Upgrade != "" {
		if err := s.Upgrade(h.w.config.Upgrade); err != nil {
			return err
		}
	}
	switch {
	case mode == faults.Replica && h.replica != nil:
		if err := admin(h.replica, func(c *redis.Client) error { return c.ReplicaOf(ctx, "no", "one").Err() }); err != nil {
			return err
		}
		h.server.Store(h.replica)
		h.replica = nil
		_ = s.Close()
		h.lag.Close()
		return h.startReplica() // for the next time
	case mode == faults.Second:
		if err := h.w.fromDisk(s, h.disk); err != nil {
			return err
		}
	default:
		if err := s.Restart(mode == faults.Empty); err != nil {
			return err
		}
	}
	if h.lag != nil {
		return h.lag.Set(faults.Conduct{})
	}
	return nil
}

// fromDisk starts a server with a copy of what was on a disk.
func (w *world) fromDisk(s *redisserver.Server, disk string) error {
	if err := s.Restart(true); err != nil {
		return err
	}
	if disk == "" { // there was no sync yet
		return nil
	}
	dir := dataDir(context.Background(), s)
	s.Kill()
	for _, name := range []string{"appendonlydir", "appendonly.aof"} {
		os.RemoveAll(filepath.Join(dir, name))
	}
	if err := copyDisk(disk, dir); err != nil {
		return err
	}
	if err := tear(dir); err != nil {
		return err
	}
	return s.Restart(false)
}

// appendFile returns the file of a server that grows with each write.
func appendFile(dir string) string {
	files, err := filepath.Glob(filepath.Join(dir, "appendonlydir", "*.incr.aof"))
	if err != nil || len(files) == 0 {
		return filepath.Join(dir, "appendonly.aof") // before Redis 7
	}
	return files[len(files)-1]
}

// tear leaves a part of a command at the end of an append-only file, as a power failure
// does.
func tear(dir string) error {
	f, err := os.OpenFile(appendFile(dir), os.O_APPEND|os.O_WRONLY, 0)
	if errors.Is(err, os.ErrNotExist) {
		return nil // the server has written nothing yet
	}
	if err != nil {
		return err
	}
	_, err = f.WriteString("*1\r\n$5\r\nMULTI\r\n*3\r\n$4\r\nHSET\r\n$1\r")
	return errors.Join(err, f.Close())
}

// demote makes the server a replica: of a master that is not there, or of one that has
// what it is to have.
func (h *host) demote(ctx context.Context, e *faults.Event) {
	master := "127.0.0.1:1" // nobody listens there
	switch {
	case e.Mode == faults.Durable:
	case e.Source != 0:
		master = h.w.hostAt[bits.TrailingZeros64(uint64(e.Source))].addr()
	default:
		h.synced.Lock()
		other, err := h.w.spare(e.Mode == faults.Second, h.disk)
		h.synced.Unlock()
		if err != nil {
			h.w.fail(fmt.Errorf("no master for %s: %w", h.name, err))
			return
		}
		master = other.Addr()
	}
	where, port, _ := net.SplitHostPort(master)
	_ = h.admin(func(c *redis.Client) error { return c.ReplicaOf(ctx, where, port).Err() }) // it may be down
}

func (h *host) promote(ctx context.Context) {
	_ = h.admin(func(c *redis.Client) error { return c.ReplicaOf(ctx, "no", "one").Err() })
}

// busy is a script that uses the processor for so many seconds.
const busy = `local start = os.clock() while os.clock() - start < tonumber(ARGV[1]) do end`

// block runs a script. One that takes longer, because the processor is shared, is killed:
// that the server allows from five seconds on.
func (h *host) block(d time.Duration) {
	ctx, cancel := context.WithTimeout(h.w.ctx, d)
	defer cancel()
	_ = h.admin(func(c *redis.Client) error { return c.Eval(ctx, busy, nil, d.Seconds()).Err() })
	<-ctx.Done()
	_ = h.admin(func(c *redis.Client) error {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		return c.ScriptKill(ctx).Err()
	})
}

// drop makes the server forget locks, all keys, or all scripts.
func (h *host) drop(ctx context.Context, e *faults.Event) {
	switch e.Verb {
	case faults.Flush:
		_ = h.admin(func(c *redis.Client) error { return c.FlushAll(ctx).Err() })
	case faults.ScriptFlush:
		_ = h.admin(func(c *redis.Client) error { return c.ScriptFlush(ctx).Err() })
	default:
		const evict = `for _, key in ipairs(redis.call('KEYS', '*')) do
	if redis.call('TYPE', key).ok == ARGV[1] then redis.call('DEL', key) end
end`
		_ = h.admin(func(c *redis.Client) error { return c.Eval(ctx, evict, nil, h.w.lockType()).Err() })
	}
}

// runs lets the process go on, or stand still. h.mu is held.
func (h *host) runs(on bool) {
	switch {
	case h.dead:
	case on:
		_ = h.server.Load().Cont()
	default:
		_ = h.server.Load().Stop()
	}
}

// starve lets the process run for a share of each slice, until something else ends that.
func (h *host) starve(e *faults.Event) {
	slice := faults.Slice * time.Duration(max(1, h.w.config.Stretch))
	runs := time.Duration(float64(slice) * float64(e.Ratio) / 1e6)
	for turn := time.Now(); h.starved(e); turn = turn.Add(slice) {
		h.w.sleep(time.Until(turn.Add(runs)))
		h.mu.Lock()
		h.runs(false)
		h.mu.Unlock()
		h.w.sleep(time.Until(turn.Add(slice)))
		h.mu.Lock()
		h.runs(h.Stopped == 0)
		h.mu.Unlock()
	}
}

// starved reports whether the fault goes on.
func (h *host) starved(e *faults.Event) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.Starved == e && !h.dead && h.w.ctx.Err() == nil
}

// fill makes the server refuse writes, as it does without memory or disk, or take them
// again. It may be down: its restart does that again.
func (h *host) fill(ctx context.Context) {
	h.mu.Lock()
	disk, memory := h.Lacks(faults.Disk), map[bool]string{false: "0", true: "1"}[h.Lacks(faults.Memory)]
	h.mu.Unlock()
	_ = h.admin(func(c *redis.Client) error { return c.ConfigSet(ctx, "maxmemory", memory).Err() })
	if disk {
		_ = h.fillDisk(ctx)
	} else {
		_ = h.roomOnDisk(ctx)
	}
}

// heal ends everything that is wrong with the host.
func (h *host) heal() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, verb := range h.Heal() {
		h.do(verb, nil, true)
	}
	h.runs(true)
}
