// Package faults is failures as data.
//
// A [Plan] says everything that one run needs: how many nodes and clients there
// are, what the clients do, how the network behaves, what is assumed, and what
// goes wrong when. It is a text that a person writes and reads:
//
//	redquorum plan 1
//	nodes 5
//	clients 2
//	length 3s
//	lock lease=1s timeout=50ms guard=off   # off: the restart guard
//	network delay=1ms
//	at 0s cut c1-n4,n5            # c1 reaches n1, n2 and n3: a bare majority
//	at 1ms lock c1 x              # it has the lock on them
//	at 40ms crash n3 empty        # n3 forgets it
//	at 50ms restart n3
//	at 60ms lock c2 x             # n3, n4 and n5 grant it: two clients hold x
//
// [Parse] reads it, [Plan.String] writes it, and each undoes the other.
// [Generate] draws a plan from a seed.
//
// The words are those of a deployment and not of a simulator: the same plan can
// be carried out on real servers, with a proxy on the links and signals to the
// processes.
//
// # The language
//
// The first line names the format. Each further line is one setting, or some of lock
// or of work; # begins a comment. Settings that are left out are as in [New], but
// maxlease is no shorter than lease. Each setting is given at most once.
//
//	seed N        of everything that is left to chance
//	nodes N       n1, n2, ...
//	clients N     c1, c2, ...: each is a process with clocks of its own
//	length TIME   how long faults happen; then a majority of the nodes is healed,
//	              other faults remain, and everybody must get the lock
//	lock ...      client=redquorum|plain lease= maxlease= timeout= poll= grace=
//	              drift=1% guard=on|off renew=on|off maxhold= maxdown= fence=on|off;
//	              need=N, how many nodes must grant; 0 is a majority;
//	              mistake=, which a plain client makes: see Mistakes; replicas=N:
//	              each 1+N of the nodes are one node of the lock, at first a primary
//	              and its replicas, so nodes is a multiple of 1+N
//	work ...      what clients without steps do: names=N tasks=N hold=RANGE
//	              think=RANGE, and shares such as 30%: expiring= of holds, which
//	              last about as long as the lease (0.9 to 1.1 times it) instead of
//	              hold=, 12.5% if left out; late= of writes to the resource, which
//	              arrive up to two leases later (the lock is held until then), 6.25%
//	              if left out; try= fixed= long= extend= cancel= nest= close= drop=; short= of
//	              leases, that last a tenth of lease=; step=TIME, which each step of
//	              a process takes its processor: an answer, a notice, a timer or a task
//	              that comes meanwhile waits its turn (not on real servers);
//	              hand= of holds, that are detached and resumed by a client;
//	              handle= of holds, that a client resumes while the holder goes on;
//	              break= and inspect= of acquisitions, before which the name is unlocked by
//	              force, or inspected; bound= of acquisitions that wait, that do so for
//	              at most two leases; minhold= of acquisitions to be alone, whose names
//	              stay taken for a tenth to nine tenths of maxlease=; label= of processes,
//	              whose Locker has a label (on real servers all have); odd= of
//	              processes, whose Locker has half of timeout= and poll=, twice maxlease=, and may
//	              need more nodes (not on real servers), and of calls, such as to ask
//	              for locks of different kinds as one; and of what kind
//	              their locks are: read= and write= of all, fair= of the others, down= of
//	              those to write, that go on to read; several=, of all the names at once,
//	              joint=, of some names here and the name far, which is on all nodes but
//	              the last two, as one; and chain= of those held, under which a later name
//	              is waited for
//	network delay=RANGE   one way, on every link
//	assume drift=1%       how much a client's and a node's clock may differ in rate
//	at TIME VERB TARGET [ARGUMENTS] [for TIME]
//
// A time is 1.5s or 200us, a range 1ms..5ms. Links are written c1-n4,n5, with >
// instead of - for the way to the node alone, < for the way back; c* and n* are
// all. With "for" a fault ends by itself. That undoes its own effect only.
//
//	cut LINKS                     drops everything
//	delay LINKS RANGE             adds a delay to everything
//	loss LINKS SHARE              a share is lost
//	duplicate LINKS SHARE RANGE   a share arrives again, that much later
//	reorder LINKS SHARE           a share is overtaken
//	hold LINKS [acquire|release|extend|rename] [N]   commands, or N of them, are kept
//	release LINKS                 what is held goes on
//	deafen LINKS                  notices of releases are lost
//	halfopen LINKS                the connections are dead, and neither end knows:
//	                              what is sent on them is lost, and nodes count their
//	                              subscribers. New ones work. In the end both know
//	heal [LINKS]                  ends all of these
//	reset LINKS                   the connections are closed, and both ends know
//	crash NODES durable|second|empty|replica   what they come back with: all, all
//	                              but the last second, nothing; or a replica takes
//	                              over, which lacks the last second too
//	restart NODES                 they come back
//	demote NODES durable|second|empty|NODE   they become replicas: of a master that is
//	                              not there, one that lacks their last second, one
//	                              with nothing, or NODE. They answer, and refuse writes
//	promote NODES                 they are masters again, with what they have then
//	sever NODES NODES             with replicas=: nothing passes between the former and
//	                              the latter. There, demote NODES NODE lets them follow
//	                              NODE: they get a copy, which begins with nothing, and then
//	                              all that it executes
//	forge NODES                   a user who has no right to the locks hears what NODES hand
//	                              over, and says so on each of them, as it is or changed, at
//	                              once and later (not on real servers)
//	slow NODES RANGE              each command takes that long
//	block NODES for TIME          a script runs, and nothing else
//	full NODES disk|memory        no more is left: all writes are refused, or those that
//	                              need memory; locks expire and can be read, and without
//	                              memory be released and extended
//	starve NODES SHARE            they run for that share of each 100ms, its beginning,
//	                              and stand still for the rest
//	evict NODES, flush NODES      the locks, or all keys, are gone
//	scriptflush NODES             the scripts are
//	alias NODES                   they are one server, each a database of it: what
//	                              happens to one does to all; only at 0s
//	pause PROCS for TIME          stopped; the clocks run. PROCS: nodes or clients
//	suspend PROCS for TIME        the machine sleeps
//	skew PROCS TIME               the time of day is that far off
//	step PROCS TIME               it jumps
//	rate PROCS SHARE              all clocks run that much faster
//	strobe PROCS TIME PERIOD for TIME   the time of day oscillates
//	kill CLIENTS, start CLIENTS
//	view CLIENTS NODES            they were given these nodes alone; only at 0s
//	lead CLIENTS NODE             with replicas=: their next connections to this node of
//	                              the lock are to that server; at first to its primary
//	clone CLIENTS                 they draw the same random numbers; only at 0s
//
// Steps of clients are done in their order, each at its time or when the one
// before has ended:
//
//	lock CLIENTS NAMES [lease=TIME|fixed=TIME] [read|write|fair]   acquire, and
//	                              wait for it; several names are x,y
//	try CLIENTS NAMES ...         the same without waiting
//	downgrade CLIENTS             go on to read what was locked to write
//	check CLIENTS                 ask the lease whether it is valid
//	write CLIENTS [TIME]          write to the resource, if the last check, or one
//	                              made now, allows it; it arrives that much later
//	extend CLIENTS TIME, unlock CLIENTS
//	cancel CLIENTS                end the acquisition under way
//	detach CLIENTS                detach what was locked last
//	handle CLIENTS                give out its handle, and go on
//	resume CLIENTS NAMES          resume what any client detached of these names, or gave
//	                              the handle of, last
//	break CLIENTS NAME            unlock by force, whatever the owner
//	inspect CLIENTS NAME          ask who holds it
//	close CLIENTS                 close the Locker, and do nothing more
//
// A client with steps keeps what it has locked until it unlocks it or the lease
// ends; with renew=on that is forever, and then others wait in vain.
//
// # What may change
//
// The language is stable from the first release on: a plan stays valid, and means the
// same. The Go API of this package may change in any release, and so may the plan that
// [Generate] draws from a seed.
package faults

import _ "embed"

// Doc is the source of this package's documentation, which has the language of plans.
//
//go:embed doc.go
var Doc string
