package sim_test

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/redquorum/redquorum/faults"
	"github.com/redquorum/redquorum/internal/assert"
	"github.com/redquorum/redquorum/internal/tests"
	"github.com/redquorum/redquorum/sim"
)

var update = flag.Bool("update", false, "write the golden files again")

// A seed gives the same run on every machine, with any number of processors, with the
// race detector, and without the garbage collector.
func TestRunsAreTheSameEverywhere(t *testing.T) {
	tests.NeedSeconds(t)
	const golden = "testdata/hashes.txt"
	hashes := func() string {
		var b strings.Builder
		for seed := range uint64(30) {
			r := sim.Run(faults.Generate(seed, faults.Profile{Outside: true}), nil)
			fmt.Fprintf(&b, "%d %d %016x\n", seed, r.Events, r.Hash)
		}
		return b.String()
	}
	if *update {
		assert.Succeed(t, os.WriteFile(golden, []byte(hashes()), 0o666))
	}
	want := assert.Got(os.ReadFile(golden))(t)
	check := func(how string) {
		t.Helper()
		assert.Equal(t, hashes(), string(want), how, golden)
	}
	if check("as it is"); !tests.Long() {
		return
	}
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	check("with one processor")
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	check("without garbage collection")
}
