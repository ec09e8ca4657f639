package quorum

import (
	"cmp"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/quorum/internal/core"
	"github.com/redquorum/redquorum/quorum/internal/vote"
)

// Defaults returns what the zero value of [Options] means. Lease is MaxLease if that is
// less, and FenceRetention if that is more.
func Defaults() Options {
	return Options{
		Lease:          30 * time.Second,
		MaxLease:       30 * time.Second,
		Drift:          0.01,
		Timeout:        500 * time.Millisecond,
		RetryEvery:     time.Second,
		FenceRetention: 24 * time.Hour,
	}
}

// Options configure a Locker. The zero value is sensible.
type Options struct {
	// Lease is how long a lock lasts without renewal, and so how long the name of a dead
	// holder stays taken. It must be at most MaxLease. 0 means 30 s, or MaxLease if that
	// is less.
	Lease time.Duration

	// MaxLease is the longest lease in use anywhere in the deployment, by any program
	// that shares locks over these nodes: a longer one is refused. A node that restarted,
	// or is new, is ignored for MaxLease and Grace, because it may have forgotten a lock;
	// for renewals for a third of MaxLease. An attempt must be decided within a third of
	// its lease, and waiters are handed a lock directly only if that is no less than
	// RetryEvery. 0 means 30 s.
	MaxLease time.Duration

	// MaxHold bounds how long one acquisition is renewed, counted from the acquisition;
	// after it the lease ends with ErrMaxHold. Unlock it nevertheless: until then the
	// name stays taken for what the nodes have left of Lease. 0 means no bound.
	MaxHold time.Duration

	// Grace is how much longer the nodes keep a key than its holder relies on it: time
	// for work to stop after its context ended. If the holder dies the name stays taken
	// that much longer. It should be the same in all programs. Direct hand-over needs
	// Grace <= Timeout.
	Grace time.Duration

	// Drift is by what fraction of itself a lease is shortened, because clocks run at
	// different rates; 2 ms are added. It must cover the drift of the holder's clock and
	// of the nodes' together. 0 means 0.01.
	Drift float64

	// Timeout bounds one round of commands to the nodes, and so every operation that does
	// not wait for the lock: TryLock, Extend, Resume, Unlock. If a third of the lease is
	// shorter, that is the bound for all of these but Unlock. 0 means 500 ms.
	Timeout time.Duration

	// RetryEvery is how long a waiter sleeps at most before it tries again without a
	// notice, as notices can be lost. If nodes hang and attempts take long, it may sleep
	// for Timeout more, or, if it has no place in a queue, for a few times as long as an
	// attempt. 0 means 1 s.
	RetryEvery time.Duration

	// MaxDown bounds how long a call waits for a lock while so many nodes do not answer
	// that none can be granted. Then calls that wait return ErrNoQuorum, and so do later
	// calls at once, but for one each RetryEvery, which asks the nodes. A waiting call
	// learns of it after RetryEvery and Timeout more at most; one that waits for a holder
	// in this process, when that lease is renewed in vain. 0 means no bound: calls wait
	// as long as they would for a holder. Renewal goes on in any case.
	MaxDown time.Duration

	// FenceRetention is how long nodes remember the highest fencing token of a name,
	// counted from the acquisition: renewal and Unlock bring no higher token. After a
	// fence has expired, tokens still rise if the wall clocks of all clients agree to
	// within this time; after nodes have restarted without it, if they agree to within
	// MaxLease less Timeout, because a token may be Timeout behind its clock. 0 means 24
	// h, or MaxLease if that is more. Each node needs about 150 bytes for each name, for
	// that time: see docs/operations.md.
	FenceRetention time.Duration

	// Quorum is how many nodes must grant a lease, and keep it at each renewal, and
	// confirm an Unlock: more than half of them. 0 means a majority, the least that is
	// safe.
	//
	// More than a majority guards against nodes that forget a lock unnoticed. If every
	// program needs k of N nodes, up to 2k-N-1 may forget a lock, and still nobody else
	// gets it. If more than N-k nodes are down, slow or have just restarted, nobody gets
	// or keeps a lease. If a few nodes have lost a lease and a majority still has it,
	// renewal puts it back on them; the lease ends if that has not worked by the end of
	// its time.
	//
	// Programs with different Quorums exclude each other, too; between them k is the mean
	// of the two. Programs with different lists of nodes do if the sum of their Quorums
	// is more than the number of nodes in both lists together.
	//
	// An even number of nodes is refused unless Quorum is set: its majority survives no
	// more failures than that of one node fewer.
	Quorum int

	// NoRestartGuard lets a node vote right after a start. Safe only if no node can
	// forget a lock that it has granted: appendfsync always, or, in development, servers
	// that never had one. New servers of package embedded vote at once without it.
	// Refused with a primary that has replicas.
	NoRestartGuard bool

	// Prefix is put before every name on the nodes, such as "shop/". Applications that
	// share servers and have different prefixes cannot take each other's locks. All keys
	// and channels of a name contain it, so an ACL can use it (see package redisnode).
	// All programs that share locks must have the same one. Names in this package, as in
	// errors, events, reports and handles, are without it.
	Prefix string

	// SharedNodes leaves the nodes open at Close, since other Lockers use them as well.
	// Their maker closes them, when the last Locker is closed.
	SharedNodes bool

	// Label says for people which program this is. It names the holder of a lock: in
	// Inspect, in errors that match ErrHeld, and in the commands status and list. What
	// follows the first 100 bytes is left out, and what cannot be printed becomes "?". ""
	// means the host, the process ID and the program's name; [NoLabel] means none, and
	// that the Locker reads neither labels nor notes of others.
	//
	// Each node keeps it in one key for the Locker, however many locks it has. The key is
	// written while the Locker acquires, waits for, renews or extends locks, at most once
	// in half of MaxLease, and expires after twice MaxLease. With it the Locker leaves
	// its number of nodes, replicas, MaxLease and Grace, and reports those of others that
	// differ, as an [EventSettingsDiffer] and in the log.
	Label string

	// Observe receives every event; nil means none. One goroutine calls it, with one
	// event after the other, in the order in which they happened. It may block: nothing
	// of the Locker waits for it but Close, for at most Timeout. Up to 65,536 events wait
	// for it; an [EventsLeftOut] says how many did not fit. If it panics, the program
	// ends.
	Observe func(Event)

	// Trace receives every event as Observe does, but at once, before any command that is
	// sent after the event. It is for simulators and tests. It must not block, panic, or
	// call the Locker: if it blocks, renewals are late and leases are lost.
	Trace func(Event)

	// Steps receives a line of text for each step of the Locker, when it has been taken:
	// the seconds of its clock, what came in (a call, an answer or a notice of a node, or
	// time), and what came of it (commands, ends of contexts, callers that go on,
	// events). It is for debugging, and may be nil. One goroutine at a time calls it. It
	// must not call the Locker; while it blocks, commands are late.
	Steps func(line string)

	// Logger gets lost leases and settings that differ as errors. It gets warnings for
	// nodes that fail, that are ignored because they restarted or are listed twice, and
	// for leases that reach their MaxHold. Its handler may block, as Observe may: 4,096
	// lines wait for it, and the log says how many did not fit. Nil means no log.
	Logger *slog.Logger

	// Clock is where time comes from. Nil means clock.System().
	Clock clock.Clock

	// Random returns 64 random bits, for owner names and jitter. It must be
	// unpredictable, and different after a virtual machine was cloned. It must return at
	// once, and must not call the Locker. Nil means the kernel's generator.
	Random func() uint64
}

