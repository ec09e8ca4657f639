package chaos

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sys/unix"
)

// A disk is full when the files of a server must not grow: its kernel refuses what is
// written to the append-only file (EFBIG), and Redis does what it does without room
// (ENOSPC).

// survivesFullDisk has the servers that start from now on ignore the signal that ends a
// process whose files must not grow.
func survivesFullDisk() { signal.Ignore(unix.SIGXFSZ) }

// ownKey is of writes that no client has sent. No lock has this name.
const ownKey = "redquorum-chaos"

// ballast makes the append-only file longer than the server's log, which has to grow.
var ballast = strings.Repeat("-", 1<<16)

// fillDisk limits the server's files to the size of its append-only file. Redis notices
// that with a write, which it accepts: so there is one here, which needs no memory.
func (h *host) fillDisk(ctx context.Context) error {
	file := appendFile(h.dataDir(ctx))
	return h.admin(func(c *redis.Client) error {
		_ = c.Set(ctx, ownKey, ballast, 0) // fails if there is no memory
		info, err := os.Stat(file)
		if err != nil {
			return err
		}
		return errors.Join(h.limitFiles(uint64(info.Size())), c.Expire(ctx, ownKey, time.Hour).Err())
	})
}

// roomOnDisk ends the limit. Redis tries the write again that has failed when it has
// anything to do.
func (h *host) roomOnDisk(ctx context.Context) error {
	return errors.Join(h.limitFiles(unix.RLIM_INFINITY),
		h.admin(func(c *redis.Client) error { return c.Info(ctx).Err() }))
}

// limitFiles sets up to which size the files of the server grow.
func (h *host) limitFiles(size uint64) error {
	pid := h.server.Load().PID()
	if pid == 0 { // it is down; prlimit takes 0 for the process that calls
		return os.ErrProcessDone
	}
	var limit unix.Rlimit
	if err := unix.Prlimit(pid, unix.RLIMIT_FSIZE, nil, &limit); err != nil {
		return err
	}
	limit.Cur = min(size, limit.Max)
	return unix.Prlimit(pid, unix.RLIMIT_FSIZE, &limit, nil)
}
