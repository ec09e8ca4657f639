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
	"github.com/redquorum/redquorum/internal/replicas"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/node/redisnode"
	"github.com/redquorum/redquorum/quorum"
)

type replica struct {
	Addr   string `json:"address"`
	State  string `json:"state"`
	Behind int64  `json:"behind_bytes"`
	Lag    int64  `json:"acknowledged_s"`      // ago
	Age    *int64 `json:"follows_s,omitempty"` // or for longer, where it is not alone at its address
	oldest int64  // of those at its address, s
	away   bool
}

func replicasOf(fields map[string]string) (all []replica) {
	at, _ := strconv.ParseInt(fields["master_repl_offset"], 10, 64)
	for i := 0; ; i++ {
		key := "slave" + strconv.Itoa(i)
		text, ok := fields[key]
		if !ok {
			return all
		}
		if r, ok := replicas.In(key + ":" + text); ok {
			behind := max(0, at-max(0, r.Offset))
			all = append(all, replica{Addr: r.Addr, State: r.State, Behind: behind, Lag: r.Lag, away: !r.Present()})
		}
	}
}

// replicas is for a primary whose URL says how many replicas it has.
func (p *patient) replicas(ctx context.Context, c *redis.Client, o redisnode.Server, maxLease time.Duration) {
	need := replicas.Count(o.Replicas).Needed()
	present := make(map[string]bool)
	seen := make(map[string]bool)
	known, noAges := ages(ctx, c)
	p.Followers = replicasOf(p.info)
	for i := range p.Followers {
		p.Followers[i].age(known)
	}
	for _, r := range p.Followers {
		p.add(fine, fmt.Sprintf("replica %s: %s, %d bytes behind, acknowledged %d s ago%s", printable(r.Addr),
			printable(r.State), r.Behind, r.Lag, r.followed()), "", "")
		if seen[r.Addr] {
			p.add(warning, "lists the replica "+printable(r.Addr)+" twice",
				"it counts once: it is one server with two connections, or two announce one address",
				"set replica-announce-ip and replica-announce-port, if they are two")
		}
		seen[r.Addr] = true
		present[r.Addr] = present[r.Addr] || !r.away
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
		p.unfit(fmt.Sprintf("%d of %d replicas follow it; it needs %d", here, o.Replicas, need),
			"nobody gets or keeps a lock", "bring its replicas back, or follow its failover")
		return
	case here < o.Replicas:
		p.add(warning, fmt.Sprintf("%d of %d replicas follow it; it needs %d", here, o.Replicas, need),
			fmt.Sprintf("with %d fewer nobody gets or keeps a lock", here-need+1), "bring the others back")
	}
	p.confirmation(ctx, c, replicas.Count(o.Replicas))
	switch {
	case need == o.Replicas: // programs do not look
	case noAges != nil:
		p.refuses(noAges)
	default:
		p.young(known[""], need, maxLease)
	}
	if got, err := c.ConfigGet(ctx, "min-*s-to-write").Result(); err == nil {
		for option, text := range got {
			if n, _ := strconv.Atoi(text); n > need && strings.HasPrefix(option, "min-replicas") {
				p.add(warning, fmt.Sprintf("%s is %d, and locks need %d", option, n, need),
					"it refuses locks while it has enough replicas", fmt.Sprintf("set it to at most %d", need))
			}
		}
	}
}

// priority leaves it open whether a replica is promoted if it cannot be asked.
func (p *patient) priority(ctx context.Context, o redisnode.Server, addr string) {
	its := *o.Options
	its.Network, its.Addr, its.Dialer = "tcp", addr, nil
	c := newClient(&its)
	defer c.Close()
	ctx, cancel := context.WithTimeout(ctx, bedside/6)
	defer cancel()
	if r, err := cli.Info(ctx, c, "replication"); err == nil && r["slave_priority"] == "0" {
		p.add(fine, "replica "+printable(addr)+" has priority 0", "it counts for locks, but is never promoted", "")
	}
}

