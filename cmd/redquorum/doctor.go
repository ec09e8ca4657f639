package main

import (
	"bufio"
	"cmp"
	"context"
	"crypto/rand"
	"crypto/tls"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/redquorum/redquorum/internal/cli"
	"github.com/redquorum/redquorum/internal/neterr"
	"github.com/redquorum/redquorum/internal/replicas"
	"github.com/redquorum/redquorum/internal/resp"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/node/redisnode"
	"github.com/redquorum/redquorum/quorum"
)

const doctorManual = `Checks all nodes at the same time for problems with locks: unreachable, a
replica or replicated, dropping keys when memory is short, failing to save,
restarted a moment ago, a clock that is off, listed twice, missing rights,
programs of an older version next to new ones, programs with different
settings; of a URL with ?replicas=2 also whether its replicas follow it, for how
long, and confirm writes. It says which row of the project's page about servers
this is, and which one is better. For each finding it says what it means for a
lock, and what to do. To test its rights it makes and removes keys under a name
of its own, in one step. It changes nothing else.

A server is not ready until it has run for the longest lease: programs ignore it
until then, as it may have lost locks when it restarted. Wait, and run doctor
again.

Exit status: 0 sound, 1 warnings, 3 unsafe or too few nodes are usable, 4 not
ready, 2 usage. Not ready comes before warnings, and unsafe before all.

example:
  redquorum doctor --nodes redis://a:6379,redis://b:6379,redis://c:6379`

const (
	exitUnsafe   = 3
	exitNotReady = 4
)

type severity string

const (
	fine     severity = "info"
	warning  severity = "warning"
	notReady severity = "not ready" // it passes
	unsafe   severity = "unsafe"
)

// severities are in order, the least first, with exit status and verdict.
var severities = []struct {
	severity
	status  int
	verdict string
	color   string
}{
	{fine, exitOK, "sound", green},
	{warning, exitError, "warnings", yellow},
	{notReady, exitNotReady, "not ready", yellow},
	{unsafe, exitUnsafe, "unsafe", red},
}

// A finding is about one node, or about all if Node is empty.
type finding struct {
	Node     string   `json:"node,omitempty"`
	Severity severity `json:"severity"`
	Finding  string   `json:"finding"`
	Means    string   `json:"means,omitempty"`
	Do       string   `json:"do,omitempty"`
}

// A patient is one node. Unknown values are left out; 0 is a finding.
type patient struct {
	Node      string            `json:"node"`
	RTT       *float64          `json:"rtt_ms,omitempty"`
	Server    string            `json:"server,omitempty"` // redis or valkey
	Version   string            `json:"version,omitempty"`
	Role      string            `json:"role,omitempty"`
	RunID     string            `json:"run_id,omitempty"`
	Uptime    *int64            `json:"uptime_s,omitempty"`
	Offset    *float64          `json:"clock_offset_ms,omitempty"`
	Replicas  int               `json:"replicas,omitempty"`    // as its URL says
	Followers []replica         `json:"followers,omitempty"`   // as it says
	Error     string            `json:"error,omitempty"`       // why nothing else is known
	Abstains  int64             `json:"abstains_ms,omitempty"` // for how long programs ignore it, after a restart
	user      string            // who asks
	info      map[string]string // what it says to INFO; nil if it refuses that
	findings  []finding         // in the order in which they were made
	mute      bool              // it is not usable
}

func (p *patient) add(s severity, what, means, do string) {
	p.findings = append(p.findings, finding{p.Node, s, what, means, do})
}

func (p *patient) unfit(what, means, do string) {
	p.mute = true
	p.add(unsafe, what, means, do)
}

// bedside bounds the examination of one node, apart from connecting.
const (
	bedside = 3 * time.Second
	trips   = 40
)

func doctorVerb() *cobra.Command {
	cmd, fs := newVerb("doctor", "check whether servers are fit to hold locks", doctorManual)
	var nodes nodeFlags
	nodes.register(fs)
	asJSON := fs.Bool("json", false, "print one JSON object")
	name := fs.String("name", "redquorum-doctor",
		"the beginning of the lock `name` that is used to test rights; the user must have rights to it")
	return doesUntilSignal(cmd, func(ctx context.Context, c *command) error {
		if err := node.CheckName(*name); err != nil {
			return cli.Usage("--name: %w", err)
		}
		maxLease, err := nodes.limit()
		if err != nil {
			return err
		}
		servers, err := nodes.servers()
		if err != nil {
			return err
		}
		patients := make([]*patient, len(servers))
		var g errgroup.Group
		for i, o := range servers {
			g.Go(func() error {
				patients[i] = examine(ctx, o, *name, cmp.Or(maxLease, quorum.Defaults().MaxLease), nodes.noGuard)
				return nil
			})
		}
		_ = g.Wait() // what fails is a finding
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		d := conclude(patients)
		return cmp.Or(c.print(*asJSON, d, d.text), cli.Exit(severities[d.worst()].status))
	})
}

