package packets

import (
	"math/rand/v2"
	"sync"
	"time"

	"github.com/redquorum/redquorum/faults"
)

// The two ways of a link.
const (
	ToNode = iota
	ToClient
)

// A Trouble is what happens to the packets of a link that go one way.
type Trouble struct {
	Cut     bool         // all are lost
	Loss    faults.Ratio // this share is lost
	Delay   faults.Range // each is this late
	Reorder faults.Ratio // this share is later, and others overtake it
	Later   faults.Range // by so much
}

// A Link is all connections to one listening port. Its methods may be called by several goroutines
// at once.
type Link struct {
	relay *Relay
	port  uint16

	mu      sync.Mutex
	random  *rand.Rand
	trouble [2]Trouble
	silent  time.Time            // packets of connections that began before it are lost
	began   map[uint16]time.Time // connections, by the client's port
	count   Count
}

// A Count is how many packets have come to a link, and how many of them were lost there.
type Count struct {
	Packets int `json:"packets"`
	Lost    int `json:"lost"`
}

// Set says what happens to packets from now on, by way. Connections that began before silent are
// silent, and neither end is reset. The zero values are a good link.
func (l *Link) Set(trouble [2]Trouble, silent time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.trouble, l.silent = trouble, silent
}

// Count returns what was counted so far.
func (l *Link) Count() Count {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.count
}

// carry decides what happens to a packet that comes to the link at an instant: after how long it goes
// on, unless it is lost.
func (l *Link) carry(p packet, now time.Time) (late time.Duration, lost bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	way, client := ToNode, p.from()
	if p.to() != l.port {
		way, client = ToClient, p.to()
	}
	if p.opens() {
		l.began[client] = now
	}
	l.count.Packets++
	t := &l.trouble[way]
	if t.Cut || l.began[client].Before(l.silent) || l.happens(t.Loss) {
		l.count.Lost++
		return 0, true
	}
	late = l.within(t.Delay)
	if l.happens(t.Reorder) {
		late += l.within(t.Later)
	}
	return late, false
}

func (l *Link) happens(share faults.Ratio) bool {
	return share > 0 && l.random.Int64N(1_000_000) < int64(share)
}

func (l *Link) within(d faults.Range) time.Duration {
	return d.Min + time.Duration(l.random.Int64N(int64(max(0, d.Max-d.Min))+1))
}
