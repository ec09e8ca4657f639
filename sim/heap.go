package sim

// An event is something that will happen at an instant of true time. Events of
// one instant happen in the order in which they were planned.
type event struct {
	at   int64 // ns since the beginning
	seq  uint32
	slot int32 // of the world's table of what events are about
	ref  int32
	kind eventKind
}

type eventKind uint8

const (
	evTimer   eventKind = iota // a task's wait is perhaps over
	evRequest                  // a message reaches its node
	evReply                    // its answer reaches the client
	evReset                    // the client learns that its connection is gone
	evNotice                   // a notice reaches the client
	evSweep                    // a link looks for commands that are too late
	evDial                     // a link tries to connect
	evServe                    // a node takes the next command from its queue
	evSync                     // a node writes to its disk
	evFault                    // an event of the plan begins
	evUnfault                  // and ends
	evStrobe                   // a strobing clock jumps
	evResume                   // a client goes on
	evAudit                    // the belief of a holder ends
	evWrite                    // a message reaches the resource
	evAnswer                   // or its answer the client
	evCall                     // a function of the run itself
)

var eventNames = [...]string{"timer", "request", "reply", "reset", "notice", "sweep", "dial", "serve", "sync",
	"fault", "end of fault", "strobe", "resume", "audit", "write", "answer", "call"}

func (k eventKind) String() string { return eventNames[k] }

// A queue is a heap with four children to a node, which is shallower than the
// usual and kinder to the cache. Its entries are small and hold no pointer, so
// that to move them costs the garbage collector nothing.
type queue []event

func (e *event) before(o *event) bool { return e.at < o.at || e.at == o.at && e.seq < o.seq }

func (q *queue) push(e event) {
	h := append(*q, e)
	i := len(h) - 1
	for i > 0 {
		parent := (i - 1) / 4
		if h[parent].before(&e) {
			break
		}
		h[i] = h[parent]
		i = parent
	}
	h[i] = e
	*q = h
}

func (q *queue) pop() event {
	h := *q
	top := h[0]
	n := len(h) - 1
	last := h[n]
	h = h[:n]
	*q = h
	if n == 0 {
		return top
	}
	i := 0
	for {
		first := 4*i + 1
		if first >= n {
			break
		}
		least := first
		for c := first + 1; c < min(first+4, n); c++ {
			if h[c].before(&h[least]) {
				least = c
			}
		}
		if last.before(&h[least]) {
			break
		}
		h[i] = h[least]
		i = least
	}
	h[i] = last
	return top
}