// clients returns how to ask each node apart from a lock.
func (n *nodeFlags) clients() ([]redisnode.Server, error) {
	servers, err := n.servers()
	for _, o := range servers {
		asClient(o, bedside/2)
	}
	return servers, err
}

// asClient sets go-redis's options as the library does, with no more rights. Connecting
// may take the longer of patience and what the URL says.
func asClient(o redisnode.Server, patience time.Duration) {
	o.DialTimeout = max(patience, o.DialTimeout)
	o.ReadTimeout = max(bedside/2, o.DialTimeout/2)
	o.WriteTimeout = o.ReadTimeout
	o.MaxRetries, o.DialerRetries = -1, 1
	o.ContextTimeoutEnabled = true
	o.DisableIdentity = true
}

// longestAnswer bounds answers that a verb reads, in bytes. Some have other programs'
// values.
const longestAnswer = 64 << 20

// newClient returns a client that reads no longer answer, whatever a server announces.
// Every verb asks through one, apart from nodes.
func newClient(o *redis.Options) *redis.Client {
	its := *o
	its.Protocol = 2 // which Bounded reads
	dial := its.Dialer
	if dial == nil {
		dial = redis.NewDialer(&its)
	}
	its.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return resp.Bounded(conn, longestAnswer), nil
	}
	return redis.NewClient(&its)
}

func examine(ctx context.Context, o redisnode.Server, name string, maxLease time.Duration, noGuard bool) *patient {
	limit := cmp.Or(o.DialTimeout, redisnode.DefaultDialTimeout)
	asClient(o, bedside)
	primary := noteAddress(o.Options)
	client := newClient(o.Options)
	defer client.Close()
	p := &patient{Node: address(o), Replicas: o.Replicas, user: o.Username}
	if p.user == "" && o.CredentialsProviderContext != nil {
		p.user, _, _ = o.CredentialsProviderContext(ctx)
	}
	p.user = cmp.Or(p.user, "default")
	connecting, cancel := context.WithTimeout(ctx, o.DialTimeout)
	defer cancel()
	began := time.Now()
	err := client.Ping(connecting).Err()
	took := time.Since(began)
	ctx, cancel = context.WithTimeout(ctx, bedside+trips*took)
	defer cancel()
	if err == nil {
		err = p.pulse(ctx, client)
	}
	if err != nil {
		greeting, alert := greetingOf(connecting, client.Options())
		p.fails(cmp.Or(alert, err), greeting, o)
		return p
	}
	if noGuard {
		maxLease = 0
	}
	if took > limit && slow(ctx, o.Options, limit) {
		p.unfit(fmt.Sprintf("connecting takes %v", took.Round(time.Millisecond)),
			fmt.Sprintf("programs give up after %v, and never reach it", limit),
			fmt.Sprintf("say dial_timeout=%ds in its URL in all programs", took/time.Second*2+2))
	}
	p.identity(ctx, client, maxLease)
	if p.Role == "sentinel" {
		return p
	}
	if o.Replicas > 0 && p.info["role"] == "master" { // the name of the node stays after a failover
		p.add(fine, "the primary is now "+*primary.Load(), "", "")
	}
	if p.info != nil {
		p.role(ctx, client, o, maxLease)
		p.memory()
		p.persistence(ctx, client, noGuard)
	}
	p.clock(ctx, client)
	p.rights(ctx, client, o, name)
	p.settings(ctx, client)
	return p
}

