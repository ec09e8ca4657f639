package courier

import (
	"log/slog"
	"math/rand/v2"
	"time"
)

const (
	// Attempts to connect to a node that is down are this far apart, doubling, times a
	// random factor between a half and one. So are links that do not last.
	minPause, maxPause = 5 * time.Millisecond, 500 * time.Millisecond

	// When nobody has asked for a while they go on doubling: see quietAfter.
	maxQuiet = 15 * time.Second

	lasting = time.Second
)

// A keeper makes one link after the other, and has each carry the calls of the queue.
type keeper struct {
	*background
	route    route
	queue    *queue
	lifespan *lifespan
	follow   *followers
	watch    *watcher
}

func (k *keeper) run() {
	defer k.tasks.Done()
	pause := minPause
	for k.ctx.Err() == nil {
		began := time.Now()
		met, err := k.converse()
		switch {
		case met && time.Since(began) > lasting:
			pause = minPause
			continue
		case met: // links that do not last may follow each other forever
			pause = min(pause, maxPause)
			k.sleep(pause)
		case k.fail(err):
			pause = min(pause, maxQuiet)
			k.rest(pause)
		default:
			pause = min(pause, maxPause)
			k.rest(pause)
		}
		pause *= 2
	}
}

// converse makes a link and uses it. It reports whether the handshake was done, or why
// not.
func (k *keeper) converse() (met bool, err error) {
	l, texts, err := k.route.open(k.ctx)
	if err != nil {
		return false, handshakeError(err, k.route.renews())
	}
	defer l.drop()
	life, err := k.lifespan.handshake(texts)
	if err != nil {
		return false, err
	}
	carry := func() error { return l.carry(k.queue, k.watch.idle, life) }
	if k.follow.count == 0 {
		if k.route.oneServer() {
			k.lifespan.noteReplicas(texts[0])
		}
		k.restore(l, nil)
		k.queue.abandon(carry())
		return true, nil
	}
	r, err := replicate(k.ctx, k.queue, k.follow, l.(*stream), life, texts[0])
	if err != nil {
		return false, err
	}
	k.restore(l, r)
	k.queue.abandon(r.during(carry))
	return true, nil
}

// fail has the queue refuse commands because of err. quiet is as with queue.refuse.
func (k *keeper) fail(err error) (quiet bool) {
	quiet, first := k.queue.refuse(err)
	if first {
		k.note(slog.LevelWarn, "node is down", "error", err)
	}
	return quiet
}

func (k *keeper) restore(l link, h holder) {
	failed := k.queue.accept(l.abort, h)
	poke(k.watch.kick)
	if failed {
		k.note(slog.LevelInfo, "node is up again")
	}
}

// rest waits for about d, or until Close, or for a command.
func (k *keeper) rest(d time.Duration) {
	t := time.NewTimer(d/2 + rand.N(d/2+1))
	defer t.Stop()
	k.queue.await(t.C, nil)
}
