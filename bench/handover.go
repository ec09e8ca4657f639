package bench

import (
	"cmp"
	"slices"
	"time"

	"github.com/redquorum/redquorum/clock"
)

// fairness enters what the turns of competing callers say about the hand-over of their
// lock. Callers of one Owner count together.
func fairness(m Metrics, all []record, window time.Duration) {
	type owned struct {
		turn
		record
	}
	var in []owned
	var gaps samples
	var wait, unserved time.Duration
	for _, r := range all {
		unserved = max(unserved, r.Unserved)
		for _, t := range r.Turns {
			in = append(in, owned{t, r})
			wait = max(wait, t.Got.Sub(t.Asked))
		}
	}
	slices.SortFunc(in, func(a, b owned) int { return cmp.Compare(a.Got, b.Got) })
	overlaps := 0
	// the last that goes, and when the last does that is no reader
	last, wrote := owned{record: record{Owner: -1}}, clock.Instant(0)
	for _, t := range in {
		if t.Got < wrote || !t.Reads && t.Got < last.Released {
			overlaps++
		} else if last.Owner >= 0 && t.Owner != last.Owner && t.Got >= last.Released {
			gaps = append(gaps, t.Got.Sub(last.Released))
		}
		if t.Released > last.Released {
			last = t
		}
		if !t.Reads {
			wrote = max(wrote, t.Released)
		}
	}
	m["changes/s"] = float64(len(gaps)) / window.Seconds()
	m["turns/s"] = float64(len(in)) / window.Seconds()
	m.quantiles("gap", gaps)
	m["wait-max-ns"] = float64(max(wait, unserved))
	m["wait-max-open"] = 0
	if unserved > wait {
		m["wait-max-open"] = 1
	}
	m["least/most"] = min(leastOfMost(all, true), leastOfMost(all, false))
	m["overlaps"] = float64(overlaps)
}

// leastOfMost returns the turns of the owner that had the fewest, by those of the one
// that had the most; of readers, or of the others. It is 1 if there are none.
func leastOfMost(all []record, reads bool) float64 {
	turns := make(map[int]int)
	for _, r := range all {
		if r.Reads == reads {
			turns[r.Owner] += len(r.Turns)
		}
	}
	if len(turns) == 0 {
		return 1
	}
	least, most := -1, 0
	for _, n := range turns {
		if least < 0 || n < least {
			least = n
		}
		most = max(most, n)
	}
	return float64(least) / max(float64(most), 1)
}