// fails notes why the server cannot be asked anything: err, and its greeting.
func (p *patient) fails(err error, greeting string, o redisnode.Server) {
	p.mute, p.Error = true, neterr.Text(err)
	var said redis.Error
	switch {
	case errors.As(err, &said) && strings.Contains(err.Error(), "DB index"):
		p.add(warning, "not usable: "+p.Error, "", "correct the number of the database at the end of its URL")
	case strings.HasPrefix(err.Error(), "NOPERM "):
		p.add(warning, "not usable: "+p.Error, "", p.allow(err))
	case errors.As(err, &said):
		p.add(warning, "not usable: "+p.Error, "",
			cmp.Or(remedy(err.Error()), "check the user and password, in its URL or --password-file"))
	case errors.Is(err, resp.ErrProtocol), strings.HasPrefix(err.Error(), "redis: can't parse"):
		p.add(warning, "it answers, but not as Redis does: "+p.Error, "it is not usable", "check the port in its URL")
	case strings.HasPrefix(greeting, "-DENIED"):
		p.add(warning, "not usable: "+strings.TrimSpace(greeting[1:]), "", remedy(greeting))
	case strings.HasPrefix(greeting, "-ERR max number of clients"):
		p.add(warning, "maxclients reached: new connections are rejected", "it is not usable", remedy(greeting))
	case strings.Contains(p.Error, "no Sentinel knows"):
		p.add(warning, "not reachable: "+p.Error, "it is not usable", remedyOfSentinels(p.Error))
	case o.TLSConfig != nil:
		p.add(warning, "not reachable with TLS: "+p.Error, "it is not usable", remedyOfTLS(err, o.TLSConfig))
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE), errors.Is(err, io.EOF):
		p.add(warning, "it ends the connection: "+p.Error, "it is not usable",
			"check the port; if the server wants TLS, its URL begins with rediss://")
	default:
		p.add(warning, "not reachable: "+p.Error, "it is not usable", remedyOfNetwork(err))
	}
}

func noteAddress(o *redis.Options) *atomic.Pointer[string] {
	last, dial := new(atomic.Pointer[string]), o.Dialer
	if dial == nil {
		dial = redis.NewDialer(o)
	}
	o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err == nil {
			last.Store(new(conn.RemoteAddr().String()))
		}
		return conn, err
	}
	return last
}

// greetingOf is what a server says unasked, such as that it has too many clients, or its
// alert of TLS. go-redis takes that for the answer to its first command, or misses it.
func greetingOf(ctx context.Context, o *redis.Options) (text string, alert error) {
	conn, err := o.Dialer(ctx, o.Network, o.Addr)
	if err == nil {
		defer conn.Close()
		_ = conn.SetReadDeadline(time.Now().Add(bedside / 10))
		text, err = bufio.NewReader(io.LimitReader(conn, 4096)).ReadString('\n')
	}
	if err != nil && strings.Contains(err.Error(), remoteAlert) {
		return text, err
	}
	return text, nil
}

const remoteAlert = "remote error: tls: "

func remedyOfTLS(err error, config *tls.Config) string {
	_, untrusted := errors.AsType[*tls.CertificateVerificationError](err)
	alert := strings.Contains(err.Error(), remoteAlert)
	switch {
	case untrusted:
		return "give the CA that has signed its certificate with --cacert, and in the URL a host that the certificate " +
			"names, or such a name as ?sni=NAME"
	case alert && strings.Contains(err.Error(), "certificate") && config.GetClientCertificate == nil:
		return "the server wants a certificate of this client: give one with --cert and --key"
	case alert && strings.Contains(err.Error(), "certificate"):
		return "give a --cert that a CA of the server's has signed, and that has not expired"
	case alert:
		return "have the server accept TLS 1.2 or newer, with usual ciphers"
	}
	return remedyOfNetwork(err) + "; without TLS the URL begins with redis://"
}

// slow reports whether a second connection takes longer than limit, too.
func slow(ctx context.Context, o *redis.Options, limit time.Duration) bool {
	client := newClient(o)
	defer client.Close()
	began := time.Now()
	return client.Ping(ctx).Err() == nil && time.Since(began) > limit
}

func remedyOfSentinels(text string) string {
	for _, r := range []struct{ words, do string }{
		{"WRONGPASS", "correct sentinel_username and sentinel_password in its URL, or sentinel_password_file"},
		{"NOAUTH", "give the password of the Sentinels, as sentinel_password or sentinel_password_file in its URL"},
		{"unknown command", "list Sentinels there: it is none"},
		{"certificate", "give the CA that has signed the certificates with --cacert, and hosts that these name"},
	} {
		if strings.Contains(text, r.words) {
			return r.do
		}
	}
	return "check the name of the primary in its URL, and the addresses of its Sentinels"
}

