// Package lockers makes Lockers for the tests of adapters.
package lockers

import (
	"testing"
	"time"

	"github.com/redquorum/redquorum/node/embedded"
	"github.com/redquorum/redquorum/quorum"
)

// Two returns the Lockers of two programs with three servers, which run in this process
// until the test ends. A slow machine does not cost a round.
func Two(t testing.TB) (a, b *quorum.Locker) {
	t.Helper()
	set, err := embedded.Start(3)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { set.Close() })
	for _, l := range []**quorum.Locker{&a, &b} {
		nodes, err := set.Dial()
		if err != nil {
			t.Fatal(err)
		}
		if *l, err = quorum.New(nodes, quorum.Options{Timeout: 5 * time.Second}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { (*l).Close() })
	}
	return a, b
}
