package courier

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/replicas"
	"github.com/redquorum/redquorum/internal/resp"
	"github.com/redquorum/redquorum/node"
)

const (
	// roundWait bounds how long a round waits; then the next one follows.
	roundWait = 100 * time.Millisecond

	// The round of a lone caller goes over the link if the last round was quick. It waits
	// for loneWait at most, as it blocks what follows.
	quick    = 5 * time.Millisecond
	loneWait = 10 * time.Millisecond

	// While a round may not count because of an age below settled, rounds wait for all
	// replicas, for patience at most: a yes of a replica that came a moment ago is worth
	// little. If that was in vain they do not for vainFor.
	settled  = time.Hour
	patience = 200 * time.Millisecond

	// unsaid is how long a round takes at least in which too few replicas acknowledge.
	unsaid  = 20 * time.Millisecond
	vainFor = time.Second

	// coarseAge keeps the life of a yes from changing each time that an age is known more
	// exactly. Above settled it only gets younger.
	coarseAge = 100 * time.Millisecond
)

// The followers of a node's server are the same whatever link it has.
type followers struct {
	count replicas.Count // that there are; 0: none are needed for a yes
	away  bool           // too few are there: it is not worth to wait for them. Guarded by the queue's mu.
}

// A replication holds back each yes of a primary until enough of its replicas have it,
// and answers it otherwise with an error. It belongs to one link, and has a connection of
// its own to the same server, as WAIT blocks a connection. docs/connection.md describes
// its rounds. All that was answered before a round was sent is below the offset that the
// round begins with. If the replid is still that of the link's handshake, the server has
// been a master from then to the round, without a promotion.
//
// Of primary and replicas a majority is needed. A replica follows one server at a time,
// so two servers cannot both have a majority. But one may have moved here a moment ago,
// and have confirmed a lock to another server before. So if not all replicas are needed,
// a yes counts only those that have followed for long enough: its Life is Born when the
// youngest of them began to. Package quorum's guards of restarted servers do the rest,
// for renewals as well (spec/Replicas.tla).
type replication struct {
	queue  *queue
	node   *followers
	link   *stream
	conn   *wire
	kick   chan struct{} // there is something to do
	met    *node.Life    // as of the handshake
	replid string        // likewise
	count  replicas.Count
	need   int // of these
	size   int // of a round, in replies
	began  clock.Instant

	// Guarded by the queue's mu.
	yes   *node.Life // the life of a yes
	held  []held
	holds int                      // how many were held so far
	short error                    // why the last round was short; nil if it was not
	left  error                    // why the link is left
	quick bool                     // the last round was
	lone  *call                    // the round that is in flight over the link
	found round                    // by that
	since map[string]clock.Instant // by the ID of a replica's connection: since when it follows, at the latest
	whose map[string]string        // by the same: the address of the replica, where it is known
	young bool                     // a round should wait for all replicas
	retry clock.Instant            // but not before
}

// awaitsReplicas is the kind of the call that stands for a round over the link.
const awaitsReplicas node.Kind = 255

var errMoved = fmt.Errorf("%w: its address leads to another server now, "+
	"or the server was promoted or demoted", node.ErrUnreachable)

func replicate(ctx context.Context, q *queue, of *followers, t *stream, life *node.Life,
	text string) (*replication, error) {
	r := &replication{queue: q, node: of, link: t, kick: make(chan struct{}, 1), met: life, yes: life,
		replid: field(text, "master_replid"), count: of.count, need: of.count.Needed(), size: 4, began: q.clock.Now()}
	if r.count.Aged() {
		r.size = 7
	}
	if life == nil || r.replid == "" {
		return nil, fmt.Errorf("%w: it does not tell its run_id, uptime or master_replid", node.ErrUnsupported)
	}
	w, answers, err := t.route.begin(ctx, []string{"info", "server"})
	if err != nil {
		return nil, handshakeError(err, t.route.renews())
	}
	r.conn = w
	found, err := r.ask(0, 0)
	if said, _ := answers[0].val.(string); field(said, "run_id") != life.ID {
		err = errMoved
	}
	if err != nil {
		w.Close()
		return nil, err
	}
	r.conclude(found, 0, quick, all)
	return r, nil
}

