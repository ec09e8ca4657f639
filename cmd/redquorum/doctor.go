package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/redquorum/redquorum/quorum"
)

const doctorManual = `
usage: redquorum doctor [--nodes URL,...] [--json]

Looks at every node, all at once and changing nothing, for what makes it unfit
to hold locks: unreachable, a replica or replicated, dropping keys when memory is
short, restarted a moment ago, a clock that is off, listed twice, missing rights.
For each finding it says what it means for a lock, and what to do.

Exit status: 0 sound, 1 warnings, 3 unsafe, 2 usage.

example:
  redquorum doctor --nodes redis://a:6379,redis://b:6379,redis://c:6379
`

const exitUnsafe = 3

// A severity says how bad a finding is.
type severity string

const (
	fine    severity = "ok"
	warning severity = "warning"
	unsafe  severity = "unsafe"
)

// A finding is one thing that the doctor has to say. Node is empty if it
// concerns them all.
type finding struct {
	Node     string   `json:"node,omitempty"`
	Severity severity `json:"severity"`
	Finding  string   `json:"finding"`
	Means    string   `json:"means,omitempty"`
	Do       string   `json:"do,omitempty"`
}

// A patient is one node, as it was found.
type patient struct {
	Node     string    `json:"node"`
	RTT      float64   `json:"rtt_ms"`
	Version  string    `json:"version,omitempty"`
	Role     string    `json:"role,omitempty"`
	RunID    string    `json:"run_id,omitempty"`
	Uptime   int64     `json:"uptime_s"`
	Offset   float64   `json:"clock_offset_ms"`
	findings []finding // in the order in which they were made
}

func (p *patient) add(s severity, what, means, do string) {
	p.findings = append(p.findings, finding{p.Node, s, what, means, do})
}

// bedside bounds the examination of one node.
const bedside = 3 * time.Second

func doctorVerb(ctx context.Context, c *command) int {
	fs := c.flags("doctor", doctorManual)
	var nodes nodeFlags
	nodes.register(fs)
	asJSON := fs.Bool("json", false, "print one JSON object")
	if status, ok := c.parse(fs); !ok {
		return status
	}
	if fs.NArg() > 0 {
		return c.fail("doctor", usageError("%q is left over", fs.Arg(0)))
	}
	maxLease, err := nodes.limit()
	if err != nil {
		return c.fail("doctor", err)
	}
	options, err := nodes.clients()
	if err != nil {
		return c.fail("doctor", err)
	}
	patients := make([]*patient, len(options))
	var g errgroup.Group
	for i, o := range options {
		g.Go(func() error {
			patients[i] = examine(ctx, o, cmp.Or(maxLease, quorum.DefaultMaxLease))
			return nil
		})
	}
	_ = g.Wait() // what fails is a finding
	d := conclude(patients)
	if *asJSON {
		err = json.NewEncoder(c.stdout).Encode(d)
	} else {
		err = d.print(c.stdout)
	}
	if err != nil {
		return c.fail("doctor", err)
	}
	return map[severity]int{fine: exitOK, warning: exitError, unsafe: exitUnsafe}[d.worst()]
}

// clients returns go-redis' options for each node.
func (n *nodeFlags) clients() ([]*redis.Options, error) {
	urls, err := n.urls()
	if err != nil {
		return nil, err
	}
	var all []*redis.Options
	for i, u := range urls {
		o, err := redis.ParseURL(u)
		if err != nil {
			// Not err itself: it has the URL, which may have a password.
			return nil, usageError("URL %d of --nodes is not one of Redis: it should look like redis://host:6379", i+1)
		}
		o.MaxRetries, o.DialerRetries = -1, 1
		o.DialTimeout, o.ReadTimeout, o.WriteTimeout = bedside/2, bedside/2, bedside/2
		o.ContextTimeoutEnabled = true
		all = append(all, o)
	}
	return all, nil
}

func examine(ctx context.Context, o *redis.Options, maxLease time.Duration) *patient {
	ctx, cancel := context.WithTimeout(ctx, bedside)
	defer cancel()
	client := redis.NewClient(o)
	defer client.Close()
	p := &patient{Node: o.Addr}
	if err := p.pulse(ctx, client); err != nil {
		p.add(unsafe, "not reachable: "+err.Error(), "it has no vote", "start it, or mend the way to it; check user and password")
		return p
	}
	p.identity(ctx, client, maxLease)
	p.role(ctx, client)
	p.memory(ctx, client)
	p.persistence(ctx, client)
	p.clock(ctx, client)
	p.rights(ctx, client)
	return p
}

