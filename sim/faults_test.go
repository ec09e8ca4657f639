package sim_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redquorum/redquorum/sim"
)

// The end of a fault undoes what is still its own, and nothing that came after it.
func TestFaultsEndWhatTheyBegan(t *testing.T) {
	const plan = "nodes 1\nclients 1\nlength 6s\nlock lease=5s maxlease=5s guard=off renew=off\nnetwork delay=1ms\nat 2s try c1 x\n"
	for _, c := range []struct{ events, want string }{
		{"", "granted after 4ms"},
		{"at 0s delay c1-n1 5ms for 3s", "granted after 24ms"},
		{"at 0s delay c1-n1 5ms for 1s\nat 500ms delay c1-n1 10ms for 3s", "granted after 44ms"},
		{"at 0s delay c1-n1 5ms for 3s\nat 500ms delay c1-n1 10ms for 1s", "granted after 24ms"},
		{"at 0s delay c1-n1 5ms for 3s\nat 500ms delay c1>n1 10ms for 1s", "granted after 24ms"},
		{"at 0s loss c1-n1 100% for 5s\nat 500ms loss c1-n1 100% for 100ms", "no answer in time"},
		{"at 0s cut c1-n1 for 1s\nat 500ms heal\nat 800ms cut c1-n1", "no answer in time"},
		{"at 0s cut c1-n1 for 5s\nat 500ms heal", "granted after 4ms"},
		{"at 0s hold c1>n1 for 1s\nat 500ms hold c1>n1", "no answer in time"},
		{"at 0s slow n1 5ms for 1s\nat 500ms slow n1 10ms for 3s", "granted after 24ms"},
		{"at 0s crash n1 durable for 1s\nat 500ms crash n1 durable for 3s", "unreachable"},
		{"at 0s crash n1 empty for 3s\nat 500ms restart n1\nat 5s try c1 x", "held"},
		{"at 0s kill c1 for 1s\nat 500ms kill c1 for 4s", ""},
	} {
		r := sim.Run(planned(t, plan+c.events+"\n"), nil, sim.WithTrace())
		got := ""
		for _, e := range r.Trace.Entries {
			if e.Kind == sim.KindResult && e.At < 6*time.Second {
				got = e.Text
				if strings.HasSuffix(e.Text, "granted") {
					got = fmt.Sprint("granted after ", (e.At - 2*time.Second).Truncate(time.Millisecond))
				}
			}
		}
		if !strings.Contains(got, c.want) || c.want == "" && got != "" {
			t.Errorf("%s\nends in %q, want %q", c.events, got, c.want)
		}
	}
}