func (r *replication) open() int         { return len(r.held) }
func (r *replication) of(id string) bool { return r.met.ID == id }
func (r *replication) life() *node.Life  { return r.yes }

func (r *replication) hold(h held) {
	r.holds++
	h.number = r.holds
	r.held = append(r.held, h)
	r.queue.arm(h.deadline)
	if h.turn || r.lone == nil {
		poke(r.kick)
	}
}

func (r *replication) answer(list []unanswered, err error, goes func(*held) bool) []unanswered {
	r.held = slices.DeleteFunc(r.held, func(h held) bool {
		if !goes(&h) {
			return false
		}
		if h.with.Life = r.yes; err != nil {
			h.with = node.Reply{Err: err}
		}
		list = append(list, unanswered{h.reply, h.with})
		return true
	})
	return list
}

func (r *replication) expire(list []unanswered, now, next clock.Instant) ([]unanswered, clock.Instant) {
	list = r.answer(list, cmp.Or(r.short, node.ErrTimeout), func(h *held) bool { return h.deadline <= now })
	for i := range r.held {
		next = min(next, r.held[i].deadline)
	}
	return list, next
}

func (r *replication) run(ended <-chan struct{}) error {
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	for latest := r.began; ; {
		due := false
		select {
		case <-r.kick:
		case <-ticker.C: // a primary that was deposed may refuse for long
			due = r.queue.heardSince(latest)
		case <-ended:
			return nil
		}
		for {
			want, wait, last, ok := r.plan()
			if !ok && !due {
				break
			}
			due = false
			began := time.Now()
			latest = r.queue.clock.Now()
			found, err := r.ask(want, wait)
			if err != nil {
				return err
			}
			took := time.Since(began)
			r.conclude(found, want, took, func(h *held) bool { return h.number <= last })
			if want > 0 && found.Have < r.need { // WAIT may have counted one replica twice, and returned at once
				r.queue.sleep(max(0, unsaid-took))
			}
		}
	}
}

// plan says for how many replicas the next round waits and for how long, and up to which
// number it decides. It reports whether replies are held.
func (r *replication) plan() (want int, wait time.Duration, last int, holds bool) {
	r.queue.mu.Lock()
	defer r.queue.mu.Unlock()
	now := r.queue.clock.Now()
	for i := range r.held {
		wait = max(wait, min(roundWait, r.held[i].deadline.Sub(now)))
	}
	switch {
	case r.node.away || len(r.held) == 0:
		return 0, 0, r.holds, len(r.held) > 0
	case r.patient(now):
		r.retry = now.Add(vainFor)
		return len(r.since), min(wait, patience), r.holds, true
	}
	return r.need, wait, r.holds, true
}

func (r *replication) patient(now clock.Instant) bool { return r.young && now >= r.retry }

func (r *replication) conclude(found round, want int, took time.Duration, of func(*held) bool) {
	q := r.queue
	q.mu.Lock()
	open, was := r.decide(found, want, took, of), r.node.away
	away := found.Present < r.need
	r.node.away = away
	if away && q.clock.Now().Sub(r.began) > lasting {
		r.left = r.short
	}
	leave := r.left != nil
	q.mu.Unlock()
	tell(open)
	switch {
	case away && !was:
		q.note(slog.LevelWarn, "too few replicas follow the server", "follow", found.Present, "needed", r.need)
	case was && !away:
		q.note(slog.LevelInfo, "enough replicas follow the server again")
	}
	if leave {
		r.link.leave(q) // the address may lead to another server by now
	}
}

