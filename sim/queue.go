package sim

// An event happens at an instant of true time. Those of one instant keep the order in
// which they were planned.
type event struct {
	at   int64 // ns since the beginning
	what any
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
	evTurn                     // or that it is the turn of one of it, or has the lock
	evSweep                    // a client looks for commands that are too late
	evDial                     // a link tries to connect
	evServe                    // a node takes the next command from its queue
	evSync                     // a node writes to its disk
	evFault                    // an event of the plan begins
	evUnfault                  // and ends
	evStrobe                   // a strobing clock jumps
	_                          // so that the numbers of the others, and with them all hashes, stay
	evAudit                    // the belief of a holder ends
	evWrite                    // a message reaches the resource
	evAnswer                   // or its answer the client
	evCall                     // a function of the run itself
)

// A queue has its events in order, the next one last. It is a few dozen events, and most
// of what is planned comes early: to move a few others is quicker than any heap.
type queue []event

func (q *queue) push(e event) {
	h := append(*q, e)
	i := len(h) - 1
	for i > 0 && h[i-1].at <= e.at {
		h[i] = h[i-1]
		i--
	}
	h[i] = e
	*q = h
}

// next panics if there is none.
func (q queue) next() *event { return &q[len(q)-1] }

func (q *queue) pop() event {
	last := len(*q) - 1
	e := (*q)[last]
	*q = (*q)[:last]
	return e
}
