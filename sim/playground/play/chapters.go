package play

import "github.com/redquorum/redquorum/sim"

// A Chapter shows one known failure, with a plan of a scenario.
type Chapter struct {
	Title    string `json:"title"`
	Scenario string `json:"scenario"`
	Left     string `json:"left"`     // the variant on the left; redquorum is on the right
	What     string `json:"what"`     // happens
	Protects string `json:"protects"` // what does
	Plan     string `json:"plan"`
}

// Chapters returns all chapters, with their plans.
func Chapters() []Chapter {
	all := []Chapter{
		{Title: "The holder pauses", Scenario: "S01", What: "c1 checks that its lease is valid, and is then paused for two " +
			"seconds, as by a garbage collection or a move of its virtual machine. Meanwhile its lease ends, and c2 gets the lock and " +
			"writes. Then c1 goes on where it was, and writes as well.",
			Protects: "No lock can prevent the late write. The resource can: it has seen c2's fencing token, which is higher, and " +
				"refuses that of c1. Textbook Redlock has no tokens."},
		{Title: "A restart forgets", Scenario: "S13", What: "c1 holds the lock on n1, n2 and n3. n3 crashes and comes back empty. " +
			"c2 reaches n3, n4 and n5, and all three are free: two clients hold one lock.",
			Protects: "The restart guard. A server that started a moment ago is ignored until every lease that it may have " +
				"forgotten is over. c2 waits for that time."},
		{Title: "Clocks drift", Scenario: "S07", What: "The clocks of the nodes run half a percent fast, that of c1 half a percent " +
			"slow. So the keys expire before c1 considers its lease over. The allowance of the left lock covers one of the two " +
			"clocks only.",
			Protects: "An allowance for both clocks together: with Drift at 1 % a lease ends in its holder that much earlier."},
		{Title: "A command comes late", Scenario: "S28", What: "The network keeps back a release of c1's first attempt. It arrives " +
			"when c1 has locked again, and removes the new key, because both attempts had the same value. Then c2 gets a majority.",
			Protects: "Each attempt has an owner of its own. A late release finds nothing that it may remove."},
		{Title: "A replica takes over", Scenario: "S19", What: "The master n2 dies before its replica has the key of c1. The replica " +
			"takes over, and grants the same lock to c2.",
			Protects: "Independent masters, without replicas; or one primary whose grants count only when a majority of it and its " +
				"replicas has them: replicas=2 in its URL, as in scenario S70 and in docs/managed.md. Here neither is so. Still, a " +
				"client that knew the old master sees another server, and ignores it as one that has restarted."},
		{Title: "A ghost lock", Scenario: "S24", What: "The commands of c1 to three nodes are kept back. c1 gives up, and " +
			"releases. Then the links heal, the old commands arrive, and the nodes are locked for nobody. On the left c2 " +
			"waits for the rest of a lease.",
			Protects: "A node refuses a token that was released, even if the release arrives first. Nothing is left over, and c2 " +
				"gets the lock at once."},
		{Title: "A slow minority", Scenario: "S38", Left: sim.Mistaken, What: "n5 takes 1.2 seconds for each command. The left lock " +
			"waits for every node, as some clients do, until nothing is left of its lease. It is safe, and takes seconds for what should " +
			"take milliseconds.",
			Protects: "An attempt is decided by the majority. Nobody waits for the slow node."},
		{Title: "A hung majority", Scenario: "S39", What: "A long script runs on three of five nodes for half a second. c1 gives up its " +
			"attempt meanwhile. Afterwards the nodes execute what was sent to them, for a client that no longer wants it.",
			Protects: "Attempts have a time limit, and a release is repeated until each node has confirmed it. A node refuses a token " +
				"that was released."},
	}
	for i := range all {
		c := &all[i]
		s, ok := sim.FindScenario(c.Scenario)
		if !ok {
			panic("there is no scenario " + c.Scenario)
		}
		c.Plan = s.Text()
		if c.Left == "" {
			c.Left = "plain"
		}
	}
	return all
}
