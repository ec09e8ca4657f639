package redisnode_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/node/redisnode"
)

// BenchmarkPair measures acquire and release, as a single caller sees them:
// each is sent to all nodes, and waited for until all have answered.
func BenchmarkPair(b *testing.B) {
	for _, n := range []int{1, 5} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			nodes := make([]node.Node, n)
			for i := range nodes {
				nodes[i] = connect(b, newServer(b))
			}
			token := node.Token(time.Now().UnixMicro())
			replies := make(chan node.Reply, n)
			reply := func(r node.Reply) { replies <- r }
			all := func(cmd node.Command, want node.Status) {
				cmd.Deadline = after(5 * time.Second)
				for _, n := range nodes {
					n.Submit(cmd, reply)
				}
				for range nodes {
					if r := <-replies; r.Status != want {
						b.Fatalf("%v: %v, %v", cmd.Kind, r.Status, r.Err)
					}
				}
			}
			claims := claim("bench", "owner", 0)
			cmd := node.Command{Claims: claims, TTL: time.Minute, Retention: time.Hour}
			b.ReportAllocs()
			for b.Loop() {
				token++
				claims[0].Token = token
				cmd.Kind = node.Acquire
				all(cmd, node.Granted)
				cmd.Kind = node.Release
				all(cmd, node.Released)
			}
		})
	}
}

// BenchmarkCallers measures one node under many callers at once: a server, and a cluster of three.
func BenchmarkCallers(b *testing.B) {
	for kind, open := range map[string]func(*testing.B) node.Node{
		"server": func(b *testing.B) node.Node { return connect(b, newServer(b)) },
		"cluster": func(b *testing.B) node.Node {
			return wrap(b, redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{newCluster(b, 3).addr}}), redisnode.Options{})
		},
	} {
		for _, callers := range []int{64, 512} {
			b.Run(kind+"/"+strconv.Itoa(callers), func(b *testing.B) { benchmarkCallers(b, open(b), callers) })
		}
	}
}

func benchmarkCallers(b *testing.B, n node.Node, callers int) {
	start := node.Token(time.Now().UnixMicro())
	b.ReportAllocs()
	b.ResetTimer()
	work := make(chan node.Token)
	done := make(chan struct{})
	for i := range callers {
		go func() {
			replies := make(chan node.Reply, 1)
			reply := func(r node.Reply) { replies <- r }
			cmd := node.Command{Claims: claim(name(i), "owner", 0), TTL: time.Minute, Retention: time.Hour}
			for token := range work {
				cmd.Claims[0].Token = start + token
				cmd.Deadline = after(5 * time.Second)
				for _, kind := range []node.Kind{node.Acquire, node.Release} {
					cmd.Kind = kind
					n.Submit(cmd, reply)
					if r := <-replies; r.Err != nil {
						b.Errorf("%v: %v", kind, r.Err)
					}
				}
			}
			done <- struct{}{}
		}()
	}
	for i := range b.N {
		work <- node.Token(i)
	}
	close(work)
	for range callers {
		<-done
	}
}