// pulse takes the median of a few round trips.
func (p *patient) pulse(ctx context.Context, c *redis.Client) error {
	var rtts []time.Duration
	for range 6 {
		start := time.Now()
		if err := c.Ping(ctx).Err(); err != nil {
			return err
		}
		rtts = append(rtts, time.Since(start))
	}
	rtts = rtts[1:] // the first one connected
	slices.Sort(rtts)
	rtt := rtts[len(rtts)/2]
	p.RTT = millis(rtt)
	if rtt > quorum.DefaultTimeout/2 {
		p.add(warning, fmt.Sprintf("a round trip takes %v", rtt.Round(time.Millisecond)),
			"rounds may time out before it answers", "raise Timeout, and keep leases much longer than it")
	}
	return nil
}

func millis(d time.Duration) float64 {
	return float64(d.Round(time.Microsecond)) / float64(time.Millisecond)
}

// info returns the fields of a section of INFO.
func info(ctx context.Context, c *redis.Client, section string) (map[string]string, error) {
	text, err := c.Info(ctx, section).Result()
	if err != nil {
		return nil, err
	}
	fields := make(map[string]string)
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			fields[name] = value
		}
	}
	return fields, nil
}

func (p *patient) identity(ctx context.Context, c *redis.Client, maxLease time.Duration) {
	server, err := info(ctx, c, "server")
	if err != nil {
		p.add(unsafe, "INFO is refused: "+err.Error(), "a restart would go unnoticed, so the node gets no vote", "allow the user INFO")
		return
	}
	p.Version, p.RunID = server["redis_version"], server["run_id"]
	p.Uptime, _ = strconv.ParseInt(server["uptime_in_seconds"], 10, 64)
	if guard := maxLease - time.Duration(p.Uptime)*time.Second; guard > 0 {
		p.add(warning, fmt.Sprintf("restarted %d s ago", p.Uptime),
			fmt.Sprintf("it may have forgotten a lock, and has no vote for about %v", guard), "wait; restart one node at a time")
	}
	if server["redis_mode"] == "cluster" {
		p.add(warning, "is part of a Redis Cluster", "its failovers can forget locks", "use independent masters")
	}
	if major, _, _ := strings.Cut(p.Version, "."); len(major) == 1 && major < "6" {
		p.add(warning, "Redis "+p.Version+" is older than 6.0", "locks are not tested on it", "upgrade")
	}
}

func (p *patient) role(ctx context.Context, c *redis.Client) {
	r, err := info(ctx, c, "replication")
	if err != nil {
		return // identity has said it
	}
	p.Role = r["role"]
	replicas := r["connected_slaves"]
	switch {
	case p.Role == "slave":
		p.Role = "replica"
		p.add(unsafe, "is a replica of "+r["master_host"]+":"+r["master_port"], "it cannot grant a lock", "list its master, or make it one")
	case replicas != "" && replicas != "0":
		p.add(warning, "has "+replicas+" connected replica(s)",
			"a replica that is promoted in its place may not have the newest locks", "do not fail over: a node needs no replica, the other nodes stand in for it")
	}
}

// config reads one setting, or finds that it must not.
func (p *patient) config(ctx context.Context, c *redis.Client, name string) (string, bool) {
	values, err := c.ConfigGet(ctx, name).Result()
	if err != nil {
		p.add(warning, "cannot read the setting "+name+": "+err.Error(), "it is not known whether it is safe", "look at the server's configuration yourself")
		return "", false
	}
	return values[name], true
}

func (p *patient) memory(ctx context.Context, c *redis.Client) {
	policy, ok := p.config(ctx, c, "maxmemory-policy")
	if ok && policy != "noeviction" {
		p.add(unsafe, "maxmemory-policy is "+policy, "when memory is short it drops keys that expire, and every lock does",
			"CONFIG SET maxmemory-policy noeviction")
	}
}

func (p *patient) persistence(ctx context.Context, c *redis.Client) {
	aof, ok := p.config(ctx, c, "appendonly")
	if !ok {
		return
	}
	fsync, _ := p.config(ctx, c, "appendfsync")
	switch {
	case aof == "yes" && fsync == "always":
		p.add(fine, "every write is on the disk before it is answered", "a restart forgets nothing; the guard could be turned off", "")
	case aof == "yes":
		p.add(fine, "appendfsync is "+fsync, "a crash forgets the last moments; the restart guard covers that", "")
	default:
		p.add(fine, "no append-only file", "a restart forgets all locks; the restart guard covers that", "")
	}
}