func remedyOfNetwork(err error) string {
	switch _, lookup := errors.AsType[*net.DNSError](err); {
	case lookup:
		return "correct the host in its URL, or its entry in DNS"
	case errors.Is(err, syscall.EACCES):
		return "allow this user the socket, by the server's unixsocketperm and the rights to the directory"
	case neterr.Timeout(err):
		return "start the server, or fix the network path; if it is far away, say dial_timeout=10s in its URL"
	}
	return "start the server, or fix the network path"
}

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
	p.RTT = new(millis(rtt))
	if rtt > quorum.Defaults().Timeout/2 {
		p.add(warning, fmt.Sprintf("a round trip takes %v", rtt.Round(time.Millisecond)),
			"requests may time out before it answers", "raise Timeout (--timeout), and keep leases much longer than it")
	}
	return nil
}

func millis(d time.Duration) float64 {
	return float64(d.Round(time.Microsecond)) / float64(time.Millisecond)
}

func (p *patient) identity(ctx context.Context, c *redis.Client, maxLease time.Duration) {
	const unnoticed = "a restart would go unnoticed, so programs do not use it"
	var err error
	if p.info, err = cli.Info(ctx, c); err != nil {
		p.unfit("INFO fails: "+neterr.Text(err), unnoticed, p.allow(err, "+info"))
		return
	}
	p.RunID = p.info["run_id"]
	name, version := cli.Product(p.info)
	p.Server, p.Version = strings.ToLower(name), version
	uptime, err := strconv.ParseInt(p.info["uptime_in_seconds"], 10, 64)
	if err != nil || p.RunID == "" {
		p.unfit("INFO does not tell its run_id or uptime", unnoticed, "use Redis 6.0 or newer, or Valkey")
		return
	}
	p.Uptime = &uptime
	if uptime < 0 {
		back := time.Duration(-uptime) * time.Second
		p.add(warning, fmt.Sprintf("its uptime is negative: its clock was set back, to %v before its start", back),
			fmt.Sprintf("its age is unknown, so each program ignores it for %v from its first contact", maxLease),
			"set its clock right, or restart it")
	}
	// The uptime is in whole seconds, and programs add the clocks' drift.
	drift := time.Duration(float64(maxLease) * quorum.Defaults().Drift)
	if guard := maxLease + drift + time.Second - time.Duration(uptime)*time.Second; guard > 0 && uptime >= 0 {
		p.Abstains = guard.Milliseconds()
		p.add(notReady, "started recently", fmt.Sprintf("it may have lost locks, so programs ignore it until it has run for %v", maxLease),
			"wait; restart one node at a time")
	}
	switch p.info["redis_mode"] {
	case "cluster":
		said, _ := c.ClusterInfo(ctx).Result() // a user without the right learns it from MOVED
		_, rest, _ := strings.Cut(said, "cluster_size:")
		size, _, _ := strings.Cut(rest, "\r")
		if masters, err := strconv.Atoi(size); err == nil && masters > 1 {
			p.unfit("is a member of a Redis Cluster", "it has only some of the names, so programs do not use it",
				"use independent masters; a whole cluster can be a node of a program, by redisnode.New")
			break
		}
		p.add(warning, "is part of a Redis Cluster", "its failovers can forget locks", "use independent masters")
	case "sentinel":
		p.Role = "sentinel"
		p.unfit("is a Sentinel", "it holds no data, so no locks", "list the masters themselves")
	}
	if major, _, _ := strings.Cut(p.Version, "."); len(major) == 1 && major < "6" {
		p.add(warning, "Redis "+p.Version+" is older than 6.0", "locks are not tested on it", "upgrade")
	}
}

func (p *patient) role(ctx context.Context, c *redis.Client, o redisnode.Server, maxLease time.Duration) {
	p.Role = p.info["role"]
	replicas := len(replicasOf(p.info))
	switch {
	case p.Role == "slave":
		p.Role = "replica"
		p.unfit(replicaOf+p.info["master_host"]+":"+p.info["master_port"], "it cannot grant a lock",
			"list its master, or make it one")
	case o.Replicas > 0:
		p.replicas(ctx, c, o, maxLease)
	case replicas > 0:
		p.add(warning, fmt.Sprintf("has %d connected replica(s)", replicas),
			"a replica that is promoted in its place may not have the newest locks, and it may go on granting locks",
			fmt.Sprintf("if it fails over, say ?replicas=%d in its URL in all programs; otherwise it needs no replica",
				replicas))
	}
}

const replicaOf = "is a replica of "

// deployment is about a replica whose primary is listed, too. They have one replication
// ID.
func (p *patient) deployment(patients []*patient) *finding {
	id := p.info["master_replid"]
	if p.Role != "replica" || id == "" {
		return nil
	}
	for _, primary := range patients {
		if primary.Role == "master" && primary.info["master_replid"] == id {
			return &finding{primary.Node, unsafe, "is listed with its replica(s)",
				"they are one deployment, so one node",
				fmt.Sprintf("list it once, with ?replicas=%d: by the name of its primary, or by its Sentinels",
					len(replicasOf(primary.info)))}
		}
	}
	return nil
}

