package faults

import "slices"

// The two ways of a link, as indexes.
const (
	ToNode = iota
	ToClient
)

func (w Way) has(way int) bool { return w.Has([...]Way{To, From}[way]) }

// A Link decides what the faults of a plan do to one link, and its owner carries that
// out. M is what the owner keeps of a message that is held. The zero value is a link
// without faults.
type Link[M any] struct {
	Trouble
	struck []*Event // that have not ended
	holds  []*holding[M]
}

// A Trouble is how a link behaves. Of several faults of one kind the last counts.
type Trouble struct {
	Cut       [2]bool // by ways
	Delay     [2]Range
	Loss      [2]Ratio
	Reorder   [2]Ratio
	Duplicate [2]Ratio
	Later     Range // of duplicates
	Deaf      bool  // notices are lost
}

type holding[M any] struct {
	by   *Event
	left int // how many it keeps still; less than 0: all
	held []M
}

// Strike begins or ends a fault. It returns the messages that go on now, in their order.
// It ignores a Reset, and only notes a HalfOpen: a Link does not know connections.
func (l *Link[M]) Strike(e *Event, end bool) (free []M) {
	switch {
	case e.Verb == Heal:
		l.struck = nil
		free = l.letGo(nil)
	case e.Verb == Release:
		return l.letGo(nil)
	case e.Verb == Hold && end:
		return l.letGo(e)
	case e.Verb == Hold:
		left := e.Count
		if left == 0 {
			left = -1
		}
		l.holds = append(l.holds, &holding[M]{by: e, left: left})
		return nil
	case e.Verb == Reset:
		return nil
	case end:
		l.struck = slices.DeleteFunc(l.struck, func(o *Event) bool { return o == e })
	default:
		l.struck = append(l.struck, e)
	}
	l.suffer()
	return free
}

func (l *Link[M]) letGo(by *Event) (free []M) {
	l.holds = slices.DeleteFunc(l.holds, func(h *holding[M]) bool {
		ends := by == nil || h.by == by
		if ends {
			free = append(free, h.held...)
		}
		return ends
	})
	return free
}

func (l *Link[M]) suffer() {
	l.Trouble = Trouble{}
	for _, e := range l.struck {
		l.Deaf = l.Deaf || e.Verb == Deafen
		for way := range 2 {
			if !e.Links.Way.has(way) {
				continue
			}
			switch e.Verb {
			case Cut:
				l.Cut[way] = true
			case Delay:
				l.Delay[way] = e.Range
			case Loss:
				l.Loss[way] = e.Ratio
			case Duplicate:
				l.Duplicate[way], l.Later = e.Ratio, e.Range
			case Reorder:
				l.Reorder[way] = e.Ratio
			}
		}
	}
}

// Suffers reports whether a fault has not ended.
func (l *Link[M]) Suffers(e *Event) bool { return slices.Contains(l.struck, e) }

// Hold keeps a message, of a command of that kind or of its reply, if a fault says so. It
// reports whether it did.
func (l *Link[M]) Hold(way int, kind string, message M) bool {
	for _, h := range l.holds {
		if h.left != 0 && h.by.Links.Way.has(way) && (h.by.Kind == "" || h.by.Kind == kind) {
			h.left--
			h.held = append(h.held, message)
			return true
		}
	}
	return false
}

func (l *Link[M]) Holds() bool { return len(l.holds) > 0 }

// Again returns the link of the client's next process, without held messages.
func (l *Link[M]) Again() Link[M] {
	again := Link[M]{Trouble: l.Trouble, struck: slices.Clone(l.struck)}
	for _, h := range l.holds {
		again.holds = append(again.holds, &holding[M]{by: h.by, left: h.left})
	}
	return again
}
