package chaos

import (
	"context"
	"testing"

	"github.com/redquorum/redquorum/faults"
	"github.com/redquorum/redquorum/internal/tests"
	"github.com/redquorum/redquorum/node/redisserver"
)

// Two crashes that end before the first restart is done need one restart. A second one would end
// the notice of the next crash.
func TestOneRestartForTwoCrashes(t *testing.T) {
	tests.NeedServer(t)
	server, err := redisserver.Start(redisserver.Config{})
	if err != nil {
		t.Fatal(err)
	}
	h := &host{w: &world{}, jobs: make(chan func(context.Context), 10)}
	h.server.Store(server)
	defer h.close()
	for range 2 {
		e := &faults.Event{Verb: faults.Crash, Mode: faults.Empty}
		h.strike(e, false)
		h.strike(e, true)
	}
	(<-h.jobs)(t.Context())
	up := server.PID()
	(<-h.jobs)(t.Context())
	if up == 0 || server.PID() != up {
		t.Errorf("the server was restarted twice, as process %d and %d", up, server.PID())
	}
}
