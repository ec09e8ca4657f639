package play

import "github.com/redquorum/redquorum/sim"

// A Chapter shows one known failure, with the plan of a scenario or one of its own.
type Chapter struct {
	Title    string `json:"title"`
	Scenario string `json:"scenario,omitempty"`
	Left     string `json:"left"`     // the variant on the left; redquorum is on the right
	What     string `json:"what"`     // happens
	Protects string `json:"protects"` // what does
	Plan     string `json:"plan"`
}

// oldVote shows a bug of an earlier engine: its plan is in sim/testdata/bugs.
const oldVote = `redquorum plan 1
nodes 3
clients 2
length 3s
lock lease=3s timeout=1s poll=1s
network delay=1ms
at 0s hold c1>n3 acquire 1
at 1ms lock c1 x lease=300ms
at 15ms hold c2>n1 acquire for 600ms
at 15ms hold c2>n2 acquire for 900ms
at 20ms lock c2 x
at 30ms crash n3 empty for 5ms
at 210ms cut c1-n1
at 2s unlock c2
`

func Chapters() []Chapter {
	all := []Chapter{
		{Title: "A restart forgets", Scenario: "S13",
			What: "c1 holds the lock on n1, n2 and n3. n3 crashes and comes back empty. " +
				"c2 reaches n3, n4 and n5, and all three are free: on the left two clients hold one lock.",
			Protects: "On the right the restart guard does. A server that started a moment ago is ignored until every " +
				"lease that it may have forgotten is over. c2 waits for that time."},
		{Title: "The holder pauses", Scenario: "S01",
			What: "c1 checks that its lease is valid, and is then paused for two " +
				"seconds, as by a garbage collection or a move of its virtual machine. Meanwhile its lease ends, and c2 gets the lock and " +
				"writes. Then c1 goes on where it was, and writes as well.",
			Protects: "No lock can prevent the late write. The resource can: it has seen c2's fencing token, which is higher, and " +
				"refuses that of c1. Textbook Redlock has no tokens."},
		{Title: "Clocks drift", Scenario: "S07",
			What: "The clocks of the nodes run half a percent fast, that of c1 half a percent " +
				"slow. So the keys expire before c1 considers its lease over. The allowance of the left lock covers one of the two " +
				"clocks only.",
			Protects: "An allowance for both clocks together: with Drift at 1 % a lease ends in its holder that much earlier."},
		{Title: "A command comes late", Scenario: "S28",
			What: "The network keeps back a release of c1's first attempt. It arrives " +
				"when c1 has locked again, and removes the new key, because both attempts had the same value. Then c2 gets a majority.",
			Protects: "Each attempt has an owner of its own. A late release finds nothing that it may remove."},
		{Title: "The old primary goes on", Scenario: "S70",
			What: "n1 has two replicas. Those who watch over it cannot reach it, and make n2 the " +
				"primary, which n3 follows from then on. c2 is led there. c1 can still reach n1, which knows nothing of all that.",
			Protects: "A grant and an extension count only when a majority of the primary and its replicas has them: replicas=2 in " +
				"the URL, see docs/managed.md. n1 has no replica left. Independent servers need no replicas at all."},
		{Title: "A healed node, an old vote", Plan: oldVote, Left: "no guard",
			What: "n3 votes for c2, and forgets it in a restart, while the other " +
				"commands of c2 are late. c1 holds the lock with a short lease, and gets its key on n3 back. Then n1 is cut off from c1, and its key " +
				"there ends. The formal model has found this.",
			Protects: "Attempts are decided soon, within a third of their lease, and renewals count a node only when it has run for longer " +
				"than that. So the vote of c2 and the healed key of c1 never count both. The left lock has neither rule, and c2 needs one vote more."},
		{Title: "A ghost lock", Scenario: "S24",
			What: "The commands of c1 to three nodes are kept back. c1 gives up, and " +
				"releases. Then the links heal, the old commands arrive, and the nodes are locked for nobody. On the left c2 " +
				"waits for the rest of a lease.",
			Protects: "A node refuses a token that was released, even if the release arrives first. Nothing is left over, and c2 " +
				"gets the lock at once."},
		{Title: "A slow minority", Scenario: "S38", Left: sim.Mistaken,
			What: "n5 takes 1.2 seconds for each command. The left lock " +
				"waits for every node, as some clients do, until nothing is left of its lease. It is safe, and takes seconds for what should " +
				"take milliseconds.",
			Protects: "An attempt is decided by the majority. Nobody waits for the slow node."},
	}
	for i := range all {
		c := &all[i]
		if s, ok := sim.FindScenario(c.Scenario); ok {
			c.Plan = s.Text()
		}
		if c.Left == "" {
			c.Left = "plain"
		}
	}
	return all
}
