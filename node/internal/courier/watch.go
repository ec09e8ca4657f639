package courier

import (
	"errors"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redquorum/redquorum/node"
)

const (
	// linger is how long a subscription outlives its last watcher: the next waiter for a
	// busy name finds it in place.
	linger = 3 * time.Second

	// A PING goes over the subscription connection this often; when nothing has come for
	// longer than QuietLimit, the connection is dead.
	pingEvery  = 2 * time.Second
	QuietLimit = 5 * time.Second

	sweepEvery = 500 * time.Millisecond

	// refusedFor is for how long a channel that was not permitted is not tried again.
	refusedFor = 30 * time.Second
)

// A watcher keeps one subscription connection for all names of a node. Two goroutines
// serve it, from the first Watch on: the steward, which connects, subscribes and
// unsubscribes, and the reader, which listens.
type watcher struct {
	*background
	route    route
	lifespan *lifespan
	linked   func() bool   // the node has a link: one that is down need not be dialed twice
	kick     chan struct{} // there is something new to subscribe to

	mu      sync.Mutex
	topics  map[string]*topic // by channel
	started bool
	closed  bool
	life    string // the ID of that of the server that is listened to; "": it is not known

	// A server refuses all channels of a command if one is forbidden. After the first
	// refusal each channel has a command of its own.
	apart bool
	asked []string // channels that are not answered yet, in order
}

type topic struct {
	watches   map[*watch]struct{}
	asked     bool      // SUBSCRIBE was sent on the present connection
	confirmed bool      // and answered
	refused   time.Time // or not permitted
	left      time.Time
}

// A watch is one caller of Watch or Listen.
type watch struct {
	mu      sync.Mutex
	wake    func(message string) // "": the subscription has begun
	stopped bool
}

// call wakes unless stop came first. It holds the watch's lock meanwhile, so that stop
// cannot return between the check and the call.
func (w *watch) call(message string) { w.do(func() { w.wake(message) }) }

func (w *watch) do(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.stopped {
		f()
	}
}

func (w *watch) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stopped = true
}

func newWatcher(r route, of *lifespan, linked func() bool) *watcher {
	return &watcher{background: of.background, route: r, lifespan: of, linked: linked,
		kick: make(chan struct{}, 1), topics: map[string]*topic{}}
}

// elsewhere reports whether another server may be listened to than that of this life.
func (w *watcher) elsewhere(life *node.Life) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.life != life.ID
}

// moved reports whether the node leads to another server than the one that is listened
// to.
func (w *watcher) moved() bool {
	life := w.lifespan.current()
	return life != nil && w.route.oneServer() && w.elsewhere(life)
}

func (w *watcher) add(channel string, one *watch) (stop func()) {
	w.mu.Lock()
	if w.closed {
		w.mu.Unlock()
		return func() {}
	}
	if !w.started {
		w.started = true
		w.tasks.Add(1)
		go w.steward()
	}
	t := w.topics[channel]
	if t == nil {
		t = &topic{watches: map[*watch]struct{}{}}
		w.topics[channel] = t
		poke(w.kick)
	}
	t.watches[one] = struct{}{}
	confirmed := t.confirmed
	w.mu.Unlock()
	if confirmed {
		one.call("")
	}
	return func() {
		one.stop()
		w.remove(channel, t, one)
	}
}

// remove ends a watch. A channel without any lingers only if the server was asked for it:
// while a node is down, nothing else would drop it.
func (w *watcher) remove(channel string, t *topic, one *watch) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(t.watches, one)
	if len(t.watches) > 0 {
		return
	}
	t.left = time.Now()
	if !t.asked && w.topics[channel] == t {
		delete(w.topics, channel)
	}
}

func (w *watcher) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	for _, t := range w.topics {
		clear(t.watches)
	}
}

func (w *watcher) steward() {
	defer w.tasks.Done()
	pause := minPause
	for w.ctx.Err() == nil {
		if w.idle() || !w.linked() {
			select {
			case <-w.kick:
			case <-w.ctx.Done():
			}
			continue
		}
		began := time.Now()
		err := w.session()
		w.lost()
		if err != nil && w.ctx.Err() == nil {
			w.note(slog.LevelDebug, "subscription connection ended", "error", show(err))
		}
		if time.Since(began) > lasting {
			pause = minPause
		}
		w.sleep(pause)
		pause = min(2*pause, maxPause)
	}
}

func (w *watcher) idle() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.topics) == 0
}

func (w *watcher) lost() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asked = nil
	for channel, t := range w.topics {
		t.asked, t.confirmed = false, false
		if len(t.watches) == 0 {
			delete(w.topics, channel)
		}
	}
}

