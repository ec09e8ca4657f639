package bench

import (
	"cmp"
	"slices"
	"time"
)

// fairness enters what the turns of competing callers say about the hand-over of
// their lock.
func fairness(m Metrics, all [][]turn, window time.Duration) {
	type owned struct {
		turn
		owner int
	}
	var in []owned
	least, most := len(all[0]), 0
	for i, turns := range all {
		least, most = min(least, len(turns)), max(most, len(turns))
		for _, t := range turns {
			in = append(in, owned{t, i})
		}
	}
	slices.SortFunc(in, func(a, b owned) int { return cmp.Compare(a.Got, b.Got) })
	var gaps, waits samples
	overlaps := 0
	for i, t := range in {
		waits = append(waits, t.Got.Sub(t.Asked))
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
	if len(waits) > 0 {
		m["wait-max-ns"] = float64(waits.at(1))
	}
	m["least/most"] = float64(least) / max(float64(most), 1)
	m["overlaps"] = float64(overlaps)
}
