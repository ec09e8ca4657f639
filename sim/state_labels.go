package sim

import (
	"slices"
	"strings"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/faults"
	"github.com/redquorum/redquorum/node"
)

// On a node the label of a Locker (quorum.Options.Label) is a lock, which checks of locks
// do not see.

type labels struct {
	kept map[string]*keptLabel // by the name that the label has on the nodes
	once bool                  // each acquisition is of one name, by one Locker in each process
}

type keptLabel struct {
	c     *Client
	until clock.Instant // when it expires where it was written last, by the client's clock
}

const lookEvery = 100 * time.Millisecond

var labelName, askName = node.LabelName(""), node.AskName("")

// isText is true for labels and announcements, which are not locks of a program.
func isText(name string) bool {
	return strings.HasPrefix(name, labelName) || strings.HasPrefix(name, askName)
}

func isLabel(cmd *node.Command) bool { return isText(cmd.Claims[0].Name) }

// asks is true for the release with which an Ask ends, which waits for the answers. That
// of an announcement does not, and its fence is for a millisecond.
func asks(cmd *node.Command) bool {
	return strings.HasPrefix(cmd.Claims[0].Name, askName) && cmd.Kind == node.Release &&
		cmd.Retention > time.Millisecond
}

func newLabels(p *faults.Plan) labels {
	several := slices.ContainsFunc(p.Events, func(e faults.Event) bool { return strings.Contains(e.Name, ",") })
	return labels{kept: make(map[string]*keptLabel), once: p.Work.Several+p.Work.Joint == 0 && !several}
}

func (x *labels) writes(c *Client, cmd *node.Command) {
	if cmd.Kind == node.Inspect {
		return
	}
	l := x.kept[cmd.Claims[0].Name]
	if l == nil {
		l = &keptLabel{c: c}
		x.kept[cmd.Claims[0].Name] = l
	}
	l.until = c.Now().Add(cmd.TTL)
}

func (w *world) withLabel(label string) *Client {
	return find(slices.Concat(w.clients, w.dead), func(c *Client) bool { return c.label == label })
}

func (c *Client) hasAskedFor(names []string) bool {
	return slices.ContainsFunc(names, func(name string) bool {
		return c.grants[name] != nil || slices.Contains(c.resumes, name) ||
			slices.ContainsFunc(c.calls, func(o *call) bool { return slices.Contains(o.names, name) })
	})
}
