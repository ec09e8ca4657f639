package sim

const i14 = "all or nothing: several locks that are acquired as one are held, lost and released as one"

func (k *checker) endedTogether(h *holder) {
	if h.joint != nil && h.joint.Context().Err() == nil {
		k.w.fail("I14", "%s: the context of several locks goes on after the lease of one, %q", h.c.name, h.name)
	}
}

func (k *checker) gaveBack(c *Client, before int) {
	callers := 0 // others may have got one, and not returned yet
	for _, t := range c.callers {
		if t.wants != nil {
			callers++
		}
	}
	for _, h := range k.holders {
		if h.c == c && h.grant > before && h.lease == nil && !h.detached && callers == 1 {
			k.w.fail("I14", "%s did not get several locks, and keeps %q", c.name, h.name)
		}
	}
	if k.grants > before {
		k.w.sometimes(JointGivenBack)
	}
}

func (k *checker) parted(l *lock) {
	for _, p := range l.parts {
		if h := k.holder(p.owner); h != nil && h.joint == l.lease {
			k.w.fail("I14", "%s has released several locks, and keeps %q", l.c.name, p.name)
		}
	}
}
