package faults

import (
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Format is the version of the text that this package reads and writes.
const Format = 1

// Limits of a plan.
const (
	MaxNodes   = 15
	MaxClients = 64
	MaxLength  = 240 * time.Hour
	MaxLease   = 24 * time.Hour // for which nodes keep their fences
	MaxNames   = 1000           // of the plan's work
)

// A Plan is one run. [New] gives a valid one; the zero value is not.
type Plan struct {
	Seed    uint64        // of everything that is random
	Nodes   int           // servers n1, n2, ...; with Lock.Replicas, several are one node of the lock
	Clients int           // processes c1, c2, ..., each with its own clock
	Length  time.Duration // of the part in which faults happen
	Lock    Lock
	Work    Work
	Network Network
	Assume  Assumptions
	Events  []Event // in the order of their times
}

type Lock struct {
	Client   Client
	Lease    time.Duration
	MaxLease time.Duration
	Timeout  time.Duration
	Poll     time.Duration
	Grace    time.Duration
	Drift    Ratio // 0: none, which the library itself refuses
	Guard    bool  // the restart guard
	Renew    bool
	MaxHold  time.Duration // how long renewal goes on; 0: no bound
	MaxDown  time.Duration // how long calls wait without a quorum; 0: no bound
	Fence    bool          // the resource checks tokens
	Need     int           // how many nodes must grant; 0: a majority
	Replicas int           // 1+Replicas servers, in order, are one node: a primary and its replicas
	Mistake  Mistake       // that a plain client makes; "" for none
}

// A Client is a lock's implementation.
type Client string

const (
	// Redquorum is the library itself.
	Redquorum Client = "redquorum"
	Plain     Client = "plain"
)

// A Mistake is known from other implementations. A plain client that makes it is textbook
// Redlock otherwise.
type Mistake string

var (
	Absolute    = mistake("absolute", "the end of a key is sent as a time of day, by the client's clock")
	BareHash    = mistake("barehash", "a script is sent as its hash alone, and where it is unknown, that counts as: not the owner")
	Connected   = mistake("connected", "of the replicas that are connected one is enough, and none if none is")
	CountedLate = mistake("countedlate", "validity is counted from the answers, not from before the commands")
	Counters    = mistake("counters", "a token is the highest count of those nodes that granted")
	DeadContext = mistake("deadcontext", "a release needs the caller's context")
	Delete      = mistake("delete", "a release does not look at the owner")
	Forgetful   = mistake("forgetful", "each attempt has an owner of its own, and is released once, whatever comes of it")
	Half        = mistake("half", "half of the nodes are enough")
	KeptEnd     = mistake("keptend", "an extension that is shorter leaves the client its later end")
	LastEnd     = mistake("lastend", "several locks are taken for valid as long as the last of them")
	Minority    = mistake("minority", "one node is enough to extend")
	Notices     = mistake("notices", "a waiter is woken by notices of releases, and by nothing else")
	Patient     = mistake("patient", "every node is waited for, for as long as the lease lasts")
	Recreate    = mistake("recreate", "an extension creates the key where it is gone")
	Revive      = mistake("revive", "an extension counts also after the end")
	RoundDown   = mistake("rounddown", "lengths are rounded down, and nothing is allowed for that")
	ShortGuard  = mistake("shortguard", "a node that restarted is ignored for the usual lease, however long the longest is")
	Steady      = mistake("steady", "the pause between attempts is always the same")
	TimeOfDay   = mistake("timeofday", "validity is counted on the time of day")
	Untagged    = mistake("untagged", "an answer counts for the round in which it comes, whichever it is of")
	Watchdog    = mistake("watchdog", "a lock is renewed in the background, and valid until that ends, which it never does")
)

var Mistakes = make(map[Mistake]string)

func mistake(name Mistake, what string) Mistake {
	Mistakes[name] = what
	return name
}

// Work is what a client without steps does: acquire, hold, write to the resource,
// release, think, and again.
type Work struct {
	Names  int           // number of locks; each task picks one each time
	Tasks  int           // of each client, at the same time
	Hold   Range         // how long the lock is held; see Expiring and Late
	Think  Range         // between two acquisitions
	Step   time.Duration // processor time of each step of a process, while other events wait
	Try    Ratio         // of acquisitions, that do not wait
	Fixed  Ratio         // of leases, that are not renewed
	Long   Ratio         // of leases: longer than usual, up to the longest
	Short  Ratio         // of leases: a tenth of the usual
	Extend Ratio         // of holds, that extend by hand
	Cancel Ratio         // of acquisitions, that are canceled on the way
	Nest   Ratio         // of holds, that acquire their name again
	Close  Ratio         // of holds: the process then closes its Locker and starts again
	Drop   Ratio         // of lost leases, that are not unlocked

	// Expiring is the share of holds that last 0.9 to 1.1 leases, and not Hold. Late is
	// the share of writes that arrive up to two leases after the check of the lease; the
	// lock is held until then.
	Expiring, Late Ratio

	Hand    Ratio // of holds: detached, and resumed by a client
	Handle  Ratio // of holds: a client resumes the handle while the holder goes on
	Break   Ratio // of acquisitions: the name is first unlocked by force
	Inspect Ratio // of acquisitions: the client first asks who holds the name
	Bound   Ratio // of acquisitions that wait: for at most two leases
	Label   Ratio // of processes, whose Locker has a label
	// of processes, whose Locker has unusual options, and of unusual calls
	Odd     Ratio
	MinHold Ratio // of exclusive acquisitions: the names stay taken for 10 to 90 % of the longest lease

	Read    Ratio // of acquisitions: to read, with other readers
	Write   Ratio // of acquisitions, that exclude these
	Down    Ratio // of holds to write: they go on to read
	Fair    Ratio // of the other acquisitions of one name: fair
	Several Ratio // of acquisitions: all names at once
	Joint   Ratio // of acquisitions: some names here and Far elsewhere, as one
	Chain   Ratio // of holds: wait for a later name, all in one order
}

// maxStep bounds Step: with more a process would only catch up.
const maxStep = 10 * time.Millisecond

const maxTasks = 8

func (w *Work) Shares() []*Ratio {
	return slices.Concat(w.habits(), []*Ratio{&w.Expiring, &w.Late, &w.Short}, w.verbs(), w.Kinds())
}

// habits are the shares that every kind of lock has, drawn from the seed.
func (w *Work) habits() []*Ratio {
	return []*Ratio{&w.Try, &w.Fixed, &w.Long, &w.Extend, &w.Cancel, &w.Nest, &w.Close, &w.Drop}
}

// verbs are the shares that plain clients lack.
func (w *Work) verbs() []*Ratio {
	return []*Ratio{&w.Hand, &w.Handle, &w.Break, &w.Inspect, &w.Bound, &w.MinHold, &w.Label, &w.Odd}
}

func (w *Work) Kinds() []*Ratio {
	return []*Ratio{&w.Read, &w.Write, &w.Down, &w.Fair, &w.Several, &w.Joint, &w.Chain}
}

// special reports whether plain clients cannot do all of the work.
func (w *Work) special() bool {
	for _, share := range slices.Concat(w.verbs(), w.Kinds()) {
		if *share != 0 {
			return true
		}
	}
	return false
}

// MakePlain gives the plan plain clients, without the work that they cannot do.
func (p *Plan) MakePlain() {
	p.Lock.Client, p.Lock.Need, p.Lock.MaxDown = Plain, 0, 0
	for _, share := range slices.Concat(p.Work.verbs(), p.Work.Kinds()) {
		*share = 0
	}
}

// MakeJoint sets the share of joint acquisitions. All clients then list all nodes, as Far
// is on the same nodes for each.
func (p *Plan) MakeJoint(share Ratio) {
	p.Work.Joint = share
	p.Events = slices.DeleteFunc(p.Events, func(e Event) bool { return e.Verb == View })
}

// Far is the name of the lock that is on the nodes of FarNodes alone, for Work.Joint.
const Far = "far"

// FarNodes is how many of the plan's nodes, the first of them, Far is on.
func (p *Plan) FarNodes() int { return max(1, p.Nodes-2) }

// FarWords names them.
func (p *Plan) FarWords() string {
	if n := p.FarNodes(); n > 1 {
		return "n1 to n" + strconv.Itoa(n)
	}
	return "n1"
}

// Network is how all links behave apart from faults.
type Network struct {
	Delay Range // one way
}

// Assumptions are what the run takes for granted. A violation in a run that breaks one
// names it, and is no bug.
type Assumptions struct {
	Drift Ratio // by how much the rates of a client's and a node's clock may differ
}

// A Range is drawn from evenly.
type Range struct{ Min, Max time.Duration }

// A Ratio is in millionths.
type Ratio int64

// Percent makes a ratio.
func Percent(p int64) Ratio { return Ratio(p * 10_000) }

// New returns a plan of n nodes and c clients without faults.
func New(n, c int) *Plan {
	return &Plan{
		Nodes:   n,
		Clients: c,
		Length:  10 * time.Second,
		Lock: Lock{
			Client: Redquorum, Lease: time.Second, MaxLease: time.Second, Timeout: 50 * time.Millisecond,
			Poll: 200 * time.Millisecond, Drift: Percent(1), Guard: true, Renew: true, Fence: true,
		},
		Work: Work{
			Names: 1, Tasks: 1, Hold: Range{time.Millisecond, 100 * time.Millisecond},
			Think:    Range{0, 50 * time.Millisecond},
			Expiring: Percent(100) / 8, Late: Percent(100) / 16,
		},
		Network: Network{Delay: Range{200 * time.Microsecond, 2 * time.Millisecond}},
		Assume:  Assumptions{Drift: Percent(1)},
	}
}

// An Event is one fault, or one step of a client.
type Event struct {
	At   time.Duration
	Verb Verb
	For  time.Duration // 0: until something else ends it

	Links Links // of verbs about links
	Procs Procs // of verbs about processes

	Ratio  Ratio         // loss, duplicate, reorder, rate, starve
	Range  Range         // delay, slow, and for duplicate how much later
	Offset time.Duration // step, skew, strobe; of extend, the lease
	Every  time.Duration // strobe
	Mode   Mode          // crash, demote, full
	// demote: the node whose copy it has, 0: none; sever: the servers at the other end;
	// lead: where to
	Source Set
	Kind   string        // hold: which commands; "" is all
	Count  int           // hold: how many; 0 is all
	Name   string        // a step's lock
	Lease  time.Duration // of a lock or try step; 0 is the plan's
	Fixed  bool          // of a lock or try step
	As     As            // of a lock or try step
}

type As string

const (
	ToRead  As = "read"
	ToWrite As = "write"
	Fairly  As = "fair"
)

// A Mode is what a crashed node comes back with, what a demoted one has, or what a full
// one lacks.
type Mode string

const (
	Durable Mode = "durable" // everything: appendfsync always
	Second  Mode = "second"  // all but the last second: appendfsync everysec
	Empty   Mode = "empty"   // nothing

	// Replica is another server in the node's place, that has run for long and has its
	// predecessor's keys except for the last second.
	Replica Mode = "replica"

	Disk   Mode = "disk"   // all writes are refused
	Memory Mode = "memory" // those are refused that need some
)

// Slice is the period in which a starved node gets its share of the processor.
const Slice = 100 * time.Millisecond

// Links are those between any of the clients and any of the nodes.
type Links struct {
	Clients, Nodes Set
	Way            Way
}

type Way byte

const (
	Both Way = '-'
	To   Way = '>' // from the client to the node
	From Way = '<' // from the node to the client
)

// Has reports whether way is meant.
func (w Way) Has(way Way) bool { return w == Both || w == way }

type Procs struct{ Clients, Nodes Set }

// A Set is a set of nodes or clients by number, from 0.
type Set uint64

const All Set = 1<<64 - 1

// Of makes a set.
func Of(numbers ...int) (s Set) {
	for _, n := range numbers {
		s |= 1 << n
	}
	return s
}

func (s Set) Has(i int) bool { return s>>i&1 == 1 }

func (s Set) Len() int { return bits.OnesCount64(uint64(s)) }

// First is the lowest number in the set.
func (s Set) First() int { return bits.TrailingZeros64(uint64(s)) }

type Verb string

// Verbs about links.
const (
	Cut       Verb = "cut"       // drops everything
	Delay     Verb = "delay"     // adds a delay
	Loss      Verb = "loss"      // a share is lost
	Duplicate Verb = "duplicate" // a share arrives again, that much later
	Reorder   Verb = "reorder"   // a share overtakes, or is overtaken
	Hold      Verb = "hold"      // keeps commands, until they are released
	Release   Verb = "release"   // lets what is held go on
	Deafen    Verb = "deafen"    // notices of releases are lost
	HalfOpen  Verb = "halfopen"  // connections are dead, and neither end knows
	Heal      Verb = "heal"      // ends all of these
	Reset     Verb = "reset"     // connections are closed, and both ends know
)

// Verbs about nodes.
const (
	Crash       Verb = "crash"
	Restart     Verb = "restart"
	Demote      Verb = "demote"      // it becomes a replica with other data, and refuses writes
	Promote     Verb = "promote"     // it is a master again, with what it has then
	Slow        Verb = "slow"        // each command takes that long
	Block       Verb = "block"       // a script runs for that long, and nothing else
	Full        Verb = "full"        // no disk or no memory is left: writes are refused
	Starve      Verb = "starve"      // they have the processor for a share of each Slice
	Evict       Verb = "evict"       // the locks are gone, their fences are not
	Flush       Verb = "flush"       // all keys are gone
	ScriptFlush Verb = "scriptflush" // the scripts are gone
	Alias       Verb = "alias"       // they are one server, each a database of it; at 0s
	Sever       Verb = "sever"       // nothing passes between them and their node's other servers
	Forge       Verb = "forge"       // a stranger repeats and forges their hand-overs
)

// Verbs about nodes and clients.
const (
	Pause   Verb = "pause"   // the process is stopped; its clocks run
	Suspend Verb = "suspend" // the machine sleeps; a node's time of day stands still
	Skew    Verb = "skew"    // the time of day is that far ahead of the true one
	Step    Verb = "step"    // the time of day jumps
	Rate    Verb = "rate"    // all clocks run that much faster
	Strobe  Verb = "strobe"  // the time of day oscillates
)

// Verbs about clients.
const (
	Kill  Verb = "kill"
	Start Verb = "start" // a killed client starts again
	View  Verb = "view"  // it was configured with these nodes alone; at 0s
	Clone Verb = "clone" // copies of one machine, with the same random numbers; at 0s
	Lead  Verb = "lead"  // their next connections to a node lead to that server
)

// Steps of a client.
const (
	DoLock   Verb = "lock"   // acquire, and wait for it
	DoTry    Verb = "try"    // acquire, without waiting
	DoUnlock Verb = "unlock" // release what was acquired last
	DoExtend Verb = "extend"
	DoWrite  Verb = "write"  // write to the resource that the lock protects
	DoCheck  Verb = "check"  // ask the lease whether it is valid; the next write uses the answer
	DoCancel Verb = "cancel" // end the context of the acquisition under way

	DoDowngrade Verb = "downgrade" // go on to read after writing

	DoDetach  Verb = "detach"  // detach the latest lease; any client can resume it
	DoHandle  Verb = "handle"  // the same, and go on
	DoResume  Verb = "resume"  // resume the lease that was detached, or whose handle was given, last
	DoBreak   Verb = "break"   // unlock by force
	DoInspect Verb = "inspect" // ask who holds a lock
	DoClose   Verb = "close"   // close the Locker
)

type group byte

const (
	onLinks group = iota + 1
	onNodes
	onProcs
	onClients
	isStep
)

var groups = map[Verb]group{
	Cut: onLinks, Delay: onLinks, Loss: onLinks, Duplicate: onLinks, Reorder: onLinks, Hold: onLinks,
	Release: onLinks, Deafen: onLinks, HalfOpen: onLinks, Heal: onLinks, Reset: onLinks,
	Crash: onNodes, Restart: onNodes, Demote: onNodes, Promote: onNodes, Slow: onNodes, Block: onNodes, Full: onNodes,
	Starve: onNodes, Evict: onNodes, Flush: onNodes, ScriptFlush: onNodes, Alias: onNodes, Sever: onNodes,
	Forge: onNodes,
	Pause: onProcs, Suspend: onProcs, Skew: onProcs, Step: onProcs, Rate: onProcs, Strobe: onProcs,
	Kill: onClients, Start: onClients, View: onClients, Clone: onClients, Lead: onClients,
	DoLock: isStep, DoTry: isStep, DoUnlock: isStep, DoExtend: isStep, DoWrite: isStep, DoCheck: isStep,
	DoCancel:    isStep,
	DoDowngrade: isStep, DoDetach: isStep, DoHandle: isStep, DoResume: isStep, DoBreak: isStep, DoInspect: isStep,
	DoClose: isStep,
}

// IsStep reports whether the verb is a step of a client, not a fault.
func (v Verb) IsStep() bool { return groups[v] == isStep }

// Stays reports whether the verb's effect lasts unless "for" ends it. A step of the time
// of day is over at once, even if it is taken back later.
func (v Verb) Stays() bool { return lasts[v] && v != Step || v == Rate }

func (v Verb) OnLinks() bool { return groups[v] == onLinks }

func (p *Plan) Scripted(c int) bool {
	for _, e := range p.Events {
		if e.Verb.IsStep() && e.Procs.Clients.Has(c) {
			return true
		}
	}
	return false
}

func (p *Plan) Names() (names []string) {
	random := false
	for c := range p.Clients {
		random = random || !p.Scripted(c)
	}
	if random {
		for i := range p.Work.Names {
			names = append(names, p.Work.Name(i))
		}
	}
	for _, e := range p.Events {
		for name := range strings.SplitSeq(e.Name, ",") {
			if name != "" && !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	return names
}

// Name returns the i-th name, from 0.
func (w *Work) Name(i int) string { return "x" + strconv.Itoa(i+1) }

// DropClient removes a client, by number from 0. Those after it move up.
func (p *Plan) DropClient(i int) {
	p.Clients--
	p.drop(func(e *Event) []*Set { return []*Set{&e.Links.Clients, &e.Procs.Clients} }, i)
}

// DropNode removes a node, by number from 0. Those after it move up.
func (p *Plan) DropNode(i int) {
	p.Nodes--
	p.Lock.Need = min(p.Lock.Need, p.Sites())
	p.drop(func(e *Event) []*Set { return []*Set{&e.Links.Nodes, &e.Procs.Nodes, &e.Source} }, i)
}

// drop also removes events that are about i alone.
func (p *Plan) drop(sets func(*Event) []*Set, i int) {
	p.Events = slices.DeleteFunc(slices.Clone(p.Events), func(e Event) bool {
		for _, s := range sets(&e) {
			if *s == Of(i) {
				return true
			}
		}
		return false
	})
	for n := range p.Events {
		for _, s := range sets(&p.Events[n]) {
			if *s != All {
				*s = *s&(1<<i-1) | *s>>(i+1)<<i
			}
		}
	}
}

func (p *Plan) Need() int {
	if p.Lock.Need > 0 {
		return p.Lock.Need
	}
	return p.Sites()/2 + 1
}

// Sites is how many nodes a lock has, each one server or a primary with its replicas.
func (p *Plan) Sites() int { return p.Nodes / (1 + p.Lock.Replicas) }

// Members returns the servers that are one node together with server n.
func (p *Plan) Members(n int) (members Set) {
	size := 1 + p.Lock.Replicas
	for i := range size {
		members |= Of(n/size*size + i)
	}
	return members
}

// Site returns how many nodes, the first of the plan's, a lock is on, and how many must
// grant it.
func (p *Plan) Site(name string) (nodes, need int) {
	if name == Far {
		return p.FarNodes(), p.FarNodes()/2 + 1
	}
	return p.Sites(), p.Need()
}

// Server returns the nodes on one server with node n: n alone unless they are aliases.
func (p *Plan) Server(n int) Set {
	nodes := Of(n)
	for i := range p.Events {
		if e := &p.Events[i]; e.Verb == Alias && e.Procs.Nodes.Has(n) {
			nodes = e.Procs.Nodes & (1<<p.Nodes - 1)
		}
	}
	return nodes
}

// Lists returns the nodes that a client was configured with.
func (p *Plan) Lists(client int) Set {
	for i := range p.Events {
		if e := &p.Events[i]; e.Verb == View && e.Procs.Clients.Has(client) {
			return e.Procs.Nodes
		}
	}
	return All
}

// Quorum is how many of its nodes must grant a client a lock at least. A client that
// lists fewer nodes needs as many of them, if there are, and at least a majority.
func (p *Plan) Quorum(client int) int {
	if n := p.listed(client).Len(); n < p.Nodes {
		return max(n/2+1, min(n, p.Lock.Need))
	}
	return p.Need()
}

func (p *Plan) listed(client int) Set { return p.Lists(client) & (1<<p.Nodes - 1) }

// MayForget returns how many nodes may forget locks unnoticed while any quorums of two
// clients share one that has not: two quorums overlap in as many as they have together
// beyond the nodes of both lists. It is negative if they need not overlap.
func (p *Plan) MayForget() int {
	least := p.Nodes
	for a := range p.Clients {
		for b := range a + 1 {
			least = min(least, p.Quorum(a)+p.Quorum(b)-(p.listed(a)|p.listed(b)).Len()/(1+p.Lock.Replicas)-1)
		}
	}
	if p.Work.Joint > 0 {
		nodes, need := p.Site(Far)
		least = min(least, 2*need-nodes-1)
	}
	return least
}

// TooForgetful reports whether more nodes forget locks unnoticed than may. With replicas
// none may.
func (p *Plan) TooForgetful() bool {
	var nodes Set
	for i := range p.Events {
		for n := range p.Nodes {
			if e := &p.Events[i]; (e.Verb == Evict || e.Verb == Flush) && e.Procs.Nodes.Has(n) {
				nodes |= p.Server(n)
			}
		}
	}
	return nodes.Len() > p.MayForget() || nodes != 0 && p.Lock.Replicas > 0
}

// Core returns the nodes that are healed after the faults, as many as must grant a lock.
// The simulator draws others.
func (p *Plan) Core() (core Set) {
	for i := range p.Need() {
		core |= Of((int(p.Seed%uint64(p.Nodes)) + i) % p.Nodes)
	}
	if p.Work.Joint > 0 {
		core |= 1<<(p.FarNodes()/2+1) - 1
	}
	for n := range p.Nodes {
		if p.Server(n) != Of(n) { // some may be ignored
			core |= 1<<p.Nodes - 1
		}
	}
	return core
}