// decide returns the replies that are to be given after a round. The queue's mu is held.
func (r *replication) decide(found round, want int, took time.Duration, of func(*held) bool) (open []unanswered) {
	switch {
	case r.count.Judge(found.Said) == replicas.Enough:
		r.short, r.quick = nil, took < quick
		r.ages(found)
		if r.patient(r.queue.clock.Now()) { // the next round may show that older ones have it
			r.quick = false
			return nil
		}
		return r.answer(nil, nil, of)
	case want == 0 && found.Present >= r.need: // it was not to wait
		return nil
	}
	r.quick = false
	r.short = fmt.Errorf("%w: only %d of %d replicas have it", node.ErrUnreplicated, found.Have, r.count)
	if found.Present < r.need {
		open = r.answer(nil, r.short, of)
	}
	return open
}

// ages learns since when the replicas follow that are needed, if so many have what a
// round was for. CLIENT LIST tells the ages of their connections, but not always whose
// they are: see tellApart. The queue's mu is held.
func (r *replication) ages(found round) {
	if !r.count.Aged() {
		return
	}
	now := r.queue.clock.Now()
	r.tellApart(found)
	seen := make(map[string]clock.Instant, len(found.connections))
	var since, may []clock.Instant
	for id, c := range found.connections {
		if c.silent {
			continue
		}
		before, known := r.since[id]
		if !known {
			before = clock.Never
		}
		at := replicas.Since(now, c.age, before)
		seen[id] = at
		since = append(since, at)
		if addr, known := r.whose[id]; !known || found.Has[addr] {
			may = append(may, at)
		}
	}
	born := r.count.Youngest(now, found.Have, may)
	best := born
	if len(may) >= found.Have {
		best = r.count.Youngest(now, len(since), since) // if all had it
	}
	if born == best {
		r.retry = now
	}
	r.since, r.young = seen, born > best && now.Sub(born) < settled
	born = max(born, r.met.Born)
	if older := born < r.yes.Born.Add(-coarseAge) && now.Sub(r.yes.Born) < settled; older || born > r.yes.Born {
		r.yes = &node.Life{ID: r.met.ID, Born: born}
	}
}

// tellApart learns whose connections they are. Each is of one replica for as long as it
// lasts, so the last one that is not known is of the last replica. The queue's mu is
// held.
func (r *replication) tellApart(found round) {
	whose, left, last := make(map[string]string), slices.Clone(found.Addrs), []string(nil)
	for id := range found.connections {
		if addr, known := r.whose[id]; known {
			whose[id] = addr
			if i := slices.Index(left, addr); i >= 0 {
				left = slices.Delete(left, i, i+1)
			}
		} else if !found.connections[id].silent { // it may be a backup
			last = append(last, id)
		}
	}
	if len(last) == 1 && len(left) == 1 {
		whose[last[0]] = left[0]
	}
	r.whose = whose
}

func (r *replication) join(batch []*call) []*call {
	q, n, now := r.queue, len(batch), r.queue.clock.Now()
	if n == 2 && batch[0].kind == asksRole {
		n = 1
	}
	if n != 1 || !r.quick || r.patient(now) || len(r.held) > 0 || q.flight.len() > 0 || q.waiting.len() > 0 {
		return batch
	}
	switch batch[len(batch)-1].kind {
	case node.Acquire, node.Extend, node.Downgrade, node.Rename:
		r.lone = &call{kind: awaitsReplicas, round: r.appendLone, answered: true, sent: now,
			deadline: now.Add(loneWait)}
		r.found = round{}
		return append(batch, r.lone)
	}
	return batch
}

// settle decides when it has taken the last reply to a round over the link.
func (r *replication) settle(got result, to *settlement) {
	err := r.found.add(got)
	if r.found.replies < r.size {
		return
	}
	r.queue.flight.pop()
	r.lone, r.quick = nil, false
	if err == nil && r.judge(&r.found) == nil {
		to.open = append(to.open, r.decide(r.found, r.need, 0, func(h *held) bool { return !h.turn })...)
	}
	if !r.quick {
		poke(r.kick) // the next round finds out why
	}
}

