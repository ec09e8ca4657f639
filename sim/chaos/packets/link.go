package packets

import (
	"sync"
	"time"

	"github.com/redquorum/redquorum/faults"
)

// A Link is all connections to one listening port. Its methods may be called by several goroutines
// at once.
type Link struct {
	relay *Relay
	port  uint16

	mu      sync.Mutex
	random  faults.Random
	trouble faults.Trouble
	silent  time.Time            // packets of connections that began before it are lost
	began   map[uint16]time.Time // connections, by the client's port
	count   Count
}

// A Count is how many packets have come to a link, and how many of them were lost there.
type Count struct {
	Packets int `json:"packets"`
	Lost    int `json:"lost"`
}

// Set says what happens to packets from now on: they are cut, lost or late. Connections that began
// before silent are silent, and neither end is reset. The zero values are a good link.
func (l *Link) Set(trouble faults.Trouble, silent time.Time) {
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
	way, client := faults.ToNode, p.from()
	if p.to() != l.port {
		way, client = faults.ToClient, p.to()
	}
	if p.opens() {
		l.began[client] = now
	}
	l.count.Packets++
	if l.trouble.Cut[way] || l.began[client].Before(l.silent) || l.random.Happens(l.trouble.Loss[way]) {
		l.count.Lost++
		return 0, true
	}
	return l.random.Within(l.trouble.Delay[way]), false
}