// longest bounds what is added to instants and sent to servers. It is long enough for
// "never".
const longest = 10 * 365 * 24 * time.Hour

func (o Options) fill() (Options, error) {
	def := Defaults()
	for _, d := range []struct {
		name  string
		field *time.Duration
		def   time.Duration
	}{
		{"MaxLease", &o.MaxLease, def.MaxLease},
		{"Lease", &o.Lease, min(def.Lease, cmp.Or(o.MaxLease, def.MaxLease))},
		{"MaxHold", &o.MaxHold, 0},
		{"Grace", &o.Grace, 0},
		{"Timeout", &o.Timeout, def.Timeout},
		{"RetryEvery", &o.RetryEvery, def.RetryEvery},
		{"MaxDown", &o.MaxDown, 0},
		{"FenceRetention", &o.FenceRetention, max(def.FenceRetention, o.MaxLease)},
	} {
		if *d.field < 0 || *d.field > longest {
			return o, fmt.Errorf("quorum: Options.%s is %v; it must not be negative, nor more than %v", d.name,
				*d.field, longest)
		}
		*d.field = cmp.Or(*d.field, d.def)
	}
	o.Drift = cmp.Or(o.Drift, def.Drift)
	if !(o.Drift > 0 && o.Drift < 0.5) {
		return o, fmt.Errorf("quorum: Options.Drift is %v; it must be between 0 and 0.5, as a lease is shortened by it twice", o.Drift)
	}
	if short := min(o.Timeout, o.RetryEvery); short < time.Millisecond {
		return o, fmt.Errorf("quorum: Options.Timeout is %v and Options.RetryEvery is %v; each must be at least 1ms",
			o.Timeout, o.RetryEvery)
	}
	if o.FenceRetention < o.MaxLease {
		return o, fmt.Errorf("quorum: Options.FenceRetention is %v; it must not be shorter than MaxLease, %v",
			o.FenceRetention, o.MaxLease)
	}
	if o.Prefix != "" {
		if err := node.CheckName(o.Prefix); err != nil {
			return o, fmt.Errorf("quorum: Options.Prefix is before every name: %w", err)
		}
	}
	o.Label = shortText(cmp.Or(o.Label, defaultLabel()), maxLabel)
	o.Clock = cmp.Or(o.Clock, clock.System())
	if o.Random == nil {
		o.Random = kernelRandom
	}
	return o, o.checkLease(o.Lease)
}

