package live

import (
	"bufio"
	"cmp"
	"encoding/json"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/redquorum/redquorum/faults"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/sim"
)

// An Operation is one thing that a client did, for judges that know nothing of this
// project. Several locks that are acquired together are an Operation each.
type Operation struct {
	Client int           `json:"client"` // from 1
	Op     string        `json:"op"`     // acquire, release, read, write
	Name   string        `json:"name"`
	Mode   string        `json:"mode,omitempty"` // of the lock: read or write; exclusive otherwise
	Owner  string        `json:"owner"`          // the same from an acquire to its release
	Token  node.Token    `json:"token,omitempty"`
	Call   time.Duration `json:"call"` // when it began, and when it had ended
	Return time.Duration `json:"return"`

	Refused bool `json:"refused,omitempty"` // a read or a write, because its token was old
}

// History returns what the clients did, in the order in which it began. An acquire
// returns when the client begins to rely on the lock. A release is the instant at which
// it stops, because it unlocks, hears of the loss or dies, or the validity ends. The
// entries are those of a [sim.Result]. A lock that is held at the end has no release.
func History(p *faults.Plan, entries []sim.Entry) (all []Operation) {
	type owner struct {
		client int
		owner  string
	}
	type hold struct{ first, last *belief } // those between are renewals
	var holds []*hold
	latest := make(map[owner]*hold)
	c := Judge{}.hear(p, entries)
	for _, b := range c.beliefs {
		if b.to <= b.from {
			continue // it had ended when the client heard of it
		}
		h := latest[owner{b.client, b.owner}]
		if h == nil || h.last.to != b.from || h.last.mode != b.mode {
			h = &hold{first: b}
			holds = append(holds, h)
			latest[owner{b.client, b.owner}] = h
		}
		h.last = b
	}
	for _, h := range holds {
		all = h.first.operations(all, "acquire", h.first.asked, h.first.from)
		if h.last.to != never {
			all = h.last.operations(all, "release", h.last.to, h.last.to)
		}
	}
	for _, e := range c.entries {
		if e.Kind == sim.KindAccess {
			what, _, refused := strings.Cut(e.Text, ":")
			all = append(all, Operation{Client: e.Client + 1, Op: strings.TrimSuffix(what, "s"), Name: e.Name,
				Mode: e.Mode, Owner: e.Owner, Token: e.Token,
				Call: e.At, Return: e.At, Refused: refused})
		}
	}
	slices.SortStableFunc(all, func(a, b Operation) int { return cmp.Compare(a.Call, b.Call) })
	return all
}

func (b *belief) operations(all []Operation, op string, call, back time.Duration) []Operation {
	for _, name := range b.names {
		all = append(all, Operation{Client: b.client + 1, Op: op, Name: name, Mode: b.mode, Owner: b.owner,
			Token: b.token, Call: call, Return: back})
	}
	return all
}

// WriteHistory writes operations as lines of JSON.
func WriteHistory(out io.Writer, all []Operation) error {
	b := bufio.NewWriter(out)
	to := json.NewEncoder(b)
	for i := range all {
		if err := to.Encode(&all[i]); err != nil {
			return err
		}
	}
	return b.Flush()
}
