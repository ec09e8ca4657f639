package main

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redquorum/redquorum/internal/cli"
	"github.com/redquorum/redquorum/internal/neterr"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/node/redisnode"
	"github.com/redquorum/redquorum/quorum"
)

// A replica is what a primary says of one that follows it.
type replica struct {
	addr, state string
	offset, lag int64 // lag in seconds
}

// silentFor is for how many seconds a replica may acknowledge nothing before programs do not wait for it.
const silentFor = 3

func (r replica) away() bool { return r.state != "online" || r.lag >= silentFor }

// replicasOf returns the replicas in INFO replication.
func replicasOf(fields map[string]string) (all []replica) {
	for i := 0; ; i++ {
		text, ok := fields["slave"+strconv.Itoa(i)]
		if !ok {
			return all
		}
		of := make(map[string]string)
		for part := range strings.SplitSeq(text, ",") {
			name, value, _ := strings.Cut(part, "=")
			of[name] = value
		}
		r := replica{addr: net.JoinHostPort(of["ip"], of["port"]), state: of["state"]}
		r.offset, _ = strconv.ParseInt(of["offset"], 10, 64)
		r.lag, _ = strconv.ParseInt(of["lag"], 10, 64)
		all = append(all, r)
	}
}

// replicas looks at those of a primary whose URL says how many it has.
func (p *patient) replicas(ctx context.Context, c *redis.Client, o redisnode.Server, maxLease time.Duration) {
	need := needed(o.Replicas)
	present := make(map[string]bool)
	seen := make(map[string]bool)
	at, _ := strconv.ParseInt(p.info["master_repl_offset"], 10, 64)
	for _, r := range replicasOf(p.info) {
		p.add(fine, fmt.Sprintf("replica %s: %s, %d bytes behind, acknowledged %d s ago", printable(r.addr), printable(r.state), max(0, at-r.offset), r.lag), "", "")
		if seen[r.addr] {
			p.add(warning, "lists the replica "+printable(r.addr)+" twice", "it counts once: it is one server with two connections, or two announce one address",
				"set replica-announce-ip and replica-announce-port, if they are two")
		}
		seen[r.addr] = true
		present[r.addr] = present[r.addr] || !r.away()
	}
	here := 0
	for addr, is := range present {
		if is {
			here++
			p.priority(ctx, o, addr)
		}
	}
	said := fmt.Sprintf("replicas=%d", o.Replicas)
	switch {
	case len(seen) > o.Replicas:
		p.unfit(fmt.Sprintf("has %d replicas, but its URL says %s", len(seen), said), "programs do not use it",
			"say in all programs how many there are, or remove what is no replica")
		return
	case here < need:
		p.unfit(fmt.Sprintf("%d of %d replicas follow it; it needs %d", here, o.Replicas, need), "nobody gets or keeps a lock", "bring its replicas back, or follow its failover")
		return
	case here < o.Replicas:
		p.add(warning, fmt.Sprintf("%d of %d replicas follow it; it needs %d", here, o.Replicas, need),
			fmt.Sprintf("with %d fewer nobody gets or keeps a lock", here-need+1), "bring the others back")
	}
	p.confirmation(ctx, c, o.Replicas)
	if need < o.Replicas {
		p.ages(ctx, c, need, maxLease)
	}
	if got, err := c.ConfigGet(ctx, "min-*s-to-write").Result(); err == nil {
		for option, text := range got {
			if n, _ := strconv.Atoi(text); n > need && strings.HasPrefix(option, "min-replicas") {
				p.add(warning, fmt.Sprintf("%s is %d, and locks need %d", option, n, need), "it refuses locks while it has enough replicas", fmt.Sprintf("set it to at most %d", need))
			}
		}
	}
}

// needed is how many of so many replicas are a majority with their primary.
func needed(replicas int) int { return (replicas + 1) / 2 }

// priority says whether a replica is never promoted. Where it cannot be asked, that is not known.
func (p *patient) priority(ctx context.Context, o redisnode.Server, addr string) {
	its := *o.Options
	its.Network, its.Addr, its.Dialer = "tcp", addr, nil
	c := redis.NewClient(&its)
	defer c.Close()
	ctx, cancel := context.WithTimeout(ctx, bedside/6)
	defer cancel()
	if r, err := cli.Info(ctx, c, "replication"); err == nil && r["slave_priority"] == "0" {
		p.add(fine, "replica "+printable(addr)+" has priority 0", "it counts for locks, but is never promoted", "")
	}
}

// confirm has the replicas that are needed confirm a write, and returns how many have.
func confirm(ctx context.Context, c *redis.Client, replicas int) (have int, err error) {
	conn := c.Conn() // WAIT is about the writes of its connection
	defer conn.Close()
	if err = conn.Publish(ctx, node.WaiterPrefix+"replicas", "").Err(); err != nil {
		return 0, err
	}
	n, err := conn.Wait(ctx, needed(replicas), bedside/6).Result()
	return int(n), err
}

// confirmation measures how long replicas take to confirm a write.
func (p *patient) confirmation(ctx context.Context, c *redis.Client, replicas int) {
	began := time.Now()
	have, err := confirm(ctx, c, replicas)
	took := time.Since(began).Round(10 * time.Microsecond)
	switch {
	case err != nil:
		p.refuses(err)
	case have < needed(replicas):
		p.add(warning, fmt.Sprintf("%d of %d replicas confirmed a write within %v", have, replicas, took), "locks are not granted in time", "see the load of its replicas, and the network to them")
	default:
		p.add(fine, fmt.Sprintf("%d of %d replicas confirmed a write in %v", have, replicas, took), "each lock and each renewal takes so much longer", "")
	}
}

// refuses notes that it does not do what is needed to ask for replicas.
func (p *patient) refuses(err error) {
	p.unfit("does not say which replicas have a lock: "+neterr.Text(err), "programs do not use it",
		advice(err, "allow the user WAIT, MULTI, EXEC, CLIENT|LIST and PUBLISH"))
}

// ages looks for how long the replicas have followed: a grant needs enough that have for the longest lease.
func (p *patient) ages(ctx context.Context, c *redis.Client, need int, maxLease time.Duration) {
	var list *redis.Cmd
	_, err := c.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
		list = pipe.Do(ctx, "client", "list", "type", "replica")
		return nil
	})
	if err != nil {
		p.refuses(err)
		return
	}
	text, _ := list.Text()
	var ages []time.Duration
	for line := range strings.Lines(text) {
		_, rest, _ := strings.Cut(line, " age=")
		age, _, _ := strings.Cut(rest, " ")
		n, _ := strconv.Atoi(age)
		ages = append(ages, time.Duration(n)*time.Second)
	}
	slices.Sort(ages)
	if len(ages) < need {
		return
	}
	drift := time.Duration(float64(maxLease) * quorum.Defaults().Drift)
	if left := maxLease + drift + time.Second - ages[len(ages)-need]; left > 0 {
		p.Abstains = max(p.Abstains, left.Milliseconds())
		p.add(notReady, fmt.Sprintf("enough replicas have followed it for only %v", ages[len(ages)-need]),
			fmt.Sprintf("they may have confirmed locks to another server, so nobody gets a new lock until they have for %v", maxLease), "wait")
	}
}

// remedyFor is what remedy says to do with a server that has so many replicas.
func remedyFor(text string, replicas int) string {
	if replicas > 0 && strings.Contains(text, "NOREPLICAS ") {
		return fmt.Sprintf("bring its replicas back; its min-replicas-to-write may be %d at most", needed(replicas))
	}
	return remedy(text)
}
