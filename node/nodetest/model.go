package nodetest

import (
	"fmt"
	"strconv"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/node/model"
)

// Model returns a system around a [model.Node] on c.
func Model(c clock.Clock) System {
	n := model.New(c, "model")
	return System{
		Name:    "model",
		Node:    n,
		Clock:   c,
		Do:      func(args ...string) error { return modelDo(n, args) },
		Advance: func(d time.Duration) error { n.Step(d); return nil },
		Stall:   func(stalled bool) error { n.Hang(stalled); return nil },
		Cut:     func() error { n.Restart(false); return nil },
	}
}

// modelDo knows the commands of System.Do.
func modelDo(n *model.Node, args []string) (err error) {
	if args[0] == "PUBLISH" {
		n.Publish(args[1])
		return nil
	}
	n.Do(func(s *model.Server, now model.Time) {
		switch args[0] {
		case "DEL":
			s.Del(args[1])
		case "FLUSHALL":
			s.FlushAll()
		case "HSET":
			err = s.HSet(now, args[1], args[2], args[3])
		case "PERSIST":
			s.Persist(now, args[1])
		case "PEXPIRE":
			var ms int
			ms, err = strconv.Atoi(args[2])
			s.PExpire(now, args[1], time.Duration(ms)*time.Millisecond)
		case "SET":
			s.Set(args[1], args[2])
		default:
			err = fmt.Errorf("nodetest: no command %s", args[0])
		}
	})
	return err
}
