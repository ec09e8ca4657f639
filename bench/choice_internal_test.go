package bench

import "testing"

func TestChoice(t *testing.T) {
	for _, c := range []struct {
		nodes   []int
		failure float64
		want    string
	}{
		{[]int{1, 3, 5}, 0.001, "Choose N=3, Timeout 500 ms, lease 30 s, because 3 nodes survive a failure, the Timeout is at least three times the longest lock (1.00 ms), " +
			"and the lease is at least three times the Timeout and longer than the pauses of most processes."},
		{[]int{5}, 0.001, "Choose N=5, Timeout 500 ms, lease 30 s, because 5 nodes survive 2 failures"},
		{[]int{1}, 0.001, "Measure again with --n 3,5, because no number of nodes measured here survives a failure."},
		{[]int{1, 3}, 0.6, "Choose N=1 and better servers, because more nodes as bad as these have a majority less often."},
	} {
		var cells []*Cell
		for _, n := range c.nodes {
			cells = append(cells, took("latency", "", n, 0, ms))
		}
		r := reportOf(cells...)
		r.Advice = r.advise(0, c.failure)
		says(t, r.choice(), c.want)
	}
	r := reportOf(took("latency", "", 3, 0, ms), took("bad", "1 hung", 3, 0, 2000*ms))
	r.Advice = r.advise(0, 0.001)
	says(t, r.choice(), "Choose N=3, Timeout 10 s, lease 30 s, because", "the longest lock (2.00 s)")
	r.Contestants[0].Name = "other"
	for _, c := range r.Cells {
		c.Contestant = "other"
	}
	r.Advice = r.advise(0, 0.001)
	says(t, r.choice(), "Choose N=3, because 3 nodes survive a failure and a lock and its release take 1.00 ms.")
}

func TestNoise(t *testing.T) {
	cell := func(which string, rounds ...float64) *Cell {
		c := &Cell{Workload: "bad", Case: which, Contestant: ours, Nodes: 5}
		for _, v := range rounds {
			c.Rounds = append(c.Rounds, Metrics{"pair-p99-ns": v})
		}
		c.summarise()
		return c
	}
	says(t, reportOf(cell("healthy", 89, 130, 48), cell("1 late", 100, 110)).noise(), "Too noisy, run longer: bad, healthy, N=5, redquorum (±46 %). ", "--for 60s", "!late")
	if noise := reportOf(cell("healthy", 100, 140), cell("1 late", 100)).noise(); noise != "" {
		t.Error(noise)
	}
	var many []*Cell
	for range 5 {
		many = append(many, cell("2 hung", 1, 17))
	}
	says(t, reportOf(many...).noise(), "(±89 %) and 2 more. ")

	healthy := []float64{89, 130, 48}
	for _, c := range []struct {
		a, b []float64
		want bool
	}{
		{[]float64{22, 22, 23}, healthy, false},
		{[]float64{60, 60, 62}, healthy, true},
		{[]float64{93, 94, 94}, []float64{100, 101, 101}, true},
		{[]float64{70, 71, 71}, []float64{100, 101, 101}, false},
		{[]float64{52, 52}, []float64{100, 101}, true}, // of two rounds
		{[]float64{190}, []float64{100}, true},
		{[]float64{300}, []float64{100}, false},
	} {
		if isNoise(c.a, c.b) != c.want {
			t.Errorf("%v of %v is noise: %v", c.a, c.b, !c.want)
		}
	}

	r := reportOf(cell("healthy", healthy...), cell("1 killed", 60, 61, 62), cell("2 hung", 1000, 1001, 1002))
	chart := r.badChart(0)
	says(t, chart.Note, "that with healthy nodes is too noisy: run longer", "!share this machine")
	for i, want := range []string{"0.69 x, noise", "11.2 x"} {
		if b := chart.Bars[i]; b.Text != want || b.Noise != (i == 0) {
			t.Errorf("%+v, want %q", b, want)
		}
	}
	says(t, reportOf(cell("healthy", 100, 100, 101), cell("1 killed", 50, 50, 51)).badChart(0).Note, "all servers share this machine", "!too noisy")
}
