package model_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/node/model"
)

func BenchmarkAcquireRelease(b *testing.B) {
	for _, names := range []int{1, 1000} {
		b.Run(fmt.Sprintf("names=%d", names), func(b *testing.B) {
			var s model.Server
			claims := make([][]node.Claim, names)
			for i := range claims {
				claims[i] = []node.Claim{{Name: fmt.Sprint("orders:", i), Owner: "a1b2c3d4:17"}}
			}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				c := claims[i%names]
				c[0].Token++
				s.Apply(model.Time(i), node.Command{Kind: node.Acquire, Claims: c, TTL: time.Second, Retention: time.Hour})
				if _, published := s.Apply(model.Time(i), node.Command{Kind: node.Release, Claims: c, Retention: time.Hour}); len(published) == 0 {
					b.Fatal("not released")
				}
			}
		})
	}
}

func BenchmarkRefused(b *testing.B) {
	var s model.Server
	s.Apply(0, acquire("n", "a", 1, time.Hour))
	cmd := acquire("n", "b", 2, time.Hour)
	b.ReportAllocs()
	for b.Loop() {
		s.Apply(0, cmd)
	}
}

func BenchmarkExtend(b *testing.B) {
	var s model.Server
	s.Apply(0, acquire("n", "a", 1, time.Hour))
	cmd := node.Command{Kind: node.Extend, Claims: []node.Claim{{Name: "n", Owner: "a"}}, TTL: time.Hour}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		s.Apply(model.Time(i), cmd)
	}
}

func BenchmarkNode(b *testing.B) {
	n := model.New(clock.Runtime(), "a")
	claims := []node.Claim{{Name: "n", Owner: "a"}}
	var last node.Reply
	reply := func(r node.Reply) { last = r }
	b.ReportAllocs()
	for b.Loop() {
		claims[0].Token++
		n.Submit(node.Command{Kind: node.Acquire, Claims: claims, TTL: time.Second, Retention: time.Hour, Deadline: clock.Never}, reply)
		n.Submit(node.Command{Kind: node.Release, Claims: claims, Retention: time.Hour, Deadline: clock.Never}, reply)
	}
	if last.Status != node.Released {
		b.Fatal(last)
	}
}

func acquire(name, owner string, token node.Token, ttl time.Duration) node.Command {
	return node.Command{
		Kind:   node.Acquire,
		Claims: []node.Claim{{Name: name, Owner: owner, Token: token}},
		TTL:    ttl, Retention: 24 * time.Hour, Deadline: clock.Never,
	}
}