func (p *patient) clock(ctx context.Context, c *redis.Client) {
	start := time.Now()
	theirs, err := c.Time(ctx).Result()
	if err != nil {
		p.add(warning, "TIME is refused: "+err.Error(), "its clock was not compared", "allow the user TIME, for this check alone")
		return
	}
	rtt := time.Since(start)
	offset := theirs.Sub(start.Add(rtt / 2))
	p.Offset = millis(offset)
	if offset.Abs() > time.Second+rtt {
		p.add(warning, fmt.Sprintf("its clock is %v off this machine's", offset.Round(time.Millisecond)),
			"an offset alone does no harm, but a clock that is then set ahead ends locks early", "have NTP slew both clocks, not step them")
	}
}

// rights tries what a lock needs, on no key.
func (p *patient) rights(ctx context.Context, c *redis.Client) {
	if p.Role == "replica" {
		return
	}
	if err := c.Eval(ctx, "return 1", nil).Err(); err != nil {
		p.add(unsafe, "EVAL is refused: "+err.Error(), "it cannot run the lock's scripts", "allow the user EVAL and EVALSHA")
	}
	sub := c.Subscribe(ctx, "redisson_lock__channel:{redquorum doctor}")
	defer sub.Close()
	if _, err := sub.Receive(ctx); err != nil {
		p.add(warning, "SUBSCRIBE is refused: "+err.Error(), "waiters are not woken by releases, and poll", "allow the user the channels redisson_lock__channel:*")
	}
}

// A diagnosis is all that was found.
type diagnosis struct {
	Nodes    []*patient `json:"nodes"`
	Findings []finding  `json:"findings"`
	Verdict  string     `json:"verdict"`
}

func conclude(patients []*patient) diagnosis {
	d := diagnosis{Nodes: patients, Findings: []finding{}}
	byID := make(map[string]string)
	for _, p := range patients {
		if twin, ok := byID[p.RunID]; ok && p.RunID != "" {
			p.add(unsafe, "is the same server as "+twin, "one failure would take two votes, so neither gets one", "list each server once")
		}
		byID[p.RunID] = p.Node
		d.Findings = append(d.Findings, p.findings...)
	}
	switch n := len(patients); {
	case n%2 == 0:
		d.Findings = append(d.Findings, finding{"", warning, fmt.Sprintf("%d nodes", n),
			fmt.Sprintf("they survive no more failures than %d nodes would", n-1), "add a node or leave one out"})
	case n < 3:
		d.Findings = append(d.Findings, finding{"", warning, "a single node", "when it is down nobody gets a lock", "use three or five independent masters"})
	}
	d.Verdict = map[severity]string{fine: "sound", warning: "warnings", unsafe: "unsafe"}[d.worst()]
	return d
}

func (d diagnosis) worst() severity {
	rank := []severity{fine, warning, unsafe}
	worst := 0
	for _, f := range d.Findings {
		worst = max(worst, slices.Index(rank, f.Severity))
	}
	return rank[worst]
}

func (d diagnosis) print(w io.Writer) error {
	var errs []error
	printf := func(format string, args ...any) {
		_, err := fmt.Fprintf(w, format, args...)
		errs = append(errs, err)
	}
	say := func(f finding) {
		printf("  %-8s %s\n", f.Severity, f.Finding)
		if f.Means != "" {
			printf("           %s\n", f.Means)
		}
		if f.Do != "" {
			printf("           -> %s\n", f.Do)
		}
	}
	for _, p := range d.Nodes {
		printf("%s", p.Node)
		if p.Version != "" {
			printf("  redis %s, %s, up %v, %.2f ms away, clock %+.1f ms", p.Version, p.Role,
				time.Duration(p.Uptime)*time.Second, p.RTT, p.Offset)
		}
		printf("\n")
		for _, f := range p.findings {
			say(f)
		}
	}
	for _, f := range d.Findings {
		if f.Node == "" {
			printf("all nodes\n")
			say(f)
		}
	}
	printf("\n%d nodes: %s\n", len(d.Nodes), d.Verdict)
	return errors.Join(errs...)
}
