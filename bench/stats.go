package bench

import (
	"math"
	"slices"
	"time"
)

type samples []time.Duration

// at returns a quantile, by the nearest rank: the least sample that is not below a share
// q of all. Of no samples it is 0.
func (s samples) at(q float64) time.Duration {
	if len(s) == 0 {
		return 0
	}
	slices.Sort(s)
	rank := int(math.Ceil(q * float64(len(s))))
	return s[min(max(rank, 1), len(s))-1]
}

// Metrics are what one round measured, by name and unit: "pair-p50-ns", "locks/s",
// "allocs/op".
type Metrics map[string]float64

// quantiles enters the median and the longest, and the quantiles between that there are
// enough samples for: of fewer they would be the longest.
func (m Metrics) quantiles(name string, s samples) {
	if len(s) > 0 {
		m[name+"-p50-ns"], m[name+"-max-ns"] = float64(s.at(0.5)), float64(s.at(1))
	}
	if len(s) >= 100 {
		m[name+"-p99-ns"] = float64(s.at(0.99))
	}
	if len(s) >= 1000 {
		m[name+"-p999-ns"] = float64(s.at(0.999))
	}
}

func (m Metrics) tail(name string) float64 {
	for _, q := range []string{"p999", "p99", "max"} {
		if took, ok := m[name+"-"+q+"-ns"]; ok {
			return took
		}
	}
	return 0
}

// median returns the middle of values, or the mean of the two in the middle; NaN of none.
func median(values []float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	values = slices.Sorted(slices.Values(values))
	n := len(values)
	return (values[(n-1)/2] + values[n/2]) / 2
}

// spread returns half of the distance from the least to the greatest value, as a share of
// the median.
func spread(values []float64) float64 {
	m := median(values)
	if len(values) < 2 || m == 0 {
		return 0
	}
	return (slices.Max(values) - slices.Min(values)) / 2 / math.Abs(m)
}
