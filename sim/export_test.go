package sim

import "github.com/redquorum/redquorum/node/model"

type Memory = memory

// WithMemory gives each node a Memory that empty makes.
func WithMemory(empty func(model.Ears) Memory) Option { return func(w *world) { w.memory = empty } }