// confirm returns how many replicas have confirmed a write.
func confirm(ctx context.Context, c *redis.Client, of replicas.Count) (have int, err error) {
	conn := c.Conn() // WAIT is about the writes of its connection
	defer conn.Close()
	if err = conn.Publish(ctx, node.WaiterPrefix+"replicas", "").Err(); err != nil {
		return 0, err
	}
	n, err := conn.Wait(ctx, of.Needed(), bedside/6).Result()
	return int(n), err
}

func (p *patient) confirmation(ctx context.Context, c *redis.Client, of replicas.Count) {
	began := time.Now()
	have, err := confirm(ctx, c, of)
	took := time.Since(began).Round(10 * time.Microsecond)
	switch {
	case err != nil:
		p.refuses(err)
	case have < of.Needed():
		p.add(warning, fmt.Sprintf("%d of %d replicas confirmed a write within %v", have, of, took),
			"locks are not granted in time", "see the load of its replicas, and the network to them")
	default:
		p.add(fine, fmt.Sprintf("%d of %d replicas confirmed a write in %v", have, of, took),
			"each lock and each renewal takes so much longer", "")
	}
}

func (p *patient) refuses(err error) {
	p.unfit("does not say which replicas have a lock: "+neterr.Text(err), "programs do not use it",
		p.allow(err, "+wait +multi +exec +client|list +publish &"+node.WaiterPrefix+"*"))
}

// ages asks how long replicas have followed.
func ages(ctx context.Context, c *redis.Client) (map[string][]time.Duration, error) {
	var list *redis.Cmd
	_, err := c.TxPipelined(ctx, func(pipe redis.Pipeliner) error { // as programs do
		list = pipe.Do(ctx, "client", "list", "type", "replica")
		return nil
	})
	if err != nil {
		return nil, err
	}
	text, _ := list.Text()
	return agesIn(text), nil
}

// agesIn returns the ages of connections in CLIENT LIST by their hosts, and all under "",
// the youngest first.
func agesIn(list string) map[string][]time.Duration {
	known := make(map[string][]time.Duration)
	for line := range strings.Lines(list) {
		of := make(map[string]string)
		for part := range strings.FieldsSeq(line) {
			name, value, _ := strings.Cut(part, "=")
			of[name] = value
		}
		seconds, _ := strconv.Atoi(of["age"])
		host, _, _ := net.SplitHostPort(of["addr"])
		for _, at := range slices.Compact([]string{"", host}) {
			known[at] = append(known[at], time.Duration(seconds)*time.Second)
		}
	}
	for _, ages := range known {
		slices.Sort(ages)
	}
	return known
}

// age uses the host alone: of several connections it takes the youngest.
func (r *replica) age(known map[string][]time.Duration) {
	host, _, _ := net.SplitHostPort(r.Addr)
	ages, ok := known[host]
	if !ok { // it announces another address than it comes from
		ages = known[""]
	}
	if len(ages) > 0 {
		r.Age, r.oldest = new(int64(ages[0]/time.Second)), int64(ages[len(ages)-1]/time.Second)
	}
}

// followed is the end of a sentence, or "" if the time is not known.
func (r replica) followed() string {
	if r.Age == nil {
		return ""
	}
	text := fmt.Sprintf(", has followed for %v", time.Duration(*r.Age)*time.Second)
	if r.oldest > *r.Age {
		text += fmt.Sprintf(" to %v", time.Duration(r.oldest)*time.Second)
	}
	return text
}

// young is about ages: a grant needs enough replicas that have followed for the longest
// lease.
func (p *patient) young(ages []time.Duration, need int, maxLease time.Duration) {
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

func remedyFor(text string, of replicas.Count) string {
	if of > 0 && strings.Contains(text, "NOREPLICAS ") {
		return fmt.Sprintf("bring its replicas back; its min-replicas-to-write may be %d at most", of.Needed())
	}
	return remedy(text)
}
