package courier

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/node"
)

// A Client leads to servers over connections of its own, such as a client for a cluster.
// A reply is an int64, a string, nil, a list of these as []any, or an error.
type Client interface {
	// Ask sends the same commands to each server, and returns what each replies.
	Ask(ctx context.Context, commands [][]string) (replies [][]any, err error)

	// Send sends each command to the server that has its first key, which is the fourth
	// word, but only to servers that have answered the last Ask. It waits for the replies
	// for d at most.
	Send(commands [][]string, d time.Duration) (replies []any)

	Subscribe(channels []string) Subscription
	Close()
}

// lifeKnownFor is how long a shared link goes without asking for lives again: a Client
// makes new connections without notice.
const lifeKnownFor = time.Second

// shared is the route through a Client, and its own link, which sends what is queued as
// one pipeline after the other.
type shared struct {
	Client
	timeout time.Duration // for Ask
	others  bool          // see Target.Renews
	clock   clock.Clock   // the node's: it counts the time for which the machine was suspended
	opened  clock.Instant // when the present link was
}

func (r *shared) oneServer() bool { return false }

func (r *shared) renews() bool { return r.others }

func (r *shared) close() { r.Close() }

// As a link it has nothing to end: each Send has a bound.
func (r *shared) abort() {}

func (r *shared) drop() {}

func (r *shared) open(ctx context.Context) (link, []string, error) {
	ctx, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	r.opened = r.clock.Now()
	servers, err := r.Ask(ctx, introduction)
	if err != nil {
		return nil, nil, err
	}
	var texts []string
	for _, replies := range servers {
		var answers []result
		for _, reply := range replies {
			answers = append(answers, understand(reply))
		}
		text, err := introduced(answers)
		if err != nil {
			return nil, nil, err
		}
		texts = append(texts, text)
	}
	return r, texts, nil
}

func (r *shared) subscribe(_ context.Context, channels []string) (sub Subscription, life string, err error) {
	return r.Subscribe(channels), "", nil
}

func (r *shared) carry(q *queue, _ func() bool, life *node.Life) error {
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	var batch []*call
	var results []result
	for {
		switch work, over := q.await(ticker.C, nil); {
		case over:
			return nil
		case !work:
			continue
		case r.clock.Now().Sub(r.opened) >= lifeKnownFor:
			return nil
		}
		if batch = q.take(batch); len(batch) == 0 {
			continue
		}
		results = r.send(q, batch, results[:0])
		clear(batch)
		if !q.settle(results, life) {
			return nil
		}
	}
}

func (r *shared) send(q *queue, batch []*call, results []result) []result {
	var commands [][]string
	latest := batch[0].deadline
	for _, c := range batch {
		var w words
		c.append(&w, c.asText, "") // the life is that of all servers together
		commands = append(commands, w.list())
		latest = max(latest, c.deadline)
	}
	for _, reply := range r.Send(commands, min(latest.Sub(q.clock.Now()), maxSilence)) {
		results = append(results, understand(reply))
	}
	return results
}

// submitEach sends an Extend of many claims as one command for each: a script cannot
// touch keys on different servers. A claim without an answer makes the whole one Unknown.
// The life is the youngest of the answers', or none if one has none.
func submitEach(submit func(node.Command, func(node.Reply)), cmd node.Command, reply func(node.Reply)) {
	var mu sync.Mutex
	open := len(cmd.Claims)
	all := node.Reply{Status: node.Done, Kept: make([]bool, open)}
	unsent, lives := true, make([]*node.Life, open)
	for i := range cmd.Claims {
		one := cmd
		one.Claims = cmd.Claims[i : i+1]
		submit(one, func(r node.Reply) {
			mu.Lock()
			unsent = unsent && r.Unsent
			if r.Err != nil && all.Err == nil {
				all.Status, all.Err = node.Unknown, r.Err
			}
			if r.Err == nil {
				all.Kept[i], lives[i] = r.Kept[0], r.Life
			}
			open--
			last := open == 0
			mu.Unlock()
			if !last {
				return
			}
			if all.Err != nil {
				all.Kept, all.Unsent = nil, unsent
			} else if !slices.Contains(lives, nil) {
				all.Life = slices.MaxFunc(lives, func(a, b *node.Life) int { return cmp.Compare(a.Born, b.Born) })
			}
			reply(all)
		})
	}
}
