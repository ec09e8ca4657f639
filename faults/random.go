package faults

import (
	"math/bits"
	"time"
)

// A Random is a stream of random numbers: SplitMix64 (Steele, Lea and Flood,
// 2014). It is our own so that a seed means the same run with every release of
// Go, and integers only, so that it does on every architecture.
type Random struct{ state uint64 }

// A Concern has a stream of its own, so that what changes in one leaves the
// others as they are: a shrunk plan stays close to the one that it came from.
type Concern uint64

// The concerns of a run.
const (
	OfNetwork Concern = iota + 1
	OfEngine
	OfWork
	OfOrder
	OfHealing
	OfClocks
	OfStrangers
)

// Stream returns the stream of one concern of one thing.
func (p *Plan) Stream(of Concern, index int) Random {
	r := Random{p.Seed}
	r.state ^= r.Next() + uint64(of)
	r.state ^= r.Next() + uint64(index)
	r.Next()
	return r
}

// Next draws any number.
func (r *Random) Next() uint64 {
	r.state += 0x9e3779b97f4a7c15
	return Mix(r.state)
}

// Mix scatters a number over all others.
func Mix(z uint64) uint64 {
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// Below draws a number from 0 up to n.
func (r *Random) Below(n int) int {
	hi, _ := bits.Mul64(r.Next(), uint64(n))
	return int(hi)
}

// Happens is true in a share of all cases.
func (r *Random) Happens(share Ratio) bool {
	return share > 0 && r.Below(1_000_000) < int(share)
}

// Within draws a time.
func (r *Random) Within(d Range) time.Duration {
	if d.Max <= d.Min {
		return d.Min
	}
	return d.Min + time.Duration(r.Below(int(d.Max-d.Min)+1))
}

// FirstSync is when the nodes write to their disks first; they do so each second.
func (p *Plan) FirstSync() time.Duration {
	r := p.Stream(OfClocks, -1)
	return time.Duration(r.Below(int(time.Second)))
}
