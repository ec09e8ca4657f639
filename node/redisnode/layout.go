package redisnode

import "github.com/redquorum/redquorum/node"

// append appends the Redis command of c to w: its script, as text for a server
// that may not know it, otherwise as its SHA, and its keys and arguments, in the
// order that the head of the script says.
func (c *call) append(w *words, asText bool) {
	run := func(keys, args int) {
		w.begin(3 + keys + args)
		if asText {
			w.text("eval")
			w.text(scripts[c.kind].text)
		} else {
			w.text("evalsha")
			w.text(scripts[c.kind].sha)
		}
		w.number(int64(keys))
	}
	if c.kind == 0 {
		w.begin(1)
		w.text("ping")
		return
	}
	one, n := &c.claims[0], len(c.claims)
	switch c.kind {
	case node.Acquire:
		run(2*n, 4)
		c.locksAndFences(w)
		w.text(one.Owner)
		w.number(int64(one.Token))
		w.number(c.ttl)
		w.number(c.keep)
	case node.Release:
		run(2*n, 3+n)
		c.locksAndFences(w)
		w.text(one.Owner)
		w.number(int64(one.Token))
		w.number(c.keep)
		for i := range c.claims {
			w.channel(c.claims[i].Name)
		}
	case node.Extend:
		run(n, 1+n)
		for i := range c.claims {
			w.text(c.claims[i].Name)
		}
		w.number(c.ttl)
		for i := range c.claims {
			w.text(c.claims[i].Owner)
		}
	case node.Inspect:
		run(2, 0)
		c.locksAndFences(w)
	case node.Break:
		run(2, 3)
		c.locksAndFences(w)
		w.number(int64(one.Token))
		w.number(c.keep)
		w.channel(one.Name)
	}
}

func (c *call) locksAndFences(w *words) {
	for i := range c.claims {
		w.text(c.claims[i].Name)
		w.fenceKey(c.claims[i].Name)
	}
}

func (w *words) fenceKey(name string) {
	var room [128]byte
	w.bytes(node.AppendFenceKey(room[:0], name))
}

func (w *words) channel(name string) {
	var room [128]byte
	w.bytes(node.AppendChannel(room[:0], name))
}