func (w *watcher) session() error {
	channels, _ := w.changes()
	if len(channels) == 0 {
		return nil
	}
	first := channels
	w.mu.Lock()
	if w.apart {
		first = channels[:1]
		w.asked = append(w.asked, first...)
	}
	w.mu.Unlock()
	sub, life, err := w.route.subscribe(w.ctx, first)
	if err != nil {
		return err
	}
	w.mu.Lock()
	w.life = life
	w.mu.Unlock()
	broken := make(chan error, 1)
	go func() { broken <- w.read(sub) }()
	if err = w.subscribe(sub, channels[len(first):]); err == nil {
		err = w.keep(sub, broken)
	}
	sub.Close() // ends the reader, if it has not ended
	return errors.Join(err, <-broken)
}

// keep adjusts the subscriptions and sends PINGs until the connection breaks, or the node
// leads to another server.
func (w *watcher) keep(sub Subscription, broken chan error) error {
	sweep := time.NewTicker(sweepEvery)
	defer sweep.Stop()
	pinged := time.Now()
	for {
		select {
		case err := <-broken:
			broken <- err
			return nil
		case <-w.ctx.Done():
			return nil
		case <-w.kick:
		case <-sweep.C:
			if time.Since(pinged) > pingEvery {
				pinged = time.Now()
				if err := sub.Ping(); err != nil {
					return err
				}
			}
		}
		if w.moved() {
			return errMoved
		}
		if err := w.adjust(sub); err != nil {
			return err
		}
	}
}

// adjust subscribes to new channels and unsubscribes from those without a watch for a
// while.
func (w *watcher) adjust(sub Subscription) error {
	add, drop := w.changes()
	if len(drop) > 0 {
		if err := sub.Unsubscribe(drop...); err != nil {
			return err
		}
	}
	return w.subscribe(sub, add)
}

func (w *watcher) subscribe(sub Subscription, channels []string) error {
	w.mu.Lock()
	each := len(channels)
	if w.apart {
		each = 1
		w.asked = append(w.asked, channels...)
	}
	w.mu.Unlock()
	for len(channels) > 0 {
		if err := sub.Subscribe(channels[:each]...); err != nil {
			return err
		}
		channels = channels[each:]
	}
	return nil
}

func (w *watcher) changes() (add, drop []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for channel, t := range w.topics {
		switch {
		case len(t.watches) == 0 && time.Since(t.left) > linger:
			delete(w.topics, channel)
			if t.asked {
				drop = append(drop, channel)
			}
		case !t.asked:
			t.asked = true
			add = append(add, channel)
		case !t.refused.IsZero() && time.Since(t.refused) > refusedFor:
			t.refused = time.Now()
			add = append(add, channel)
		}
	}
	return add, drop
}

func (w *watcher) read(sub Subscription) error {
	for {
		channel, message, err := sub.Receive()
		switch {
		case err == nil:
			w.wake(channel, message)
		case !w.refused(err):
			return err
		}
	}
}

// refused notes that the server does not permit a channel. It reports whether it is known
// which one: then the session goes on for the others.
func (w *watcher) refused(err error) bool {
	if !fromServer(err) || !strings.HasPrefix(err.Error(), "NOPERM") || !strings.Contains(err.Error(), "channel") {
		return false
	}
	w.mu.Lock()
	if !w.apart || len(w.asked) == 0 {
		w.apart = true
		w.mu.Unlock()
		return false
	}
	channel := w.asked[0]
	w.asked = w.asked[1:]
	t := w.topics[channel]
	first := t != nil && t.refused.IsZero()
	if t != nil {
		t.refused = time.Now()
	}
	w.mu.Unlock()
	if first {
		w.note(slog.LevelWarn, "pub/sub channel not permitted by ACL; falling back to polling",
			"channel", channel, "error", serverError(err))
	}
	return true
}

// wake calls the watches of a channel, with a message, or with none when the subscription
// has begun.
func (w *watcher) wake(channel, message string) {
	w.mu.Lock()
	if message == "" && len(w.asked) > 0 && w.asked[0] == channel {
		w.asked = w.asked[1:]
	}
	t := w.topics[channel]
	if t == nil {
		w.mu.Unlock()
		return
	}
	if message == "" {
		t.confirmed, t.refused = true, time.Time{}
	}
	list := slices.Collect(maps.Keys(t.watches))
	w.mu.Unlock()
	rand.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	for _, one := range list {
		one.call(message)
	}
}
