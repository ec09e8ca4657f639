package embedded_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/node/embedded"
)

// BenchmarkAcquireRelease shows what keys cost: expiry looks at all of them.
func BenchmarkAcquireRelease(b *testing.B) {
	for _, keys := range []int{1, 1000} {
		b.Run(fmt.Sprintf("names=%d", keys), func(b *testing.B) {
			s, err := embedded.Start(1)
			if err != nil {
				b.Fatal(err)
			}
			defer s.Close()
			n := s.Nodes()[0]
			replies := make(chan node.Reply, 1)
			do := func(kind node.Kind, i int) {
				n.Submit(node.Command{
					Kind: kind, Claims: []node.Claim{{Name: fmt.Sprint(i % keys), Owner: "a", Token: node.Token(i + 1)}},
					TTL: time.Hour, Retention: time.Hour, Deadline: local.Now().Add(time.Minute),
				}, func(r node.Reply) { replies <- r })
				<-replies
			}
			for i := range keys {
				do(node.Acquire, i)
				do(node.Release, i)
			}
			b.ResetTimer()
			for i := range b.N {
				do(node.Acquire, i+keys)
				do(node.Release, i+keys)
			}
		})
	}
}