func (p *patient) memory() {
	limit, _ := strconv.ParseFloat(p.info["maxmemory"], 64)
	used, _ := strconv.ParseFloat(p.info["used_memory"], 64)
	switch policy := p.info["maxmemory_policy"]; {
	case policy == "":
		p.add(warning, "cannot check maxmemory-policy: INFO does not report it",
			"a lock may be dropped when memory is short", "see that it is noeviction")
	case policy != "noeviction":
		p.add(unsafe, "maxmemory-policy is "+policy,
			"when memory is short it drops keys that expire, and every lock does",
			"CONFIG SET maxmemory-policy noeviction, in its configuration file as well")
	case limit > 0 && used > limit*9/10:
		p.add(warning, fmt.Sprintf("%.0f %% of its memory is used", 100*used/limit),
			"when it is full it refuses all locks", "raise maxmemory, or remove data")
	}
}

func (p *patient) persistence(ctx context.Context, c *redis.Client, noGuard bool) {
	for _, failing := range []string{"rdb_last_bgsave_status", "aof_last_write_status"} {
		if p.info[failing] == "err" {
			p.add(warning, failing+" is err", "it cannot save to disk, and may refuse all locks because of that",
				"see its log; make room on its disk")
		}
	}
	kept, forgets := "no append-only file", "a restart forgets locks"
	if p.info["aof_enabled"] == "1" {
		fsync, err := c.ConfigGet(ctx, "*appendfsync*").Result()
		kept, forgets = "appendfsync is "+fsync["appendfsync"], "a crash forgets the last moments"
		switch {
		case err != nil:
			kept, forgets = "cannot check appendfsync: "+neterr.Text(err), "a crash may forget the last moments"
		case fsync["appendfsync"] == "always" && fsync["no-appendfsync-on-rewrite"] == "yes":
			kept, forgets = "appendfsync is always, but no-appendfsync-on-rewrite is yes",
				"a power failure during a rewrite or a snapshot forgets what came meanwhile"
		case fsync["appendfsync"] == "always":
			forgets = ""
		}
	}
	switch {
	case forgets == "" && p.Replicas > 0:
		p.add(fine, kept, "a restart forgets nothing, but a failover may: the restart guard covers that", "")
	case forgets == "":
		p.add(fine, kept, "a restart forgets nothing; the restart guard may be turned off if all nodes are so", "")
	case noGuard:
		p.add(unsafe, kept, forgets+", and without the restart guard two may then hold one lock",
			"leave the guard on, or set appendonly yes, appendfsync always and no-appendfsync-on-rewrite no")
	default:
		p.add(fine, kept, forgets+"; the restart guard covers that", "")
	}
}

func (p *patient) clock(ctx context.Context, c *redis.Client) {
	var offset time.Duration
	rtt := bedside
	for range 3 { // the quickest exchange tells best
		start := time.Now()
		theirs, err := c.Time(ctx).Result()
		if err != nil {
			p.add(fine, "cannot check its clock: "+neterr.Text(err), "", p.allow(err, "+time"))
			return
		}
		if took := time.Since(start); took < rtt {
			rtt, offset = took, theirs.Sub(start.Add(took/2))
		}
	}
	p.Offset = new(millis(offset))
	if offset.Abs() > time.Second+rtt {
		p.add(warning, fmt.Sprintf("its clock is %v off this machine's", offset.Round(time.Millisecond)),
			"an offset alone does no harm, but a clock that is then set ahead ends locks early",
			"have NTP slew both clocks, not step them")
	}
}

// trial does what the lock's scripts do, on keys of its own. It returns what was refused,
// in the server's words.
//
//go:embed trial.lua
var trial string

const withoutCommand = "restore the command there, which rename-command has taken away, or use another server"

