package bench

import (
	"errors"
	"testing"
	"time"

	"github.com/redquorum/redquorum/faults"
)

// A pair takes two round trips to the nearest majority, and more where nodes are
// dead or messages are lost.
func TestModel(t *testing.T) {
	m, err := predict(t.Context(), []int{1, 3}, 0.001, 100, func(string, int, int) {})
	if err != nil {
		t.Fatal(err)
	}
	if len(m.Rows) != 12 {
		t.Fatalf("%d rows", len(m.Rows))
	}
	for _, row := range m.Rows {
		least := map[string]time.Duration{"one zone": 400 * us, "three zones": 1200 * us, "three regions": 48 * time.Millisecond}[row.Links]
		if row.Nodes == 1 {
			least = 400 * us
		}
		if row.PairP50 < least || row.PairP50 > 2*least || row.PairP99 < row.PairP50 || row.PairP999 < row.PairP99 {
			t.Errorf("%+v", row)
		}
		if row.Nodes == 3 && row.WithDead <= row.PairP50 {
			t.Errorf("it does not matter that the nearest node is dead: %+v", row)
		}
	}
}

func TestModelLosesMessages(t *testing.T) {
	took, err := terrains[0].run(1, faults.Percent(5), 0, 50)
	if err != nil {
		t.Fatal(err)
	}
	if worst := took.at(1); worst < 500*time.Millisecond {
		t.Errorf("messages to the one node are lost, and the longest pair took %v", worst)
	}
	if _, err := terrains[0].run(3, 0, 2, 1); !errors.Is(err, errNotLocked) {
		t.Errorf("on one of three nodes: %v", err)
	}
}

// A prediction is for links as PING found them, and explains what it can.
func TestModelCompare(t *testing.T) {
	cell := func(contestant string, rtt, p50 time.Duration) *Cell {
		return &Cell{Workload: "latency", Contestant: contestant, Nodes: 3, RTT: rtt,
			Median: Metrics{"pair-p50-ns": float64(p50), "pair-p99-ns": float64(p50 + ms)}}
	}
	// The model runs the engine of only one of them.
	r := &Report{Contestants: []Entrant{{Name: "other"}, {Name: ours}}, Links: []Link{{RTT: 10 * ms, Measured: 11 * ms, Bare: ms / 2}},
		Cells: []*Cell{cell("other", 0, 5*ms), cell("other", 10*ms, 50*ms), cell(ours, 0, ms), cell(ours, 10*ms, 23*ms)}}
	m := new(Model)
	if err := m.compare(r, 0); err != nil {
		t.Fatal(err)
	}
	if len(m.Checks) != 1 {
		t.Fatal(m.Checks)
	}
	c := m.Checks[0]
	if c.Predicted != 21*ms || c.PredictedP99 != 21*ms || c.Local != ms || c.Measured != 23*ms || c.MeasuredP99 != 24*ms ||
		c.Error() < 0.043 || c.Error() > 0.044 {
		t.Errorf("%+v, %v unexplained", c, c.Error())
	}
	// With jitter a lock waits for the second of three: a pair takes two round trips
	// of 10 ms, and two medians of what comes on top, 4 ms at most.
	r.Links[0].Measured = 12*ms + ms/2
	m = new(Model)
	if err := m.compare(r, 4*ms); err != nil {
		t.Fatal(err)
	}
	if c = m.Checks[0]; c.Predicted < 23*ms || c.Predicted > 25*ms || c.PredictedP99 < c.Predicted+ms || c.PredictedP99 > 28*ms {
		t.Errorf("with jitter: %+v", c)
	}
}
