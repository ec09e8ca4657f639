package courier

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/node"
)

const (
	// roundWait is for how long a round waits at most; then the next one follows.
	roundWait = 100 * time.Millisecond

	// The round of a lone caller goes over the link if the last round was quick. It waits for loneWait at
	// most, as it blocks what follows.
	quick    = 5 * time.Millisecond
	loneWait = 10 * time.Millisecond

	// A replica acknowledges once a second by itself. One that has not for awayAfter is away.
	awayAfter = 3

	// While an age below settled is the reason why a round may not count, rounds wait for
	// all replicas, for patience at most: a yes of a replica that came a moment ago is worth little. If that was in vain they do
	// not for vainFor.
	settled  = time.Hour
	patience = 200 * time.Millisecond

	// unsaid is how long a round takes at least in which too few replicas acknowledge.
	unsaid  = 20 * time.Millisecond
	vainFor = time.Second

	// coarseAge keeps the life of a yes from changing each time that an age is known more exactly. Above settled it
	// only gets younger.
	coarseAge = 100 * time.Millisecond
)

// A replication holds back each yes of a primary until enough of its replicas have it, and answers it
// otherwise with an error. It belongs to one link, and has a connection of its own to the same server, as
// WAIT blocks a connection.
//
// In a round the server is asked, in this order, for its offset, to wait until replicas have acknowledged that,
// and which replicas have. All that was answered before the round was sent is below that offset. Only INFO is
// evidence: WAIT counts a replica twice that has two connections. The server has been a master, without a
// promotion, from the link's handshake to the round if its replid is still the same.
//
// Of primary and replicas a majority is needed. A replica follows one server at a time, so two servers
// cannot both have a majority. But a replica may have moved here a moment ago, and have confirmed a lock to
// another server before. So if not all replicas are needed, a yes counts only those that have followed
// for long enough: its Life is Born when the youngest of them began to. package quorum's guards of restarted servers
// do the rest, for renewals as well (spec/Replicas.tla).
type replication struct {
	server *server
	link   *stream
	conn   *wire
	kick   chan struct{} // there is something to do
	life   *node.Life    // as of the handshake
	replid string        // likewise
	count  int           // of replicas
	need   int           // so many of them
	size   int           // of a round, in replies
	began  clock.Instant

	// Guarded by the server's mu.
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

// A held reply is a yes, or a lock that was handed over, which too few replicas are known to have.
type held struct {
	number   int // of all that were held
	deadline clock.Instant
	reply    func(node.Reply)
	with     node.Reply
	turn     bool // it did not come over the link
}

// awaitsReplicas is the kind of the call that stands for a round over the link.
const awaitsReplicas node.Kind = 255

var errMoved = fmt.Errorf("%w: its address leads to another server now, or the server was promoted or demoted", node.ErrUnreachable)

// needed is how many of so many replicas make a majority with their primary.
func needed(replicas int) int { return (replicas + 1) / 2 }

// needsReplicas reports whether a reply says that a lock is there, or lives longer.
func needsReplicas(kind node.Kind, r node.Reply) bool {
	return r.Status == node.Granted || r.Status == node.Done && (kind == node.Extend || kind == node.Downgrade)
}

// replicate begins the replication of a link to a server that has said text.
func (t *stream) replicate(ctx context.Context, s *server, life *node.Life, text string) (*replication, error) {
	r := &replication{server: s, link: t, kick: make(chan struct{}, 1), life: life, yes: life,
		replid: field(text, "master_replid"), count: s.replicas, need: needed(s.replicas), size: 4, began: s.clock.Now()}
	if r.aged() {
		r.size = 7
	}
	if life == nil || r.replid == "" {
		return nil, fmt.Errorf("%w: it does not tell its run_id, uptime or master_replid", node.ErrUnsupported)
	}
	w, answers, err := t.route.begin(ctx, []string{"info", "server"})
	if err != nil {
		return nil, handshakeError(err, s.route.renews())
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

// aged reports whether a yes counts only replicas that have followed for long.
func (r *replication) aged() bool { return r.need < r.count }

// hold keeps a reply back. The server's mu is held.
func (r *replication) hold(h held) {
	r.holds++
	h.number = r.holds
	r.held = append(r.held, h)
	r.server.arm(h.deadline)
	if h.turn || r.lone == nil {
		poke(r.kick)
	}
}

// answer appends those held replies to list that go, as they are or with err. The server's mu is held.
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

func all(*held) bool { return true }

// expire answers what is held for too long, and returns when it has to be called next. The server's mu is held.
func (r *replication) expire(list []unanswered, now, next clock.Instant) ([]unanswered, clock.Instant) {
	list = r.answer(list, cmp.Or(r.short, node.ErrTimeout), func(h *held) bool { return h.deadline <= now })
	for i := range r.held {
		next = min(next, r.held[i].deadline)
	}
	return list, next
}

// run makes rounds until ended. It returns why it gave up.
func (r *replication) run(ended <-chan struct{}) error {
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	for latest := r.began; ; {
		due := false
		select {
		case <-r.kick:
		case <-ticker.C: // a primary that was deposed may refuse for long
			due = r.answeredSince(latest)
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
			latest = r.server.clock.Now()
			found, err := r.ask(want, wait)
			if err != nil {
				return err
			}
			took := time.Since(began)
			r.conclude(found, want, took, func(h *held) bool { return h.number <= last })
			if want > 0 && found.have < r.need { // WAIT may have counted one replica twice, and returned at once
				r.server.sleep(max(0, unsaid-took))
			}
		}
	}
}

// answeredSince reports whether the server has answered anything over the link. If nobody asks it is asked after restAfter.
func (r *replication) answeredSince(at clock.Instant) bool {
	r.server.mu.Lock()
	defer r.server.mu.Unlock()
	return r.server.heard > at
}

// plan says for how many replicas the next round waits and for how long, and up to which number it decides. It reports
// whether replies are held.
func (r *replication) plan() (want int, wait time.Duration, last int, holds bool) {
	s := r.server
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.clock.Now()
	for i := range r.held {
		wait = max(wait, min(roundWait, r.held[i].deadline.Sub(now)))
	}
	switch {
	case s.away || len(r.held) == 0:
		return 0, 0, r.holds, len(r.held) > 0
	case r.patient(now):
		r.retry = now.Add(vainFor)
		return len(r.since), min(wait, patience), r.holds, true
	}
	return r.need, wait, r.holds, true
}

// patient reports whether a round should wait for all replicas.
func (r *replication) patient(now clock.Instant) bool { return r.young && now >= r.retry }

// conclude answers held replies by what a round has found that waited for so many replicas.
func (r *replication) conclude(found round, want int, took time.Duration, of func(*held) bool) {
	s := r.server
	s.mu.Lock()
	open, was := r.decide(found, want, took, of), s.away
	away := found.present < r.need
	s.away = away
	if away && s.clock.Now().Sub(r.began) > lasting {
		r.left = r.short
	}
	leave := r.left != nil
	s.mu.Unlock()
	tell(open)
	switch {
	case away && !was:
		s.note(slog.LevelWarn, "too few replicas follow the server", "follow", found.present, "needed", r.need)
	case was && !away:
		s.note(slog.LevelInfo, "enough replicas follow the server again")
	}
	if leave {
		r.link.leave(s) // the address may lead to another server by now
	}
}

// decide returns the replies that are to be given after a round. The server's mu is held.
func (r *replication) decide(found round, want int, took time.Duration, of func(*held) bool) (open []unanswered) {
	switch {
	case found.have >= r.need:
		r.short, r.quick = nil, took < quick
		if r.ages(found); r.patient(r.server.clock.Now()) { // the next round may show that older ones have it
			r.quick = false
			return nil
		}
		return r.answer(nil, nil, of)
	case want == 0 && found.present >= r.need: // it was not to wait
		return nil
	}
	r.quick = false
	r.short = fmt.Errorf("%w: only %d of %d replicas have it", node.ErrUnreplicated, found.have, r.count)
	if found.present < r.need {
		open = r.answer(nil, r.short, of)
	}
	return open
}

// ages learns since when the replicas follow that are needed, if so many have what a round was for. CLIENT LIST
// tells the ages of their connections, but not always whose they are: see tellApart. Of the oldest i of those whose replica may
// have it at least i-(all-have) do. So the one that counts is number need+all-have. The server's mu is held.
func (r *replication) ages(found round) {
	if !r.aged() {
		return
	}
	now := r.server.clock.Now()
	r.tellApart(found)
	seen := make(map[string]clock.Instant, len(found.connections))
	var since, may []clock.Instant
	for id, c := range found.connections {
		if c.silent {
			continue
		}
		at := now.Add(-max(0, c.age-time.Second))
		if before, ok := r.since[id]; ok {
			at = min(at, before)
		}
		seen[id] = at
		since = append(since, at)
		if addr, known := r.whose[id]; !known || found.has[addr] {
			may = append(may, at)
		}
	}
	slices.Sort(since)
	slices.Sort(may)
	born, best := now, now
	if len(may) >= found.have {
		born, best = may[r.need+len(may)-found.have-1], since[r.need-1]
	}
	if born == best {
		r.retry = now
	}
	r.since, r.young = seen, born > best && now.Sub(born) < settled
	born = max(born, r.life.Born)
	if older := born < r.yes.Born.Add(-coarseAge) && now.Sub(r.yes.Born) < settled; older || born > r.yes.Born {
		r.yes = &node.Life{ID: r.life.ID, Born: born}
	}
}

// tellApart learns whose connections they are. Each is of one replica for as long as it lasts, so the last one that is
// not known is of the last replica. The server's mu is held.
func (r *replication) tellApart(found round) {
	whose, left, last := make(map[string]string), slices.Clone(found.addrs), []string(nil)
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

// join appends a round to the batch of a lone caller. The server's mu is held.
func (r *replication) join(batch []*call) []*call {
	s, n, now := r.server, len(batch), r.server.clock.Now()
	if n == 2 && batch[0].kind == asksRole {
		n = 1
	}
	if n != 1 || !r.quick || r.patient(now) || len(r.held) > 0 || s.flight.len() > 0 || s.queue.len() > 0 {
		return batch
	}
	switch batch[len(batch)-1].kind {
	case node.Acquire, node.Extend, node.Downgrade, node.Rename:
		r.lone, r.found = &call{kind: awaitsReplicas, round: r, answered: true, sent: now, deadline: now.Add(loneWait)}, round{}
		return append(batch, r.lone)
	}
	return batch
}

// settle takes one reply to a round over the link, and decides when it was the last. The server's mu is held.
func (r *replication) settle(got result, to *settlement) {
	err := r.found.add(got)
	if r.found.replies < r.size {
		return
	}
	r.server.flight.pop()
	r.lone, r.quick = nil, false
	if err == nil && r.judge(&r.found) == nil {
		to.open = append(to.open, r.decide(r.found, r.need, 0, func(h *held) bool { return !h.turn })...)
	}
	if !r.quick {
		poke(r.kick) // the next round finds out why
	}
}

// during makes rounds while carry carries the link. It returns why this ended.
func (r *replication) during(carry func() error) error {
	ended, done := make(chan struct{}), make(chan error, 1)
	go func() {
		err := r.run(ended)
		select {
		case <-ended:
			err = nil
		case <-r.server.ctx.Done():
			err = nil
		default:
			r.server.note(slog.LevelWarn, "replicas cannot be asked for", "error", show(err))
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

// publishNothing is a write that reaches the replicas and no disk. Since Redis 7.2 and in Valkey WAIT waits
// for the last write of its own connection, not for what others wrote before.
var publishNothing = []string{"publish", node.WaiterPrefix + "replicas", ""}

// appendRound appends the commands of a round to w.
func (r *replication) appendRound(w *words, want int, wait time.Duration) {
	w.command("info", "replication")
	w.command(publishNothing...)
	w.command("wait", strconv.Itoa(want), strconv.FormatInt(max(1, wait.Milliseconds()), 10))
	if !r.aged() {
		w.command("info", "replication")
		return
	}
	w.command("multi") // so that both are of one moment
	w.command("info", "replication")
	w.command("client", "list", "type", "replica")
	w.command("exec")
}

// A round is the replies that have come to it, and what it has found of the replicas, each address counted once.
type round struct {
	replies       int
	before, after string // the first and the last

	listed      int
	present     int                   // have acknowledged something in the last seconds
	have        int                   // have acknowledged the offset
	has         map[string]bool       // by address: those
	addrs       []string              // one for each connection
	connections map[string]connection // of replicas, by ID
}

// A connection is one between a primary and a replica.
type connection struct {
	age    time.Duration // in whole seconds
	silent bool          // it has acknowledged nothing: the replica is still being given a copy
}

// add takes one reply.
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

// ask makes one round over the replication's own connection.
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
	found.count(at)
	switch {
	case err != nil:
		return connectError(ErrProtocol)
	case field(found.after, "role") != "master" || field(found.after, "master_replid") != r.replid:
		return errMoved
	case found.listed > r.count:
		// With more servers than are counted two majorities may have none in common. It may be a step of an upgrade.
		return fmt.Errorf("%w: it has %d replicas, and Replicas is %d", node.ErrUnreplicated, found.listed, r.count)
	}
	return nil
}

// count reads the last reply: INFO replication, and CLIENT LIST.
func (p *round) count(offset int64) {
	present, listed := map[string]bool{}, map[string]bool{}
	p.has, p.connections = map[string]bool{}, map[string]connection{}
	for line := range strings.Lines(p.after) {
		if rest, ok := strings.CutPrefix(line, "id="); ok {
			id, _, _ := strings.Cut(rest, " ")
			p.connections[id] = connection{connectedFor(line), strings.Contains(line, " cmd=psync ") || strings.Contains(line, " cmd=sync ")}
		}
		of := replicaIn(line)
		if of == nil {
			continue
		}
		addr := net.JoinHostPort(of["ip"], of["port"])
		listed[addr] = true
		p.addrs = append(p.addrs, addr)
		if of["state"] != "online" {
			continue
		}
		if lag, err := strconv.Atoi(of["lag"]); err == nil && lag < awayAfter {
			present[addr] = true
		}
		if at, err := strconv.ParseInt(of["offset"], 10, 64); err == nil && at >= offset {
			p.has[addr] = true
		}
	}
	p.listed, p.present, p.have = len(listed), len(present), len(p.has)
}

// replicaIn is what a line of INFO says of a replica; nil if it is about none. A backup, such as redis-cli --rdb, follows as a
// replica does, but has no port, so it cannot be promoted.
func replicaIn(line string) map[string]string {
	key, rest, _ := strings.Cut(strings.TrimSpace(line), ":")
	if !strings.HasPrefix(key, "slave") || !strings.HasPrefix(rest, "ip=") {
		return nil
	}
	of := map[string]string{}
	for _, part := range strings.Split(rest, ",") {
		name, value, _ := strings.Cut(part, "=")
		of[name] = value
	}
	if of["port"] == "0" {
		return nil
	}
	return of
}

// hasReplicas reports whether INFO tells of a replica.
func hasReplicas(text string) bool {
	for line := range strings.Lines(text) {
		if replicaIn(line) != nil {
			return true
		}
	}
	return false
}

// field is the value of a line of INFO.
func field(text, key string) string {
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(line, key); ok && strings.HasPrefix(rest, ":") {
			return strings.TrimSpace(rest[1:])
		}
	}
	return ""
}