func (r *replication) during(carry func() error) error {
	ended, done := make(chan struct{}), make(chan error, 1)
	go func() {
		err := r.run(ended)
		select {
		case <-ended:
			err = nil
		case <-r.queue.ctx.Done():
			err = nil
		default:
			r.queue.note(slog.LevelWarn, "replicas cannot be asked for", "error", show(err))
			r.link.abort()
		}
		done <- err
	}()
	err := carry()
	close(ended)
	r.conn.Close()
	why := <-done
	return cmp.Or(why, r.left, err)
}

// publishNothing is a write that reaches the replicas and no disk. Since Redis 7.2 and in
// Valkey WAIT waits for the last write of its own connection, not for those of others.
var publishNothing = []string{"publish", node.WaiterPrefix + "replicas", ""}

func (r *replication) appendRound(w *words, want int, wait time.Duration) {
	w.command("info", "replication")
	w.command(publishNothing...)
	w.command("wait", strconv.Itoa(want), strconv.FormatInt(max(1, wait.Milliseconds()), 10))
	if !r.count.Aged() {
		w.command("info", "replication")
		return
	}
	w.command("multi") // so that both are of one moment
	w.command("info", "replication")
	w.command("client", "list", "type", "replica")
	w.command("exec")
}

func (r *replication) appendLone(w *words) { r.appendRound(w, r.need, loneWait) }

type round struct {
	replies       int
	before, after string // the first and the last

	replicas.Said
	connections map[string]connection // of replicas, by ID
}

// A connection is one between a primary and a replica.
type connection struct {
	age    time.Duration // in whole seconds
	silent bool          // it has acknowledged nothing: the replica is still being given a copy
}

func (p *round) add(got result) error {
	text, _ := got.val.(string)
	list, _ := got.val.([]any) // of EXEC
	for _, part := range list {
		if err, ok := part.(error); ok {
			got.err = err
		}
		one, _ := part.(string)
		text += one
	}
	if p.replies == 0 {
		p.before = text
	}
	p.after = text
	p.replies++
	return got.err
}

func (r *replication) ask(want int, wait time.Duration) (found round, err error) {
	r.appendRound(&r.conn.out, want, wait)
	r.conn.SetDeadline(time.Now().Add(wait + r.link.route.Timeout))
	err = r.conn.send()
	for err == nil && found.replies < r.size {
		var came []result
		came, err = r.conn.read()
		for _, got := range came {
			err = cmp.Or(found.add(got), err)
		}
		if err == nil {
			err = r.conn.makeRoom()
		}
	}
	if err != nil {
		return found, connectError(err)
	}
	return found, r.judge(&found)
}

// judge learns what a round has found, or says why the server's answers no longer count.
func (r *replication) judge(found *round) error {
	at, err := strconv.ParseInt(field(found.before, "master_repl_offset"), 10, 64)
	if err != nil {
		return connectError(resp.ErrProtocol)
	}
	found.Said = replicas.Read(found.after, at)
	found.Primary = field(found.after, "role") == "master" && field(found.after, "master_replid") == r.replid
	found.connections = connectionsIn(found.after)
	switch r.count.Judge(found.Said) {
	case replicas.Moved:
		return errMoved
	case replicas.TooMany: // it may be a step of an upgrade
		return fmt.Errorf("%w: it has %d replicas, and Replicas is %d", node.ErrUnreplicated, found.Listed, r.count)
	}
	return nil
}

func connectionsIn(text string) map[string]connection {
	all := make(map[string]connection)
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(line, "id="); ok {
			id, _, _ := strings.Cut(rest, " ")
			silent := strings.Contains(line, " cmd=psync ") || strings.Contains(line, " cmd=sync ")
			all[id] = connection{connectedFor(line), silent}
		}
	}
	return all
}

func field(text, key string) string {
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(line, key); ok && strings.HasPrefix(rest, ":") {
			return strings.TrimSpace(rest[1:])
		}
	}
	return ""
}
