package sim_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redquorum/redquorum/internal/assert"
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
		{"at 0s full n1 disk for 3s", "cannot save to disk"},
		{"at 0s full n1 memory for 3s", "out of memory"},
		{"at 0s full n1 memory for 3s\nat 500ms full n1 disk for 1s", "out of memory"},
		{"at 0s full n1 disk for 1s\nat 500ms full n1 disk for 500ms", "granted after 4ms"},
		{"at 30ms starve n1 5% for 3s", "granted after 33ms"},
		{"at 30ms starve n1 5% for 1s", "granted after 4ms"},
		{"at 1s try c1 y\nat 1500ms halfopen c1-n1 for 3s", "no answer in time"},
		{"at 1s try c1 y\nat 1500ms halfopen c1-n1\nat 1600ms try c1 z", "granted after 2ms"},
		{"at 1s try c1 y\nat 1500ms halfopen c1-n1 for 100ms", "granted after 2ms"},
		{"at 1s try c1 y\nat 1500ms halfopen c1-n1\nat 1600ms heal", "granted after 2ms"},
		{"at 1s try c1 y\nat 1500ms reset c1-n1", "granted after 2ms"},
		{"at 1s try c1 y\nat 2000500us reset c1-n1", "unreachable"},
		{"at 1s try c1 y\nat 1400ms cut c1<n1 for 200ms\nat 1500ms reset c1-n1", "no answer in time"},
		{"at 0s crash n1 durable for 1s\nat 500ms crash n1 durable for 3s", "unreachable"},
		{"at 0s crash n1 empty for 3s\nat 500ms restart n1\nat 5s try c1 x", "held"},
		{"at 0s kill c1 for 1s\nat 500ms kill c1 for 4s", ""},
	} {
		r := traced(t, plan+c.events+"\n")
		got := ""
		for _, e := range r.Trace.Entries {
			if e.Kind == sim.KindResult && e.At < 6*time.Second {
				got = e.Text
				if strings.HasSuffix(e.Text, "granted") {
					got = fmt.Sprint("granted after ", (e.At - 2*time.Second).Truncate(time.Millisecond))
				}
			}
		}
		assert.That(t, strings.Contains(got, c.want) && (c.want != "" || got == ""), "%s\nends in %q, want %q", c.events, got, c.want)
	}
}

// A node takes the subscriber of a half-open connection to be there until the fault ends, and hands
// the lock on to it.
func TestHalfOpenSubscribers(t *testing.T) {
	const plan = "nodes 3\nclients 3\nlength 3s\nlock lease=1s timeout=50ms poll=200ms\nnetwork delay=1ms\n" +
		"at 0s lock c1 x\nat 10ms lock c2 x\nat 60ms lock c3 x\nat 260ms kill c2\nat 300ms unlock c1\nat 2s unlock c3\n"
	for event, late := range map[string]bool{
		"":                                       false,
		"at 250ms halfopen c2-n*":                true,
		"at 250ms halfopen c2-n* for 1s":         true,
		"at 250ms halfopen c2-n* for 40ms":       false,
		"at 250ms halfopen c2-n1 for 1s":         false, // one of three
		"at 250ms halfopen c2-n*\nat 290ms heal": false,
	} {
		for _, e := range traced(t, plan+event+"\n").Trace.Entries {
			if e.Kind != sim.KindBelief || e.Client != 2 {
				continue
			}
			assert.That(t, (e.At > 390*time.Millisecond) == late, "with %q c3 has the lock at %v", event, e.At)
			break
		}
	}
}