func (o *Options) checkLease(d time.Duration) error {
	switch {
	case d <= 0:
		return fmt.Errorf("quorum: lease is %v; it must be more than 0", d)
	case d > o.MaxLease:
		return fmt.Errorf("quorum: lease of %v is longer than MaxLease, %v; "+
			"to use such leases, raise MaxLease in every program that shares these nodes", d, o.MaxLease)
	case d <= 2*vote.Drift(d, o.Drift):
		return fmt.Errorf("quorum: lease of %v is too short: the allowance for clock drift is %v", d,
			vote.Drift(d, o.Drift))
	}
	return nil
}

func kernelRandom() uint64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails, says its documentation
	return binary.LittleEndian.Uint64(b[:])
}

// NoLabel as Options.Label leaves no label on the nodes, and the Locker does not read
// those of others.
const NoLabel = "-"

const maxLabel = 100

func defaultLabel() string {
	host, _ := os.Hostname()
	program, _ := os.Executable()
	return fmt.Sprintf("%s pid %d %s", cmp.Or(host, "unknown host"), os.Getpid(),
		filepath.Base(cmp.Or(program, "unknown program")))
}

// shortText makes a label or note of a text: what cannot be printed becomes ?, and what
// follows the first bytes is left out.
func shortText(text string, most int) string {
	text = strings.Map(func(r rune) rune {
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, text)
	return strings.ToValidUTF8(text[:min(len(text), most)], "") // without a part of a letter
}

func (o *Options) rules() core.Rules {
	return core.Rules{MaxLease: o.MaxLease, Grace: o.Grace, Drift: o.Drift, Timeout: o.Timeout,
		RetryEvery: o.RetryEvery, MaxDown: o.MaxDown,
		FenceRetention: o.FenceRetention, NoRestartGuard: o.NoRestartGuard, Label: o.Label, Steps: o.Steps,
		Random: o.Random}
}
