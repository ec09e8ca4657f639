// Package replicas says when an answer of a primary with replicas counts: once a majority
// of them all has what it says. Nothing here waits, or reads a clock.
package replicas

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/node"
)

// A Count is the number of a primary's replicas, as programs give it.
type Count int

// Needed is how many of them make a majority with their primary.
func (c Count) Needed() int { return (int(c) + 1) / 2 }

// Aged reports whether a yes counts only replicas that have followed for long. If not all
// are needed, a new one may have confirmed a lock to another server before.
func (c Count) Aged() bool { return c.Needed() < int(c) }

// Promises reports whether a reply counts only once replicas have it: that a lock is
// there, or lives longer.
func Promises(kind node.Kind, r node.Reply) bool {
	return r.Status == node.Granted || r.Status == node.Done && (kind == node.Extend || kind == node.Downgrade)
}

// Said is what a server says of its replicas, each address once.
type Said struct {
	Primary bool // it is a primary with the same history
	Listed  int
	Present int // of these, that acknowledged something in the last seconds
	Have    int // of these, that acknowledged the offset

	Has   map[string]bool // the addresses of those that have
	Addrs []string        // one for each that is listed, twice if it is
}

// A Verdict says what a server's yes is worth.
type Verdict uint8

const (
	Enough  Verdict = iota // replicas have it: it counts
	TooFew                 // replicas have it so far
	TooMany                // replicas follow: two majorities may have none in common
	Moved                  // it is another server, or was promoted or demoted meanwhile
)

func (c Count) Judge(s Said) Verdict {
	switch {
	case !s.Primary:
		return Moved
	case s.Listed > int(c):
		return TooMany
	case s.Have < c.Needed():
		return TooFew
	}
	return Enough
}

// Since is from when on a replica follows, at the latest, by the age of its connection in
// whole seconds. before is what was known of the connection, clock.Never if nothing.
func Since(now clock.Instant, age time.Duration, before clock.Instant) clock.Instant {
	return min(before, now.Add(-max(0, age-time.Second)))
}

// Youngest is from when on the youngest replica that a yes needs follows, at the latest,
// if have replicas have the yes. may has the same of those that may be among these,
// sorted. Of the oldest i at least i-(all-have) are among them, so number need+all-have
// counts. It is now if may has too few.
func (c Count) Youngest(now clock.Instant, have int, may []clock.Instant) clock.Instant {
	if len(may) < have {
		return now
	}
	slices.Sort(may)
	return may[c.Needed()+len(may)-have-1]
}

type Replica struct {
	Addr   string
	State  string
	Lag    int64 // seconds since its last acknowledgment; math.MaxInt64: not known
	Offset int64 // acknowledged; math.MinInt64: not known
}

// awayAfter is how many seconds of silence make a replica away: each acknowledges once a
// second.
const awayAfter = 3

func (r Replica) Present() bool { return r.State == "online" && r.Lag < awayAfter }

func (r Replica) Has(offset int64) bool { return r.State == "online" && r.Offset >= offset }

// In returns the replica of a line of INFO replication, if there is one. A backup, such
// as redis-cli --rdb, has no port: it cannot be promoted, and is none.
func In(line string) (r Replica, ok bool) {
	key, rest, _ := strings.Cut(strings.TrimSpace(line), ":")
	if !strings.HasPrefix(key, "slave") || !strings.HasPrefix(rest, "ip=") {
		return r, false
	}
	of := make(map[string]string)
	for part := range strings.SplitSeq(rest, ",") {
		name, value, _ := strings.Cut(part, "=")
		of[name] = value
	}
	r = Replica{Addr: address(of["ip"], of["port"]), State: of["state"],
		Lag: number(of["lag"], math.MaxInt64), Offset: number(of["offset"], math.MinInt64)}
	return r, of["port"] != "0"
}

func number(text string, unknown int64) int64 {
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return n
	}
	return unknown
}

// Read counts the replicas in INFO replication, and those that have an offset.
func Read(info string, offset int64) (s Said) {
	s.Has = make(map[string]bool)
	listed, present := make(map[string]bool), make(map[string]bool)
	for line := range strings.Lines(info) {
		r, ok := In(line)
		if !ok {
			continue
		}
		s.Addrs = append(s.Addrs, r.Addr)
		listed[r.Addr] = true
		if r.Present() {
			present[r.Addr] = true
		}
		if r.Has(offset) {
			s.Has[r.Addr] = true
		}
	}
	s.Listed, s.Present, s.Have = len(listed), len(present), len(s.Has)
	return s
}

// address is net.JoinHostPort without package net, which is large in a browser.
func address(host, port string) string {
	if strings.ContainsAny(host, ":%") {
		host = "[" + host + "]"
	}
	return host + ":" + port
}
