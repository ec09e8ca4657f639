package nodetest_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redquorum/redquorum/internal/tests"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/node/model"
	"github.com/redquorum/redquorum/node/nodetest"
	"github.com/redquorum/redquorum/node/nodetest/systems"
)

// A refusing node is out of memory, or cannot save to its disk, or neither, as the first token of
// a command says.
type refusing struct {
	node.Node
	refuse func(error) error
}

func (n refusing) Submit(cmd node.Command, reply func(node.Reply)) {
	reasons := [...]error{nil, nil, node.ErrOutOfMemory, node.ErrMisconf}
	if err := n.refuse(reasons[cmd.Claims[0].Token%4]); err != nil {
		panic(err)
	}
	n.Node.Submit(cmd, reply)
}

// refusable makes a refusing node of a system's. What a test does otherwise is not refused, and
// makes no keys of other types: which of two reasons for an error comes first does not matter.
func refusable(s nodetest.System, refuse func(error) error) nodetest.System {
	do, advance := s.Do, s.Advance
	s.Node = refusing{s.Node, refuse}
	s.Do = func(args ...string) error {
		if args[0] == "SET" || args[0] == "HSET" {
			return nil
		}
		return errors.Join(refuse(nil), do(args...))
	}
	s.Advance = func(d time.Duration) error { return errors.Join(refuse(nil), advance(d)) }
	return s
}

// A server that is out of memory, or cannot save, refuses the same commands as the model, and none
// of them after its first write.
func TestModelAndRedisThatRefuses(t *testing.T) {
	tests.NeedLong(t)
	server := tests.Server(t)
	client := dial(t, server.Addr())
	config := func(args ...any) error {
		return client.Do(t.Context(), append([]any{"config", "set"}, args...)...).Err()
	}
	check(t, config("maxmemory-policy", "noeviction", "save", "3600 1000000000", "stop-writes-on-bgsave-error", "no"))
	dir := client.ConfigGet(t.Context(), "dir").Val()["dir"]
	check(t, os.Mkdir(filepath.Join(dir, "dump.rdb"), 0o700)) // no file can be renamed onto it
	check(t, client.BgSave(t.Context()).Err())
	for saving := ""; !strings.Contains(saving, "rdb_last_bgsave_status:err"); time.Sleep(time.Millisecond) {
		saving = client.Info(t.Context(), "persistence").Val()
	}
	redis := refusable(keep(t)(systems.Redis(server, 0)), func(reason error) error {
		maxmemory, stop := "0", "no"
		switch reason {
		case node.ErrOutOfMemory:
			maxmemory = "1"
		case node.ErrMisconf:
			stop = "yes"
		}
		return config("maxmemory", maxmemory, "stop-writes-on-bgsave-error", stop)
	})
	plain := systems.Model()
	modeled := refusable(plain, func(reason error) error {
		plain.Node.(*model.Node).Do(func(s *model.Server, _ model.Time) { s.Refuse(reason) })
		return nil
	})
	nodetest.Differential(t, 5000, modeled, redis) // so few that not every outcome has to come up
}
