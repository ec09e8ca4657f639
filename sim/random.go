package sim

import (
	"math/bits"
	"time"

	"github.com/redquorum/redquorum/faults"
)

// A random is a stream of random numbers: SplitMix64 (Steele, Lea and Flood,
// 2014). It is our own so that a seed means the same run with every release of
// Go, and integers only, so that it does on every architecture.
type random struct{ state uint64 }

// A concern has a stream of its own, so that what changes in one leaves the
// others as they are: a shrunk plan stays close to the one that it came from.
type concern uint64

const (
	ofNetwork concern = iota + 1
	ofEngine
	ofWork
	ofOrder
	ofHealing
	ofClocks
)

// stream returns the stream of one concern of one thing.
func stream(seed uint64, of concern, index int) random {
	r := random{seed}
	r.state ^= r.next() + uint64(of)
	r.state ^= r.next() + uint64(index)
	r.next()
	return r
}

func (r *random) next() uint64 {
	r.state += 0x9e3779b97f4a7c15
	return mix(r.state)
}

func mix(z uint64) uint64 {
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// below draws a number from 0 up to n.
func (r *random) below(n int) int {
	hi, _ := bits.Mul64(r.next(), uint64(n))
	return int(hi)
}

// happens is true in a share of all cases.
func (r *random) happens(share faults.Ratio) bool {
	return share > 0 && r.below(1_000_000) < int(share)
}

func (r *random) within(d faults.Range) time.Duration {
	if d.Max <= d.Min {
		return d.Min
	}
	return d.Min + time.Duration(r.below(int(d.Max-d.Min)+1))
}