// remedy is for a server that refuses everybody; "" if it may be about the user.
func remedy(text string) string {
	for _, r := range []struct{ word, do string }{
		{"OOM ", "free memory there: remove data, or raise its maxmemory"},
		{"DENIED ", "give it a password, or bind it to an address of a network that you trust and set its protected-mode to no"},
		{"CLUSTERDOWN ", "repair its cluster, or use independent masters"},
		{"MOVED ", "use independent masters: this member of a cluster has only some of the names"},
		{"NOREPLICAS ", "set its min-replicas-to-write to 0: a node needs no replica"},
		{"MISCONF ", "see its log; make room on its disk"},
		{"LOADING ", "wait until it has loaded its data"},
		{"BUSY ", "end the script that it runs"},
		{"MASTERDOWN ", "list its master, or make it one"},
		{"max number of clients ", "close idle connections to it, or raise its maxclients"},
		{"Could not find scripting engine", "use a server that was built with Lua: a lock is a script"},
		{"nknown command", withoutCommand},
		{"nknown Redis command", withoutCommand}, // in a script
	} {
		if strings.Contains(text, r.word) { // Redis 6 says before it where in the script that was
			return r.do
		}
	}
	return ""
}

// advice is rights if the server refuses a command to this user.
func advice(err error, rights string) string {
	if do := remedy(err.Error()); do != "" {
		return do
	}
	if said := redis.Error(nil); !errors.As(err, &said) {
		return "see its log, its load and its maxclients, or fix the network path"
	}
	return rights
}

// allow names the missing rules, unless the error names a command.
func (p *patient) allow(err error, rules ...string) string {
	if before, _, command := strings.Cut(err.Error(), "' command"); command {
		rules = []string{"+" + before[strings.LastIndex(before, "'")+1:]}
	}
	return advice(err, p.rules(rules))
}

const setUser = "ACL SETUSER "

// rules is what gives the user these.
func (p *patient) rules(these []string) string {
	return setUser + p.user + " " + strings.Join(these, " ")
}

// lacks are the rules that a user lacks, by what was refused. The keys are those of a
// lock whose name has this beginning.
func lacks(refused, keys []string, beginning string) (rules []string) {
	for _, words := range refused {
		command, why, _ := strings.Cut(words, ": ")
		if !strings.Contains(why, "key") {
			rules = append(rules, "+"+strings.ToLower(command))
			continue
		}
		for _, key := range keys {
			before, _, _ := strings.Cut(key, beginning)
			rules = append(rules, "~"+before+beginning+"*")
		}
	}
	slices.Sort(rules)
	return slices.Compact(rules)
}

type refusals struct{ error }

func (refusals) RedisError() {}

func (p *patient) rights(ctx context.Context, c *redis.Client, o redisnode.Server, name string) {
	if p.mute {
		return
	}
	beginning := name
	name += ":" + rand.Text()
	script := redis.NewScript(trial)
	keys := []string{
		name, node.FenceKey(name), node.ReadersKey(name), node.NextKey(name), node.HoldKey(name, "doctor"),
		node.QueueKey(name), node.PlaceKey(name, "doctor"),
	}
	channels := []string{node.Channel(name), node.ReadWriteChannel(name), node.WaiterChannel("doctor")}
	refused, err := script.Eval(ctx, c, keys, channels[0], channels[1], channels[2]).StringSlice()
	if err == nil {
		err = script.EvalSha(ctx, c, keys, channels[0], channels[1], channels[2]).Err()
	}
	slices.Sort(refused) // a command is tried with several keys
	refused = slices.Compact(refused)
	var publish error
	refused = slices.DeleteFunc(refused, func(words string) bool {
		words, is := strings.CutPrefix(words, "PUBLISH: ")
		if is {
			publish = refusals{errors.New(words)}
		}
		return is
	})
	do := ""
	switch {
	case err != nil:
		do = p.allow(err, lacks([]string{"EVAL: " + err.Error()}, keys, beginning)...)
	case len(refused) > 0:
		err = refusals{errors.New(strings.Join(refused, "; "))}
		do = advice(err, p.rules(lacks(refused, keys, beginning)))
	}
	if err != nil {
		means := "it cannot grant a lock"
		if strings.Contains(do, " ~") {
			means = "it cannot grant locks whose names begin like this one"
			do += "; or use --name with a name that it may use"
		}
		do = cmp.Or(remedyFor(err.Error(), replicas.Count(o.Replicas)), do)
		p.unfit("fails at what a lock does: "+neterr.Text(err), means, do)
		return
	}
	p.wakes(ctx, c, channels, publish)
}

