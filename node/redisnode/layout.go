package redisnode

import "github.com/redquorum/redquorum/node"

// script is the script of c.
func (c *call) script() *script {
	switch c.kind {
	case node.Acquire:
		switch {
		case c.mode == node.Read:
			return &acquireReadScript
		case c.mode == node.Write:
			return &acquireWriteScript
		case c.waiting.Queued():
			return &acquireFairScript
		case len(c.claims) > 1:
			return &acquireAllScript
		}
		return &acquireScript
	case node.Release:
		switch {
		case c.mode != node.Exclusive:
			return &releaseSharedScript
		case c.waiting.Queued():
			return &releaseFairScript
		case len(c.claims) > 1:
			return &releaseAllScript
		}
		return &releaseScript
	case node.Extend:
		if c.mode == node.Read {
			return &extendReadScript
		}
		return &extendScript
	case node.Inspect:
		return &inspectScript
	case node.Downgrade:
		return &downgradeScript
	}
	return &breakScript
}

// append appends the Redis command of c to w: its script, as text for a server
// that may not know it, otherwise as its SHA, and its keys and arguments, in the
// order that the head of the script says.
//
// life is the ID of the server's, if it is known: without it no lock is handed on, as
// whoever gets it could not tell whether the server has a vote.
func (c *call) append(w *words, asText bool, life string) {
	if c.kind == 0 {
		words := introduction[c.part]
		w.begin(len(words))
		for _, word := range words {
			w.text(word)
		}
		return
	}
	run := func(keys, args int) { w.run(c.script(), asText, keys, args) }
	one, n := &c.claims[0], len(c.claims)
	switch c.script() {
	case &acquireScript, &acquireAllScript:
		run(2*n, 4)
		c.locksAndFences(w)
		w.text(one.Owner)
		w.number(int64(one.Token))
		w.number(c.ttl)
		w.number(c.keep)
	case &releaseScript, &releaseAllScript:
		next := c.handsOn(life)
		run(3*n, 3+n+next)
		c.locksAndFences(w)
		for i := range c.claims {
			w.queueKey(c.claims[i].Name)
		}
		w.text(one.Owner)
		w.number(int64(one.Token))
		w.number(c.keep)
		for i := range c.claims {
			w.channel(c.claims[i].Name)
		}
		if next > 0 {
			w.number(int64(c.handoff))
			w.text(life)
		}
	case &extendScript:
		run(n, 1+n)
		for i := range c.claims {
			w.text(c.claims[i].Name)
		}
		w.number(c.ttl)
		for i := range c.claims {
			if c.mode == node.Write {
				w.writer(c.claims[i].Owner)
			} else {
				w.text(c.claims[i].Owner)
			}
		}
	case &inspectScript:
		run(5, 2)
		w.text(one.Name)
		w.fenceKey(one.Name)
		w.readersKey(one.Name)
		w.intentKey(one.Name)
		w.queueKey(one.Name)
		w.placeKey(one.Name, "")
		w.holdPrefix(one.Name)
	case &breakScript:
		run(4, 4)
		c.locksAndFences(w)
		w.queueKey(one.Name)
		w.intentKey(one.Name)
		w.number(int64(one.Token))
		w.number(c.keep)
		w.channel(one.Name)
		w.sharedChannel(one.Name)

	case &acquireReadScript:
		run(5, 5)
		w.text(one.Name)
		w.fenceKey(one.Name)
		w.readersKey(one.Name)
		w.intentKey(one.Name)
		w.holdKey(one.Name, one.Owner)
		w.text(one.Owner)
		w.number(int64(one.Token))
		w.number(c.ttl)
		w.number(c.keep)
		w.number(c.placeTTL)
	case &acquireWriteScript:
		run(4, 7)
		w.text(one.Name)
		w.fenceKey(one.Name)
		w.readersKey(one.Name)
		w.intentKey(one.Name)
		w.writer(one.Owner)
		w.number(int64(one.Token))
		w.number(c.ttl)
		w.number(c.keep)
		w.holdPrefix(one.Name)
		w.text(c.waiting.Waiter)
		w.number(c.placeTTL)
	case &releaseSharedScript:
		run(4, 8)
		w.text(one.Name)
		w.fenceKey(one.Name)
		w.intentKey(one.Name)
		w.holdKey(one.Name, one.Owner)
		w.text(one.Owner)
		w.number(int64(one.Token))
		w.number(c.keep)
		w.sharedChannel(one.Name)
		w.holdPrefix(one.Name)
		w.text(c.waiting.Waiter)
		w.number(c.placeTTL)
		w.number(c.yieldTTL)
	case &extendReadScript:
		run(2*n, 1+n)
		for i := range c.claims {
			w.text(c.claims[i].Name)
			w.holdKey(c.claims[i].Name, c.claims[i].Owner)
		}
		w.number(c.ttl)
		for i := range c.claims {
			w.text(c.claims[i].Owner)
		}
	case &downgradeScript:
		run(2, 2)
		w.text(one.Name)
		w.holdKey(one.Name, one.Owner)
		w.text(one.Owner)
		w.sharedChannel(one.Name)

	case &acquireFairScript:
		channels := n
		if n == 1 {
			channels = 0 // it passes on no turn
		}
		run(4*n, 9+channels)
		c.linesAndPlaces(w)
		w.text(one.Owner)
		w.number(int64(one.Token))
		w.number(c.ttl)
		w.number(c.keep)
		w.number(int64(c.waiting.Ticket))
		w.text(c.waiting.Waiter)
		w.number(c.placeTTL)
		w.flag(c.waiting.Barge)
		if n == 1 {
			w.number(int64(c.waiting.Standby))
		} else {
			w.flag(c.waiting.Reserve)
		}
		for i := range channels {
			w.channel(c.claims[i].Name)
		}
	case &releaseFairScript:
		next := c.handsOn(life)
		run(4*n, 6+n+next)
		c.linesAndPlaces(w)
		w.text(one.Owner)
		w.number(int64(one.Token))
		w.number(c.keep)
		w.number(int64(c.waiting.Ticket))
		w.text(c.waiting.Waiter)
		w.number(c.placeTTL)
		for i := range c.claims {
			w.channel(c.claims[i].Name)
		}
		if next > 0 {
			w.number(int64(c.handoff))
			w.text(life)
		}
	}
}

