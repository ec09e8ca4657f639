package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
)

// candidateTTL is set in the process of a candidate: the seconds of its session.
const candidateTTL = "REDQUORUM_PEERS_ELECTION_TTL"

// campaign is a candidate's process: it says when it leads, and resigns at SIGTERM.
func campaign(ttl string) error {
	seconds, err := strconv.Atoi(ttl)
	if err != nil {
		return err
	}
	client, err := newEtcd(strings.Split(os.Getenv(etcdEnv), ","))
	if err != nil {
		return err
	}
	defer client.Close()
	session, err := concurrency.NewSession(client, concurrency.WithTTL(seconds))
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	e := concurrency.NewElection(session, "/boss")
	if err := e.Campaign(ctx, strconv.Itoa(os.Getpid())); err != nil {
		return err
	}
	fmt.Println("leads")
	<-ctx.Done()
	return e.Resign(context.Background())
}

// A candidate is another process. It is a Writer of what that says.
type candidate struct {
	*exec.Cmd
	leads chan time.Time
}

func (c *candidate) Write(b []byte) (int, error) {
	c.leads <- time.Now()
	return len(b), nil
}

func joins(b *testing.B, endpoints string, ttl int) *candidate {
	c := &candidate{Cmd: exec.Command(os.Args[0]), leads: make(chan time.Time, 10)}
	c.Env = append(os.Environ(), etcdEnv+"="+endpoints, candidateTTL+"="+strconv.Itoa(ttl))
	c.Stdout, c.Stderr = c, os.Stderr
	dieWithParent(c.Cmd)
	if err := c.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		_ = c.Process.Kill()
		_ = c.Wait()
	})
	return c
}

// BenchmarkEtcdElection is what BenchmarkFailover of package election measures, for etcd's Election. The
// default of a session is 60 s.
//
//	go test -bench EtcdElection -benchtime 10x -run '^$' .
func BenchmarkEtcdElection(b *testing.B) {
	endpoints, end, err := spawnEtcd(b.Context())
	if err != nil {
		b.Skip("no etcd: ", err)
	}
	defer end()
	client, err := newEtcd(strings.Split(endpoints, ","))
	if err != nil {
		b.Fatal(err)
	}
	defer client.Close()
	for _, how := range []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM} {
		for _, ttl := range []int{5, 15, 60} {
			b.Run(fmt.Sprintf("%v/ttl=%d", how, ttl), func(b *testing.B) {
				if _, err := client.Delete(b.Context(), "/boss/", clientv3.WithPrefix()); err != nil {
					b.Fatal(err)
				}
				leader := joins(b, endpoints, ttl)
				<-leader.leads
				var took []time.Duration
				for b.Loop() {
					next := joins(b, endpoints, ttl)
					for waiting := int64(0); waiting < 2; {
						r, err := client.Get(b.Context(), "/boss/", clientv3.WithPrefix(), clientv3.WithCountOnly())
						if err != nil {
							b.Fatal(err)
						}
						waiting = r.Count
						time.Sleep(10 * time.Millisecond)
					}
					time.Sleep(rand.N(time.Duration(ttl) * time.Second / 3))
					ended := time.Now()
					_ = leader.Process.Signal(how)
					took = append(took, (<-next.leads).Sub(ended))
					leader = next
				}
				slices.Sort(took)
				b.Log(took)
				b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "ms-median")
				b.ReportMetric(float64(took[len(took)-1].Microseconds())/1000, "ms-worst")
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}
