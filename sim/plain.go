package sim

import (
	"time"

	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/node/model"
	"github.com/redquorum/redquorum/sim/internal/textbook"
)

func newTextbook(c *Client) *textbook.Client {
	b := &textbook.Client{Plan: c.w.p, Clock: c, Epoch: epoch, Draw: c.engine.Next, Below: c.engine.Below}
	for _, n := range c.asked() {
		b.Nodes = append(b.Nodes, n)
	}
	return b
}

// Ask implements textbook.Node.
func (l *link) Ask(op textbook.Op, cmd node.Command, answer func(node.Reply)) {
	l.submit(cmd, op, answer)
}

const plainScripts = 1 << 7

// applyPlain keeps a textbook's string as a field, so that all locks look the same.
func applyPlain(op textbook.Op, s memory, now model.Time, cmd node.Command) node.Reply {
	claim := cmd.Claims[0]
	_, mine := s.Keeps(now, claim.Name, claim.Owner, node.Exclusive)
	switch op {
	case textbook.Set:
		for _, e := range s.Dump(now) {
			if e.Key == claim.Name {
				return node.Reply{Status: node.Refused}
			}
		}
		_ = s.HSet(now, claim.Name, claim.Owner, "1") // there is nothing that could be of another type
		ttl := cmd.TTL
		if end := model.Time(claim.Token); end > 0 {
			ttl = time.Duration(end-now) * time.Millisecond
		}
		s.PExpire(now, claim.Name, ttl)
		return node.Reply{Status: node.Granted}
	case textbook.Count:
		// The fence of a node is its counter.
		seen, _ := s.Apply(now, node.Command{Kind: node.Inspect, Claims: cmd.Claims})
		claim.Token = seen.State.Fence + 1
		cmd.Claims, cmd.Retention = []node.Claim{claim}, 24*time.Hour
		r, _ := s.Apply(now, cmd)
		r.Fence = claim.Token
		return r
	case textbook.Delete, textbook.Drop:
		if !mine && op == textbook.Delete {
			return node.Reply{Status: node.Absent}
		}
		s.Del(claim.Name)
		return node.Reply{Status: node.Released}
	}
	switch {
	case mine:
		s.PExpire(now, claim.Name, cmd.TTL)
	case op == textbook.Recreate:
		mine = applyPlain(textbook.Set, s, now, cmd).Status == node.Granted
	}
	return node.Reply{Status: node.Done, Kept: []bool{mine}}
}