// wakes notes what keeps releases from waking waiters. Locks work nevertheless.
func (p *patient) wakes(ctx context.Context, c *redis.Client, channels []string, publish error) {
	const every = "&redisson_lock__channel:* &redisson_rwlock:* &" + node.WaiterPrefix + "*"
	rules := func(err error, command string) string {
		if strings.Contains(err.Error(), "channel") {
			return every
		}
		return command
	}
	if publish != nil {
		p.add(warning, "PUBLISH fails: "+neterr.Text(publish),
			"locks are granted and released, but Unlock returns an error, and waiters poll",
			p.allow(publish, rules(publish, "+publish")))
	}
	sub := c.Subscribe(ctx, channels...)
	defer sub.Close()
	for range channels {
		if _, err := sub.Receive(ctx); err != nil {
			p.add(warning, "SUBSCRIBE fails: "+neterr.Text(err),
				"waiters are not woken by releases, and poll", p.allow(err, rules(err, "+subscribe")))
			return
		}
	}
}

// settingsOn returns the settings of living programs with this prefix, some if they are
// many.
func settingsOn(ctx context.Context, c *redis.Client, prefix string) (living []string, err error) {
	name := prefix + node.SettingsName
	fields, _, err := c.HScan(ctx, name, 0, "*", node.ManyFields).Result() // others may have made it large
	for field := range slices.Chunk(fields[:min(len(fields), 2*node.ManyFields)], 2) {
		text := field[0]
		there, e := c.Exists(ctx, node.HoldKey(name, text)).Result()
		err = cmp.Or(err, e)
		if there > 0 {
			living = append(living, text)
		}
	}
	slices.Sort(living)
	return living, err
}

func (p *patient) settings(ctx context.Context, c *redis.Client) {
	living, err := settingsOn(ctx, c, "")
	switch {
	case err != nil:
		p.add(fine, "cannot compare the settings of programs: "+neterr.Text(err), "",
			p.allow(err, "~redquorum_label:* ~{redquorum_label:*"))
	case len(living) > 1:
		p.add(warning, "programs use it with different settings: "+strings.Join(living, "; "),
			"two of them may hold one lock at the same time",
			"give all programs the same nodes, quorum, replicas, MaxLease and Grace")
	}
}

type diagnosis struct {
	Nodes    []*patient `json:"nodes"`
	Findings []finding  `json:"findings"`
	Verdict  string     `json:"verdict"`
}

func conclude(patients []*patient) diagnosis {
	d := diagnosis{Nodes: patients, Findings: []finding{}}
	byID, byAddress := make(map[string]*patient), make(map[string]*patient)
	for _, p := range patients {
		what, twin := "is listed more than once", byAddress[p.Node] // of one that does not let us in there is no more
		if twin == nil {
			if twin = byID[p.RunID]; twin != nil {
				what = "is the same server as " + twin.Node
			}
		}
		if twin != nil {
			p.mute, twin.mute = true, true
			p.add(unsafe, what, "one failure would count twice, so programs use neither", "list each server once")
		}
		if p.Node != "" {
			byAddress[p.Node] = p
		}
		if p.RunID != "" {
			byID[p.RunID] = p
		}
		if one := p.deployment(patients); one != nil {
			for i := range p.findings {
				if strings.HasPrefix(p.findings[i].Finding, replicaOf) {
					p.findings[i].Do = one.Do
				}
			}
			if !slices.Contains(d.Findings, *one) {
				d.Findings = append(d.Findings, *one)
			}
		}
		d.Findings = append(d.Findings, p.findings...)
	}
	n, need := len(patients), len(patients)/2+1
	var able []time.Duration // when, of those who will be
	now := 0
	for _, p := range patients {
		if !p.mute {
			able = append(able, time.Duration(p.Abstains)*time.Millisecond)
		}
		if !p.mute && p.Abstains == 0 {
			now++
		}
	}
	slices.Sort(able)
	what, means := fmt.Sprintf("usable nodes: %d of %d", now, n), fmt.Sprintf("nobody gets a lock with fewer than %d",
		need)
	switch {
	case len(able) < need:
		d.Findings = append(d.Findings, finding{"", unsafe, what, means, "see the other findings"})
	case now < need:
		d.Findings = append(d.Findings, finding{"", notReady, what,
			fmt.Sprintf("%s; enough nodes will be usable in about %.0f s", means, able[need-1].Seconds()), "wait"})
	}
	d.Findings = append(d.Findings, rowOf(patients))
	d.Verdict = severities[d.worst()].verdict
	return d
}

const (
	managedPage = "https://github.com/redquorum/redquorum/blob/main/docs/managed.md"
	rightsPage  = "https://pkg.go.dev/github.com/redquorum/redquorum/node/redisnode#hdr-Permissions"
)