// run begins a command that runs a script, whose keys and arguments follow.
func (w *words) run(s *script, asText bool, keys, args int) {
	w.begin(3 + keys + args)
	if asText {
		w.text("eval")
		w.text(s.text)
	} else {
		w.text("evalsha")
		w.text(s.sha)
	}
	w.number(int64(keys))
}

// handsOn is how many more arguments a release has if it may hand its locks on.
func (c *call) handsOn(life string) int {
	if c.handoff == 0 || life == "" {
		return 0
	}
	return 2
}

// linesAndPlaces are the locks and fences, and with each of them its queue and the
// waiter's place there.
func (c *call) linesAndPlaces(w *words) {
	for i := range c.claims {
		w.text(c.claims[i].Name)
		w.fenceKey(c.claims[i].Name)
		w.queueKey(c.claims[i].Name)
		w.placeKey(c.claims[i].Name, c.waiting.Waiter)
	}
}

func (c *call) locksAndFences(w *words) {
	for i := range c.claims {
		w.text(c.claims[i].Name)
		w.fenceKey(c.claims[i].Name)
	}
}

// room is for a key on its way into words.
type room [128]byte

func (w *words) fenceKey(name string) {
	var r room
	w.bytes(node.AppendFenceKey(r[:0], name))
}

func (w *words) readersKey(name string) {
	var r room
	w.bytes(node.AppendReadersKey(r[:0], name))
}

func (w *words) intentKey(name string) {
	var r room
	w.bytes(node.AppendIntentKey(r[:0], name))
}

func (w *words) holdKey(name, owner string) {
	var r room
	w.bytes(node.AppendHoldKey(r[:0], name, owner))
}

func (w *words) holdPrefix(name string) {
	var r room
	w.bytes(node.AppendHoldPrefix(r[:0], name))
}

// writer is the writer's field.
func (w *words) writer(owner string) {
	var r room
	w.bytes(append(append(r[:0], owner...), node.WriteSuffix...))
}

func (w *words) queueKey(name string) {
	var r room
	w.bytes(node.AppendQueueKey(r[:0], name))
}

// placeKey without a waiter is what the keys of all places begin with.
func (w *words) placeKey(name, waiter string) {
	var r room
	w.bytes(append(node.AppendPlacePrefix(r[:0], name), waiter...))
}

func (w *words) channel(name string) {
	var r room
	w.bytes(node.AppendChannel(r[:0], name))
}

func (w *words) sharedChannel(name string) {
	var r room
	w.bytes(node.AppendReadWriteChannel(r[:0], name))
}
