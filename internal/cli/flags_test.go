package cli

import (
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/redquorum/redquorum/internal/assert"
)

// A flag refuses what is out of its bounds, and says which these are. The help has the
// defaults that are not 0.
func TestFlags(t *testing.T) {
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	n, drawn, d, word := 0, 0, time.Duration(0), "plain"
	Int(fs, &n, "jobs", 2, 1, 0, "`N` runs")
	Int(fs, &drawn, "nodes", 0, 1, 15, "how many")
	Duration(fs, &d, "for", time.Second, time.Millisecond, time.Hour, "how long")
	Word(fs, &word, "client", "which", "plain", "fair")
	assert.Equal(t, fs.FlagUsages(), `      --client string   which (default "plain")
      --for duration    how long (default 1s)
      --jobs N          N runs (default 2)
      --nodes int       how many
`)
	for arg, want := range map[string]string{
		"--jobs=0": "want at least 1", "--nodes=16": "want 1 to 15", "--nodes=x": "invalid syntax",
		"--for=2h": "want 1ms to 1h0m0s", "--for=5": "missing unit", "--client=rust": "want plain, fair",
	} {
		assert.Says(t, fs.Parse([]string{arg}), want, arg)
	}
	assert.Succeed(t, fs.Parse([]string{"--jobs=1", "--nodes=15", "--for=1h", "--client=fair"}))
	assert.That(t, n == 1 && drawn == 15 && d == time.Hour && word == "fair", "%v %v %v %v", n, drawn, d, word)
}
