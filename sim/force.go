package sim

import "slices"

// force unlocks a name by force, and checks the result.
func (c *Client) force(name string) {
	w := c.w
	var here []*holder
	for _, h := range w.check.holders {
		if h.c == c && h.has(name) && h.lease != nil && h.lease.Remaining() > 0 {
			here = append(here, h)
		}
	}
	f := &forcing{c: c, name: name}
	w.check.forcings = append(w.check.forcings, f)
	start := c.starts()
	removed, err := c.locker.Break(c.ctx, name)
	w.check.forcings = without(w.check.forcings, slices.Index(w.check.forcings, f))
	c.bounded("Break", start, w.p.Lock.Timeout)
	w.check.forcedTruly(f, removed, err, c.stops == start.stops)
	if err == nil {
		w.check.forcedHere(c, here, name)
	}
}
