// Methods of labels: settings that differ between programs.

package quorum

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/quorum/internal/core"
	"github.com/redquorum/redquorum/quorum/internal/machine"
)

var errSettings = errors.New("another program has other settings")

// This file compares what has to be the same in all programs that share locks.
//
// On the nodes the settings of a Locker are a reader of one name, with their text as its
// owner. So programs with the same settings are one reader, and one inspection finds all
// that differ, unless there are dozens. Like labels, they are for people: nothing depends
// on them.

// settingsOf returns the text of settings on these nodes; need must grant.
func settingsOf(nodes []node.Node, need int, o *Options) string {
	var replicas []int
	for _, n := range nodes {
		if r, ok := n.(node.Replicated); ok && r.Replicas() > 0 {
			replicas = append(replicas, r.Replicas())
		}
	}
	slices.Sort(replicas)
	return fmt.Sprintf("nodes %d, quorum %d, replicas %v, MaxLease %v, Grace %v", len(nodes), need, replicas,
		o.MaxLease, o.Grace)
}

// compareSettings keeps the settings on the nodes for a time, and looks whether those of
// others differ.
func (x *labels) compareSettings(in core.Step, token node.Token, ttl time.Duration) {
	c := node.Command{Mode: node.Read, Claims: []node.Claim{{Name: node.SettingsName, Owner: x.settings, Token: token}},
		TTL: ttl, Retention: time.Millisecond, Deadline: in.Now().Add(x.opts.Timeout)}
	for _, c.Kind = range []node.Kind{node.Acquire, node.Extend, node.Inspect} {
		in.Send(in.All(), c, func(in core.Step, i int, r node.Reply) {
			if r.State != nil && r.State.Type == "hash" {
				x.foundSettings(in, i, r.State.Fields)
			}
		})
	}
}

// foundSettings reports settings on node i that differ, each once.
func (x *labels) foundSettings(in core.Step, i int, on []node.Field) {
	for _, f := range on {
		other := shortText(f.Name, maxLabel) // another program wrote it
		if f.Name == x.settings || f.Name == node.ModeField || x.differing[other] || len(x.differing) == maxLabels {
			continue
		}
		x.differing[other] = true
		err := fmt.Errorf("%w: %s; here: %s", errSettings, other, x.settings)
		name := x.core.Nodes[i].Name()
		in.Tell(machine.Event{Kind: machine.EventSettingsDiffer, Node: name, Err: err})
		in.Log(slog.LevelError, "another program has other settings: both may hold one lock", "node", name, "there",
			other, "here", x.settings)
	}
}
