package sim

import (
	"time"

	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/node/model"
)

// A memory holds the keys of a node, and executes its commands: it is a [model.Server], or a test's own
// with faults. Keeps and Dump change nothing: they may be called with a time that is later than that of
// the next command.
type memory interface {
	Apply(now model.Time, cmd node.Command) (reply node.Reply, published []model.Notice)
	State(now model.Time, name string, state *node.State) error
	Keeps(now model.Time, name, owner string, mode node.Mode) (until model.Time, ok bool)
	Dump(now model.Time) []model.Entry

	HSet(now model.Time, key, field, value string) error
	PExpire(now model.Time, key string, ttl time.Duration)
	Del(key string)
	FlushAll()

	Expire(now model.Time)
	Sync()
	Restart(model.Loss)

	Load([]model.Entry)
	Refuse(error)
}
