package chaos

import (
	"context"
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/sim"
)

// A sampler looks at what a node has of each lock, after each answer of the node, and
// reports what has changed. A key that is gone again by then is not seen.
type sampler struct {
	w      *world
	number int
	names  []string
	due    chan time.Duration // since when
	latest map[string]sim.Entry
}

func newSampler(w *world, number int) *sampler {
	return &sampler{w: w, number: number, names: w.p.Names(), due: make(chan time.Duration, 1),
		latest: make(map[string]sim.Entry)}
}

// kick has the sampler look again.
func (s *sampler) kick() {
	select {
	case s.due <- s.w.now():
	default:
	}
}

func (s *sampler) run() {
	for {
		var since time.Duration
		select {
		case since = <-s.due:
		case <-s.w.ctx.Done():
			return
		}
		found, err := s.read()
		if err != nil {
			continue
		}
		for _, e := range found {
			if before := s.latest[e.Name]; before.Owner != e.Owner || before.Mode != e.Mode ||
				!reflect.DeepEqual(before.More, e.More) || (before.Until-e.Until).Abs() > 5*time.Millisecond {
				s.latest[e.Name] = e
				e.At = since // and not when it was seen: others have sent commands meanwhile
				s.w.report(e)
			}
		}
	}
}

// read returns who has each name.
func (s *sampler) read() (found []sim.Entry, err error) {
	h := s.w.hostAt[s.number]
	h.mu.Lock()
	down := h.dead
	h.mu.Unlock()
	if down {
		for _, name := range s.names {
			found = append(found, sim.Entry{At: s.w.now(), Kind: sim.KindKey, Client: -1, Node: s.number, Name: name})
		}
		return found, nil
	}
	c := redis.NewClient(&redis.Options{Addr: h.addr(), DB: s.w.database(s.number), MaxRetries: -1, DialerRetries: 1,
		PoolSize:        1,
		DisableIdentity: true, Protocol: 2, ContextTimeoutEnabled: true, ReadTimeout: 5 * time.Second})
	defer c.Close()
	ctx, cancel := context.WithTimeout(s.w.ctx, 5*time.Second)
	defer cancel()
	for _, name := range s.names {
		e := sim.Entry{Kind: sim.KindKey, Client: -1, Node: s.number, Name: name}
		var owners *redis.MapStringStringCmd
		var plain *redis.StringCmd
		var left *redis.DurationCmd
		_, err := c.Pipelined(ctx, func(p redis.Pipeliner) error {
			key := name
			if lock := s.w.plain(); lock != nil {
				key = lock.Key(name)
				plain = p.Get(ctx, key)
			} else {
				owners = p.HGetAll(ctx, key)
			}
			left = p.PTTL(ctx, key)
			return nil
		})
		if err != nil && err != redis.Nil {
			return nil, err
		}
		if e.At = s.w.now(); left.Val() > 0 {
			e.Until = e.At + left.Val()
			if plain != nil {
				e.Owner = plain.Val()
			} else {
				var fields []node.Field
				for _, name := range slices.Sorted(maps.Keys(owners.Val())) {
					fields = append(fields, node.Field{Name: name, Value: owners.Val()[name]})
				}
				e.Owners(fields)
			}
		}
		found = append(found, e)
	}
	return found, nil
}
