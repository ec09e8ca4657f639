package faults

import (
	"math/bits"
	"time"
)

// A Random is a stream of random numbers: SplitMix64 (Steele, Lea and Flood, 2014).
// Unlike Go's generators it gives the same run with every release of Go, and by integers
// alone on every architecture.
type Random struct{ state uint64 }

// A Concern has a stream of its own, so that a change of one leaves the others: a shrunk
// plan stays close to its original.
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

func Mix(z uint64) uint64 {
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// Below draws a number from 0 up to n-1.
func (r *Random) Below(n int) int {
	hi, _ := bits.Mul64(r.Next(), uint64(n))
	return int(hi)
}

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

// FirstSync is when the nodes first write to their disks, which they do each second.
func (p *Plan) FirstSync() time.Duration {
	r := p.Stream(OfClocks, -1)
	return time.Duration(r.Below(int(time.Second)))
}
