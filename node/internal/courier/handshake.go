package courier

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/lives"
	"github.com/redquorum/redquorum/internal/replicas"
	"github.com/redquorum/redquorum/internal/resp"
	"github.com/redquorum/redquorum/node"
)

var introduction = [][]string{
	{"info", "server"},
	{"info", "replication"},
	{"client", "list", "type", "replica"},
}

// introduced makes one text of the answers to an introduction. INFO has to be permitted:
// without it it is no Redis. The rest may be unknown to the server or forbidden.
func introduced(answers []result) (text string, err error) {
	for i, a := range answers {
		part, ok := a.val.(string)
		text += part
		switch means := connectError(a.err); {
		case !ok && means == nil:
			return "", resp.ErrProtocol
		case i < 2 && errors.Is(means, node.ErrAuth):
			return "", refusal{a.err, fmt.Errorf("%w (the restart guard needs INFO)", means)}
		case i == 0 && errors.Is(means, node.ErrUnsupported):
			return "", nil
		case means != nil && (i == 0 || !fromServer(a.err)):
			return "", a.err
		}
	}
	return text, nil
}

// A lifespan is since when the servers of a node live, as they say, and whether that
// counts.
type lifespan struct {
	*background
	life atomic.Pointer[node.Life] // as of the last handshake; nil if unknown, or no longer trusted

	// Used only by the goroutine that handles replies.
	lives     lives.Tracker
	demoted   bool   // a server has answered as a replica, since the handshake
	moved     string // the ID of the life that has answered MOVED
	uncounted bool   // it was logged that the server has replicas that are not counted
}

// handshake takes what servers say of themselves, and learns which servers a new link has
// and since when they live. No command is sent before that is known.
func (l *lifespan) handshake(texts []string) (*node.Life, error) {
	if slices.ContainsFunc(texts, ofReplica) {
		l.distrust()
		l.moved = ""
		return nil, node.ErrReadOnly
	}
	if slices.ContainsFunc(texts, l.sharesNames) {
		return nil, errMember
	}
	servers := uptimes(texts)
	for _, one := range servers {
		if !isRunID(one.ID) {
			return nil, networkError(fmt.Errorf("%w: run_id:%.40q", resp.ErrProtocol, one.ID))
		}
	}
	before := l.lives.Life()
	life := l.lives.Handshake(servers, l.clock.Now())
	l.life.Store(life)
	l.demoted = false
	switch {
	case life == nil:
		l.note(slog.LevelWarn, "server reports no run_id or uptime; its restarts cannot be detected")
	case before != nil && *before != *life:
		l.note(slog.LevelWarn, "server restarted, was a replica for a while, or was replaced",
			"age", l.clock.Now().Sub(life.Born).Round(time.Millisecond))
	}
	return life, nil
}

var errMember = fmt.Errorf("%w: MOVED: it is a member of a cluster, and has only some of the names: "+
	"list independent servers, or give redisnode.New a client of the whole cluster", node.ErrUnsupported)

// sharesNames reports whether a server in cluster mode has only some of the names:
// CLUSTER INFO counts other masters or, where the user may not ask, the server has
// answered MOVED since it was no replica.
func (l *lifespan) sharesNames(text string) bool {
	if size := field(text, "cluster_size"); size != "" {
		return size != "0" && size != "1"
	}
	return l.moved != "" && l.moved == field(text, "run_id")
}

// redirects notes that a server in this life has answered MOVED. A replica in cluster
// mode says so, too.
func (l *lifespan) redirects(life *node.Life) {
	if life != nil {
		l.moved = life.ID
	}
}

// trusted returns a reply, or an error if it does not count. Once a server has answered
// as a replica, none does until the next handshake: it may be a master again, in a new
// life.
func (l *lifespan) trusted(r node.Reply) node.Reply {
	if errors.Is(r.Err, node.ErrReadOnly) {
		l.distrust()
	} else if l.demoted && r.Err == nil {
		r = node.Reply{Err: errDemoted}
	}
	return r
}

func (l *lifespan) distrust() {
	l.lives.Invalidate()
	l.life.Store(nil)
	l.demoted = true
}

func (l *lifespan) answered(now clock.Instant) { l.lives.Answered(now) }

// current is the life as of the last handshake, nil if it is not known or no longer
// counts.
func (l *lifespan) current() *node.Life { return l.life.Load() }

func (l *lifespan) noteReplicas(text string) {
	if !l.uncounted && replicas.Read(text, 0).Listed > 0 {
		l.uncounted = true
		l.note(slog.LevelWarn, "server has replicas, and none are counted: if one is promoted, two may hold one lock; "+
			"see Options.Replicas, or ?replicas= in a URL")
	}
}

// uptimes returns the uptimes in all servers' INFO, or nothing if one has no run_id.
func uptimes(texts []string) (all []lives.Uptime) {
	for _, text := range texts {
		u := parseInfo(text)
		if u.ID == "" || u.Up < 0 {
			return nil
		}
		all = append(all, u)
	}
	return all
}

// ofReplica reports whether INFO says that its server is no master, even if it takes
// writes.
func ofReplica(info string) bool {
	for line := range strings.Lines(info) {
		if role, ok := strings.CutPrefix(line, "role:"); ok {
			return strings.TrimSpace(role) != "master"
		}
	}
	return false
}

// isRunID: Redis's have 40 digits.
func isRunID(id string) bool {
	return len(id) <= 64 && !strings.ContainsFunc(id, func(r rune) bool { return r <= ' ' || r >= 0x7f })
}

// parseInfo reads the answers to an introduction. At its promotion a replica draws a
// replid, keeps its master's as replid2, and closes the connections to its own replicas.
// So it has been a master for at least as long as the oldest of these has been open.
// (Since Redis 7 a master that has restarted from a file has a replid2, too.)
func parseInfo(text string) lives.Uptime {
	u := lives.Uptime{Up: -1}
	replid, replid2 := "", ""
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "id=") {
			u.Master = max(u.Master, connectedFor(line))
			continue
		}
		key, value, _ := strings.Cut(line, ":")
		switch key {
		case "run_id":
			u.ID = value
		case "uptime_in_seconds":
			u.Up = age(value)
		case "master_replid":
			replid = value
		case "master_replid2":
			replid2 = value
		}
	}
	if strings.Trim(replid2, "0") != "" {
		u.Promoted = replid
	}
	return u
}

func connectedFor(line string) time.Duration {
	for _, field := range strings.Fields(line) {
		if text, ok := strings.CutPrefix(field, "age="); ok {
			return age(text)
		}
	}
	return 0
}

// age reads a number of seconds; below 0 if text is none. A server whose clock was set
// back says less than 0: it may be no older than that.
func age(text string) time.Duration {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return -1
	}
	return time.Duration(max(0, min(n, 1<<32))) * time.Second // a century, which a Duration can be
}
