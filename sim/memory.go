package sim

import (
	"time"

	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/node/model"
)

// A Memory is what a node keeps its keys in, and executes commands with. The
// methods mean what they mean for [model.Server], which is one, and which runs
// use unless told otherwise: see [WithMemory]. Keeps and Dump change nothing: they
// are asked about times that do not come to pass.
type Memory interface {
	Apply(now model.Time, cmd node.Command) (reply node.Reply, published []model.Notice)
	Tell(now model.Time, n model.Notice, waiter string, others bool) (owner string, token node.Token)
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
	ReadOnly(replica bool)
}

// WithMemory gives each node a memory of its own, made by empty. What happens in
// a run is the same with each that behaves as package node says.
func WithMemory(empty func() Memory) Option { return func(w *world) { w.memory = empty } }