// rowOf names a row of the first table in docs/managed.md. A service that loses no write,
// row 2, looks like one server.
func rowOf(patients []*patient) finding {
	const page, alike = " of " + managedPage, "row 1, three or five independent servers"
	n, replicas := len(patients), patients[0].Replicas
	some := slices.ContainsFunc(patients, func(p *patient) bool { return p.Replicas > 0 })
	switch {
	case n%2 == 0:
		return finding{"", unsafe, count(n), fmt.Sprintf("they survive no more failures than %s would, and the library refuses them without Options.Quorum", count(n-1)),
			"add a node or leave one out"}
	case n > 1 && some:
		return finding{"", fine, count(n) + ", some with replicas: row 1" + page, "no row is better", ""}
	case n > 1:
		return finding{"", fine, count(n) + ": row 1" + page,
			"no row is better, if they share nothing and none fails over", ""}
	case replicas > 1:
		return finding{"", fine, fmt.Sprintf("a primary with %d replicas: row 3%s", replicas, page),
			"after a failover nobody gets a new lock for the longest lease",
			"better: " + alike + "; row 2, a service that loses no write"}
	case replicas == 1:
		return finding{"", warning, "a primary with one replica: row 4" + page,
			"while either is away nobody gets or keeps a lock",
			"better: row 3, one more replica and replicas=2"}
	}
	return finding{"", warning, "a single node: row 5" + page,
		"when it is down nobody gets a lock; doctor cannot see whether it is a service that loses no write, row 2",
		"better: row 3, two replicas and replicas=2; " + alike}
}

func count(nodes int) string { return cli.Count(nodes, "node") }

func (d diagnosis) worst() (worst int) {
	for _, f := range d.Findings {
		worst = max(worst, f.Severity.rank())
	}
	return worst
}

func (s severity) rank() int {
	for i, known := range severities {
		if known.severity == s {
			return i
		}
	}
	return len(severities)
}

type group struct {
	finding
	nodes []string
}

// groups joins equal findings, the worst first.
func (d diagnosis) groups() (all []*group) {
	known := make(map[finding]*group)
	for _, f := range d.Findings {
		name := f.Node
		f.Node = ""
		if known[f] == nil {
			known[f] = &group{finding: f}
			all = append(all, known[f])
		}
		if name != "" {
			known[f].nodes = append(known[f].nodes, name)
		}
	}
	slices.SortStableFunc(all, func(a, b *group) int { return b.Severity.rank() - a.Severity.rank() })
	return all
}

func (d diagnosis) text(w io.Writer) string {
	var b strings.Builder
	p := newPainter(w)
	rows := [][]string{{"NODE", "SERVER", "ROLE", "UP", "RTT", "CLOCK"}}
	for _, n := range d.Nodes {
		rows = append(rows, n.row())
	}
	for _, line := range table(rows) {
		b.WriteString(line + "\n")
	}
	b.WriteString("\n")
	const indent = "           "
	for _, g := range d.groups() {
		about := about(g.nodes, len(d.Nodes))
		known := severities[g.Severity.rank()]
		b.WriteString(p.paint(known.color, fmt.Sprintf("%-9s", g.Severity)) + "  " +
			wrapped(about+printable(g.Finding), indent) + "\n")
		if g.Means != "" {
			b.WriteString(indent + wrapped(g.Means, indent) + "\n")
		}
		if g.Do != "" {
			b.WriteString(indent + "-> " + wrapped(printable(g.Do), indent+"   ") + "\n")
		}
	}
	if strings.Contains(b.String(), setUser) {
		b.WriteString("\nall that a user needs:\n" + rightsPage + "\n")
	}
	verdict := fmt.Sprintf("%s: %s", count(len(d.Nodes)), d.Verdict)
	b.WriteString("\n" + p.paint(severities[d.worst()].color, verdict) + "\n")
	return b.String()
}

// about names the nodes, unless a finding is about all of them.
func about(nodes []string, of int) string {
	switch {
	case len(nodes) == of && of > 1:
		return "all nodes: "
	case len(nodes) > 0:
		return strings.Join(nodes, ", ") + ": "
	}
	return ""
}

func (p *patient) row() []string {
	row := []string{p.Node, "-", "-", "-", "-", "-"}
	if p.Version != "" {
		row[1] = printable(p.Server + " " + p.Version)
	}
	if p.Role != "" {
		row[2] = printable(p.Role)
	}
	if p.Uptime != nil {
		row[3] = (time.Duration(*p.Uptime) * time.Second).String()
	}
	if p.RTT != nil {
		row[4] = fmt.Sprintf("%.2fms", *p.RTT)
	}
	if p.Offset != nil {
		row[5] = fmt.Sprintf("%+.1fms", *p.Offset)
	}
	return row
}
