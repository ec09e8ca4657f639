package bench

import (
	"cmp"
	"slices"
	"time"
)

// fairness enters what the turns of competing callers say about the hand-over of
// their lock.
func fairness(m Metrics, all []record, window time.Duration) {
	type owned struct {
		turn
		owner int
	}
	var in []owned
	var gaps samples
	var wait, unserved time.Duration
	least, most := len(all[0].Turns), 0
	for i, r := range all {
		least, most = min(least, len(r.Turns)), max(most, len(r.Turns))
		unserved = max(unserved, r.Unserved)
		for _, t := range r.Turns {
			in = append(in, owned{t, i})
			wait = max(wait, t.Got.Sub(t.Asked))
		}
	}
	slices.SortFunc(in, func(a, b owned) int { return cmp.Compare(a.Got, b.Got) })
	overlaps := 0
	for i, t := range in {
		if i == 0 {
			continue
		}
		before := in[i-1]
		if t.Got < before.Released {
			overlaps++
		} else if t.owner != before.owner {
			gaps = append(gaps, t.Got.Sub(before.Released))
		}
	}
	m["changes/s"] = float64(len(gaps)) / window.Seconds()
	m.quantiles("gap", gaps)
	m["wait-max-ns"] = float64(max(wait, unserved))
	m["wait-max-open"] = 0
	if unserved > wait {
		m["wait-max-open"] = 1
	}
	m["least/most"] = float64(least) / max(float64(most), 1)
	m["overlaps"] = float64(overlaps)
}
