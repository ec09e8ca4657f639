package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redquorum/redquorum/internal/assert"
	"github.com/redquorum/redquorum/internal/terminal"
	"github.com/redquorum/redquorum/internal/tests"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/quorum"
)

func (d diagnosis) has(node string, severity severity, text string) bool {
	return slices.ContainsFunc(d.Findings, func(f finding) bool {
		return f.Node == node && f.Severity == severity && strings.Contains(f.Finding, text)
	})
}

// lines has one line for each finding, and the verdict.
func (d diagnosis) lines() string {
	var b strings.Builder
	for _, f := range d.Findings {
		about := ""
		if f.Node != "" {
			about = f.Node + ": "
		}
		fmt.Fprintf(&b, "%s %s%s -> %s\n", f.Severity, about, f.Finding, f.Do)
	}
	return b.String() + "verdict: " + d.Verdict
}

// doctor also checks that status and verdict fit together. It asks again while a node is
// late, as on a busy machine.
func doctor(t *testing.T, flags string, urls ...string) (r diagnosis) {
	t.Helper()
	args := append([]string{"doctor", "--json", "--nodes", strings.Join(urls, ",")}, strings.Fields(flags)...)
	var status int
	var stderr string
	for end := time.Now().Add(2 * time.Minute); ; {
		var stdout string
		status, stdout, stderr = redquorum(t, args...)
		r = diagnosis{}
		decode(t, stdout, &r)
		slow := slices.ContainsFunc(r.Nodes, func(p *patient) bool { return p.Error == "" && p.RTT != nil && *p.RTT > 100 })
		slow = slow || slices.ContainsFunc(r.Findings, func(f finding) bool {
			return strings.HasSuffix(f.Finding, ": no answer in time") && !strings.HasPrefix(f.Finding, "not reachable")
		})
		if !slow || time.Now().After(end) {
			break
		}
	}
	want := map[string]int{"sound": 0, "warnings": 1, "unsafe": 3, "not ready": 4}[r.Verdict]
	assert.That(t, status == want && stderr == "", "verdict %q, status %d, %s", r.Verdict, status, stderr)
	assert.That(t, len(r.Nodes) == len(urls), "%d nodes, want %d", len(r.Nodes), len(urls))
	for _, f := range r.Findings {
		if f.Finding == "" || f.Severity != "info" && (f.Means == "" && !strings.HasPrefix(f.Finding, "not usable: ") || f.Do == "") {
			t.Errorf("finding %+v lacks something", f)
		}
	}
	return r
}

// Each server here is too young for the guard, which is tested apart.
const grownUp = "--max-lease 1ms "

func TestDoctorNoFsyncOnRewrite(t *testing.T) {
	t.Parallel()
	s := tests.Server(t, "--appendonly", "yes", "--appendfsync", "always", "--no-appendfsync-on-rewrite", "yes")
	for flags, level := range map[string]string{"": "info", "--no-guard": "unsafe"} {
		tests.Says(t, doctor(t, flags, s.URL()).lines(), level+" "+s.Addr()+": appendfsync is always, but no-appendfsync-on-rewrite is yes")
	}
}

func TestDoctorSound(t *testing.T) {
	t.Parallel()
	a, b, c := tests.Server(t), tests.Server(t, "--appendonly", "yes"), tests.Server(t, "--appendonly", "yes", "--appendfsync", "always")
	urls := []string{a.URL(), b.URL(), c.URL()}

	r := doctor(t, "", urls...)
	if tests.Says(t, r.lines(), "not ready "+a.Addr()+": started", "not ready usable nodes: 0 of 3", "verdict: not ready"); r.Nodes[0].Abstains < 20_000 {
		t.Errorf("just started: %+v", r.Nodes[0])
	}
	assert.Eventually(t, "sound", func() bool { r = doctor(t, grownUp, urls...); return r.Verdict == "sound" })
	n := r.Nodes[0]
	if n.Node != a.Addr() || *n.RTT <= 0 || n.Version == "" || n.Role != "master" || len(n.RunID) != 40 || *n.Uptime < 1 || *n.Offset > 1000 || *n.Offset < -1000 {
		t.Errorf("node %+v", n)
	}
	tests.Says(t, r.lines(), "info "+a.Addr()+": no append-only file", "info "+b.Addr()+": appendfsync is everysec", "info "+c.Addr()+": appendfsync is always")
	tests.Says(t, want(t, exitOK, "3 nodes: sound", append([]string{"doctor", "--nodes", strings.Join(urls, ",")}, strings.Fields(grownUp)...)...),
		a.Addr()+"  "+n.Server+" "+n.Version+"  master  ",
		"info       "+a.Addr()+": no append-only file\n           a restart forgets locks; the restart guard covers that\n")

	// Without the guard a restart must not forget locks.
	tests.Says(t, doctor(t, "--no-guard", urls...).lines(), "unsafe "+a.Addr()+": no append-only file", "unsafe "+b.Addr()+": appendfsync is everysec",
		"info "+c.Addr()+": appendfsync is always", "verdict: unsafe")

	// It leaves nothing behind.
	for _, u := range urls {
		keys, err := clientOf(t, u).Keys(t.Context(), "*").Result()
		assert.That(t, err == nil && len(keys) == 0, "keys left behind: %q, %v", keys, err)
	}

	// Down, hung, or listed twice.
	twin := strings.Replace(a.URL(), "127.0.0.1", "localhost", 1)
	tests.Says(t, doctor(t, grownUp, a.URL(), b.URL(), twin).lines(), "unsafe "+strings.TrimPrefix(twin, "redis://")+": is the same server as "+a.Addr(),
		"unsafe usable nodes: 1 of 3", "verdict: unsafe")
	tests.Says(t, doctor(t, grownUp, a.URL(), b.URL()).lines(), "unsafe 2 nodes", "verdict: unsafe")
	tests.Says(t, doctor(t, grownUp, a.URL()).lines(), "warning a single node", "verdict: warnings")
	a.Kill()
	r = doctor(t, grownUp, urls...)
	tests.Says(t, r.lines(), "warning "+a.Addr()+": not reachable", "verdict: warnings")
	n = r.Nodes[0]
	assert.That(t, n.RTT == nil && n.Uptime == nil && n.Offset == nil, "known of one that is down: %+v", n)
	assert.Succeed(t, b.Stop())
	begun := time.Now()
	tests.Says(t, doctor(t, grownUp, urls...).lines(), "warning "+b.Addr()+": not reachable", "unsafe usable nodes: 1 of 3", "verdict: unsafe")
	took := time.Since(begun)
	assert.That(t, took <= time.Minute, "one is down, one hangs: after %v", took)
}

func TestDoctorAtAFullServer(t *testing.T) {
	t.Parallel()
	s := tests.Server(t, "--maxclients", "3")
	var another net.Conn
	for range 3 {
		another = assert.Got(net.Dial("tcp", s.Addr()))(t)
		defer another.Close()
	}
	want(t, exitUnsafe, "maxclients reached", "doctor", "--nodes", s.Addr())
	another.Close()
	var r diagnosis
	assert.Eventually(t, "place for one connection", func() bool {
		r = doctor(t, grownUp, s.URL())
		return r.has(s.Addr(), "warning", "SUBSCRIBE fails")
	})
	tests.Says(t, r.advice("SUBSCRIBE fails"), "maxclients", "!allow the user")
}

// If a server does not answer, or refuses everybody, the advice is not about rights.
func TestDoctorAdviceAtAServerThatFails(t *testing.T) {
	t.Parallel()
	s := tests.Server(t)
	assert.Succeed(t, clientOf(t, s.URL()).Do(t.Context(), "client", "pause", 60_000, "write").Err()) // as in a failover
	var r diagnosis
	assert.Eventually(t, "a script that times out", func() bool {
		_, stdout, _ := redquorum(t, "doctor", "--json", "--nodes", s.URL())
		r = diagnosis{}
		decode(t, stdout, &r)
		return r.has(s.Addr(), "unsafe", "fails at what a lock does: no answer in time")
	})
	tests.Says(t, r.advice("fails at what a lock does"), "its load", "!right")

	orphan := tests.Server(t, "--replica-serve-stale-data", "no")
	assert.Succeed(t, clientOf(t, orphan.URL()).ReplicaOf(t.Context(), "127.0.0.1", "1").Err())
	tests.Says(t, doctor(t, grownUp, orphan.URL()).advice("not usable: MASTERDOWN"), "list its master")

	busy := serve(t, func(c net.Conn) {
		for in := bufio.NewScanner(c); in.Scan(); {
			switch strings.ToLower(in.Text()) {
			case "ping":
				_, _ = io.WriteString(c, "+PONG\r\n")
			case "hello":
				_, _ = io.WriteString(c, "-ERR unknown command\r\n")
			case "info", "time", "pubsub", "hgetall":
				_, _ = io.WriteString(c, "-BUSY Redis is busy running a script.\r\n")
			}
		}
	})
	lookup := &net.OpError{Op: "dial", Net: "tcp", Err: &net.DNSError{Err: "no such host", Name: "h", IsNotFound: true}}
	tests.Says(t, remedyOfNetwork(fmt.Errorf("redis: %w", lookup)), "host")
	tests.Says(t, remedyOfNetwork(&net.OpError{Op: "dial", Net: "unix", Err: os.NewSyscallError("connect", syscall.EACCES)}), "unixsocketperm")
	r = doctor(t, grownUp, busy)
	tests.Says(t, r.lines(), "INFO fails", "cannot check its clock", "settings", "!allow the user")
}

// Its advice fits its findings.
func TestDoctorAdvice(t *testing.T) {
	t.Parallel()
	web := httptest.NewServer(http.NotFoundHandler())
	defer web.Close()
	tests.Says(t, doctor(t, grownUp, strings.TrimPrefix(web.URL, "http://")).advice("it answers, but not as Redis does"), "port")
	r := doctor(t, grownUp, tests.Server(t, "--maxmemory", "1").URL())
	tests.Says(t, r.advice("OOM"), "free memory")
	for _, f := range r.Findings {
		assert.That(t, strings.Count(f.Finding, "OOM command not allowed") <= 1, "it says the same again and again: %s", f.Finding)
	}
	r = doctor(t, grownUp, tests.Server(t, "--cluster-enabled", "yes").URL())
	tests.Says(t, r.advice("fails at what a lock does: CLUSTERDOWN"), "cluster")
	tests.Says(t, r.advice("cannot compare the settings of programs: CLUSTERDOWN"), "cluster", "!allow the user")
	locked := tests.Server(t, "--requirepass", "s3kr1t")
	tests.Says(t, doctor(t, grownUp, locked.URL(), locked.URL(), locked.URL()).lines(),
		"warning "+locked.Addr()+": not usable: NOAUTH", "unsafe "+locked.Addr()+": is listed more than once")
	tests.Says(t, doctor(t, grownUp, "sentinel://127.0.0.1:1/mymaster?replicas=2").advice("no Sentinel knows"), "name of the primary")
	without := tests.Server(t, "--rename-command", "EVAL", "")
	do := doctor(t, grownUp, without.URL()).advice("fails at what a lock does: ERR unknown command")
	tests.Says(t, do, "rename-command", "!ACL")
	want(t, exitConfig, "it runs no Lua scripts (EVAL), which every lock needs", "run", "a", "--no-guard", "--nodes", without.Addr(), "--", "true")
	old := tests.Server(t, "--rename-command", "AUTH", "", "--rename-command", "HELLO", "") // it repeats what it does not know
	tests.Says(t, doctor(t, grownUp, strings.Replace(old.URL(), "//", "//u:s3kr1t@", 1)).lines(), "not usable: ERR unknown command", "!s3kr1t")
}

// A far server is found, and what its URL needs.
func TestDoctorOfAFarServer(t *testing.T) {
	tests.NeedSeconds(t)
	t.Parallel()
	s := tests.Server(t)
	far := serve(t, func(c net.Conn) {
		time.Sleep(1100 * time.Millisecond)
		inner, err := net.Dial("tcp", s.Addr())
		if err != nil {
			return
		}
		defer inner.Close()
		go func() { _, _ = io.Copy(inner, c); inner.Close() }()
		_, _ = io.Copy(c, inner)
	})
	r := doctor(t, grownUp, far)
	assert.That(t, r.has(far, unsafe, "connecting takes "), "%s", r.lines())
	tests.Says(t, r.advice("connecting takes "), "say dial_timeout=")
	const setting = "?dial_timeout=1m"
	r = doctor(t, grownUp, "redis://"+far+setting)
	tests.Says(t, r.lines(), "!connecting takes ", "verdict: warnings")
	ends(t, exitOK, "run", "a", "--no-guard", "--wait", "1m", "--nodes", "redis://"+far+setting, "--", "true")
}

func TestAMemberOfAClusterIsRefused(t *testing.T) {
	tests.NeedSeconds(t)
	t.Parallel()
	one, two := tests.Server(t, "--cluster-enabled", "yes"), tests.Server(t, "--cluster-enabled", "yes")
	half := func(from, to int) (command []any) {
		command = []any{"cluster", "addslots"}
		for slot := from; slot < to; slot++ {
			command = append(command, slot)
		}
		return command
	}
	host, port, _ := net.SplitHostPort(two.Addr())
	c := clientOf(t, one.URL())
	assert.Succeed(t, c.Do(t.Context(), half(0, 8192)...).Err())
	assert.Succeed(t, clientOf(t, two.URL()).Do(t.Context(), half(8192, 16384)...).Err())
	assert.Succeed(t, c.Do(t.Context(), "cluster", "meet", host, port).Err())
	assert.Eventually(t, "a cluster of two", func() bool {
		return strings.Contains(c.ClusterInfo(t.Context()).Val(), "cluster_size:2\r")
	})
	for _, name := range []string{"a", "b"} { // in one half each
		args := []string{"run", name, "--no-guard", "--try", "--nodes", one.Addr(), "--", "true"}
		want(t, exitConfig, "it is a member of a cluster", args...)
	}
	r := doctor(t, grownUp, one.URL())
	assert.That(t, r.has(one.Addr(), unsafe, "is a member of a Redis Cluster"), "%s", r.lines())
}

func TestDoctorWaits(t *testing.T) {
	young := func(abstains int64) *patient { return &patient{Abstains: abstains} }
	for _, c := range []struct {
		patients []*patient
		verdict  string
		means    string // of the finding that is about it
	}{
		{[]*patient{young(0), young(29_000), young(0)}, "sound", ""}, // the young one's warning is its own
		{[]*patient{young(0), young(29_000), young(9_000)}, "not ready", "nobody gets a lock with fewer than 2; enough nodes will be usable in about 9 s"},
		{[]*patient{young(7_000), young(29_000), {mute: true}}, "not ready", "nobody gets a lock with fewer than 2; enough nodes will be usable in about 29 s"},
		{[]*patient{young(7_000), {mute: true}, {mute: true}}, "unsafe", "nobody gets a lock with fewer than 2"},
	} {
		d := conclude(c.patients)
		means := ""
		for _, f := range d.Findings {
			if strings.HasPrefix(f.Finding, "usable nodes") {
				means = f.Means
			}
		}
		assert.That(t, d.Verdict == c.verdict && means == c.means, "%s: %q, want %s: %q", d.Verdict, means, c.verdict, c.means)
	}
}

// It names the row of the page for the servers, and a better one.
func TestDoctorRows(t *testing.T) {
	page := string(assert.Got(os.ReadFile("../../docs/managed.md"))(t))
	for _, c := range []struct {
		replicas []int // of each node
		row, own string
		better   []string
	}{
		{[]int{0, 0, 0}, "info 3 nodes: row 1", "| **1. Three or five servers**", nil},
		{[]int{0, 0, 0, 0, 0}, "info 5 nodes: row 1", "| **1. Three or five servers**", nil},
		{[]int{2, 2, 2}, "info 3 nodes, some with replicas: row 1", "With rows 3 and 4 several deployments can be the nodes of one quorum", nil},
		{[]int{2}, "info a primary with 2 replicas: row 3", "| **3. A primary with two replicas**", []string{"row 1, three or five"}},
		{[]int{1}, "warning a primary with one replica: row 4", "| **4. A primary with one replica**", []string{"row 3, one more replica"}},
		{[]int{0}, "warning a single node: row 5", "| **5. One server**", []string{"row 3, two replicas", "row 1, three or five"}},
	} {
		var patients []*patient
		for i, n := range c.replicas {
			patients = append(patients, &patient{Node: fmt.Sprint("h", i), Replicas: n})
		}
		d := conclude(patients)
		tests.Says(t, d.lines(), c.row+" of https://github.com/redquorum/redquorum/blob/main/docs/managed.md")
		tests.Says(t, page, c.own)
		tests.Says(t, d.advice(": row"), c.better...)
		assert.That(t, c.better != nil || d.Verdict == "sound" && d.advice(": row") == "", "%v: %+v", c.replicas, d)
	}
}

// Ages of replicas are those of connections from their addresses, if these are distinct.
func TestDoctorAges(t *testing.T) {
	const list = "id=3 addr=10.0.0.2:34728 laddr=10.0.0.1:6379 fd=8 name= age=325 idle=0 flags=S\n" +
		"id=4 addr=10.0.0.3:34728 laddr=10.0.0.1:6379 fd=8 name= age=12 idle=0 flags=S\n" +
		"id=5 addr=[::1]:34728 laddr=10.0.0.1:6379 fd=8 name= age=40 idle=0 flags=S\n" +
		"id=6 addr=10.0.0.3:34729 laddr=10.0.0.1:6379 fd=8 name= age=20 idle=0 flags=S\n"
	known := agesIn(list)
	for addr, want := range map[string]string{
		"10.0.0.2:6379": "5m25s", "10.0.0.3:6380": "12s to 20s", "[::1]:1": "40s", "replica.example.com:1": "12s to 5m25s",
	} {
		r := replica{Addr: addr}
		r.age(known)
		assert.Equal(t, r.followed(), ", has followed for "+want, addr)
	}
	r := replica{Addr: "10.0.0.2:6379"}
	r.age(agesIn(""))
	assert.That(t, r.Age == nil && r.followed() == "", "%+v", r)
}

// Equal findings are one, the worst come first, and lines fit a terminal.
func TestDoctorPrints(t *testing.T) {
	patients := []*patient{{Node: "redis-1.example.com:6379"}, {Node: "redis-2.example.com:6379"}, {Node: "redis-3.example.com:6379"}}
	for i, p := range patients {
		p.add(fine, "no append-only file", "a restart forgets locks", "")
		p.add(warning, "not reachable: dial tcp "+strings.Repeat("long ", 30), "it is not usable", "start it")
		if i < 2 {
			p.add(unsafe, "maxmemory-policy is allkeys-lru", "it drops keys", "use noeviction")
		}
	}
	out := conclude(patients).text(nil)
	tests.Narrow(t, out, terminal.Page)
	want := []string{"unsafe     redis-1.example.com:6379, redis-2.example.com:6379: maxmemory-policy\n           is allkeys-lru\n           it drops keys\n           -> use noeviction\n",
		"warning    all nodes: not reachable: dial tcp long", "info       all nodes: no append-only file\n           a restart forgets locks\n", "\n3 nodes: unsafe\n"}
	rest := out
	for _, text := range want {
		_, after, found := strings.Cut(rest, text)
		assert.Must(t, found, "%q is missing, or not in its place, in:\n%s", text, out)
		rest = after
	}
}

func TestDoctorUnfit(t *testing.T) {
	t.Parallel()
	master := tests.Server(t, "--repl-diskless-sync-delay", "0")
	host, port, _ := strings.Cut(master.Addr(), ":")
	replica := tests.Server(t, "--replicaof", host, port)
	evicting := tests.Server(t, "--maxmemory-policy", "volatile-lru")
	full := tests.Server(t, "--maxmemory", "1")
	unsaved := tests.Server(t, "--min-replicas-to-write", "1")

	var r diagnosis
	assert.Eventually(t, "replication, and age", func() bool {
		time.Sleep(100 * time.Millisecond)
		r = doctor(t, grownUp, master.URL(), replica.URL(), evicting.URL(), full.URL(), unsaved.URL())
		return r.has(master.Addr(), "warning", "has 1 connected replica") && r.Nodes[0].Abstains == 0 && r.Nodes[2].Abstains == 0
	})
	tests.Says(t, r.lines(), "unsafe "+replica.Addr()+": is a replica of "+master.Addr(), "unsafe "+evicting.Addr()+": maxmemory-policy is volatile-lru",
		"unsafe usable nodes: 2 of 5", "verdict: unsafe", "unsafe "+master.Addr()+": is listed with its replica", "list it once, with ?replicas=1")
	if r.Nodes[1].Role != "replica" || !r.has(full.Addr(), "warning", "of its memory is used") || !r.has(full.Addr(), "unsafe", "OOM") || !r.has(unsaved.Addr(), "unsafe", "NOREPLICAS") {
		t.Errorf("%+v", r)
	}
}

// Programs with another list of nodes or another MaxLease are seen while they live.
func TestDoctorSettings(t *testing.T) {
	t.Parallel()
	var urls []string
	for range 3 {
		urls = append(urls, tests.Server(t).URL())
	}
	program := func(name string, maxLease time.Duration, urls ...string) {
		hold(t, newLockerOf(t, strings.Join(urls, ","), quorum.Options{MaxLease: maxLease, NoRestartGuard: true}), name)
	}
	var r diagnosis
	const finding = "programs use it with different settings: "
	program("a", 30*time.Second, urls...)
	program("b", 30*time.Second, urls...)
	r = doctor(t, grownUp, urls...)
	assert.That(t, !r.has(r.Nodes[0].Node, "warning", finding), "equal settings: %+v", r)
	program("c", time.Minute, urls[0])
	assert.Eventually(t, "its settings", func() bool {
		r = doctor(t, grownUp, urls...)
		return r.has(r.Nodes[0].Node, "warning",
			finding+"nodes 1, quorum 1, replicas [], MaxLease 1m0s, Grace 0s; nodes 3, quorum 2, replicas [], MaxLease 30s, Grace 0s")
	})
	assert.That(t, !r.has(r.Nodes[1].Node, "warning", finding), "%+v", r)
}

// Status sees them as well, also with a prefix.
func TestStatusOfSettings(t *testing.T) {
	t.Parallel()
	_, urls := startNodes(t, 3)
	status := func(flags ...string) (s statusJSON, text string) {
		flags = append([]string{"status", "job", "--no-guard", "--nodes", urls}, flags...)
		_, text, _ = redquorum(t, flags...)
		_, stdout, _ := redquorum(t, append(flags, "--json")...)
		decode(t, stdout, &s)
		return s, text
	}
	s, text := status()
	assert.That(t, s.Settings != nil && len(s.Settings) == 0 && !strings.Contains(text, "settings"), "%+v\n%s", s, text)
	one, other := "nodes 3, quorum 2, replicas [], MaxLease 30s, Grace 0s", "nodes 3, quorum 2, replicas [], MaxLease 1m0s, Grace 0s"
	for _, o := range []quorum.Options{{MaxLease: 30 * time.Second}, {MaxLease: time.Minute}, {Prefix: "app:"}} {
		o.NoRestartGuard = true
		hold(t, newLockerOf(t, urls, o), o.MaxLease.String())
	}
	assert.Eventually(t, "both settings", func() bool {
		s, text = status()
		return slices.Equal(s.Settings, []string{other, one}) &&
			strings.Contains(strings.Join(strings.Fields(text), " "), "programs use these nodes with different settings: "+other+"; "+one+". Two")
	})
	assert.Eventually(t, "the settings of the one with a prefix", func() bool {
		s, text = status("--prefix", "app:")
		return slices.Equal(s.Settings, []string{one}) && !strings.Contains(text, "settings")
	})
}

func TestDoctorRights(t *testing.T) {
	t.Parallel()
	s := tests.Server(t, "--requirepass", "s3kr1t")
	withUser := func(user string) string { return strings.Replace(s.URL(), "//", "//"+user+"@", 1) }
	admin := withUser(":s3kr1t")
	client := clientOf(t, admin)
	before62 := strings.Contains(client.Info(t.Context(), "server").Val(), "redis_version:6.0.") // it has no rules for channels
	allow := func(user, rules string) string {
		t.Helper()
		args := []any{"ACL", "SETUSER", user, "on", ">pw", "resetkeys", "-@all"}
		for rule := range strings.FieldsSeq("resetchannels " + rules) {
			if !before62 || rule != "resetchannels" && rule[0] != '&' {
				args = append(args, rule)
			}
		}
		assert.Succeed(t, client.Do(t.Context(), args...).Err())
		return withUser(user + ":pw")
	}
	// The rights that a lock needs, from the documentation of redisnode.
	const keys = "~nightly* ~{nightly* ~redquorum_fence:{nightly* ~redquorum_readers:{nightly* ~redquorum_next:{nightly* " +
		"~redquorum_waitqueue:{nightly* ~redquorum_waitplace:{nightly* &redisson_lock__channel:{nightly* &redisson_rwlock:{nightly* &redquorum_turn:* "
	const commands = "+info +ping +eval +evalsha +subscribe +unsubscribe +publish " +
		"+exists +get +getrange +mget +set +del +unlink +type +pttl +pexpire +hset +hget +hexists +hdel +hgetall +hscan +hlen " +
		"+zadd +zrem +zrange +zrank +zcount +zcard "
	locker := allow("locker", keys+commands)

	tests.Says(t, doctor(t, grownUp, s.URL()).lines(), "warning "+s.Addr()+": not usable: NOAUTH", "verdict: unsafe")
	for _, flags := range []string{"", "--json"} {
		tests.Says(t, want(t, exitUnsafe, "WRONGPASS", append([]string{"doctor", "--nodes", withUser("locker:0ther")}, strings.Fields(flags)...)...), "!0ther")
	}
	assert.Eventually(t, "the server's age", func() bool { return !doctor(t, grownUp, admin).has(s.Addr(), "not ready", "started") })
	r := doctor(t, grownUp+"--name nightly", locker)
	tests.Says(t, r.lines(), "warning a single node", "info "+s.Addr()+": cannot check its clock", "verdict: warnings")
	assert.That(t, r.Nodes[0].Offset == nil, "just enough rights: %+v", r.Nodes[0])
	tests.Says(t, doctor(t, grownUp, locker).lines(), "unsafe "+s.Addr()+": fails at what a lock does: NOPERM")
	for _, c := range []struct {
		without  string
		severity severity
		finding  string
	}{
		{"+info", "unsafe", "INFO fails"},
		{"+eval", "unsafe", "fails at what a lock does"},
		{"+evalsha", "unsafe", "fails at what a lock does"},
		{"+hdel", "unsafe", "HDEL: "},
		{"+hget", "unsafe", "HGET: "},
		{"+zadd", "unsafe", "ZADD: "},
		{"+zcount", "unsafe", "ZCOUNT: "},
		{"+zcard", "unsafe", "ZCARD: "},
		{"+set", "unsafe", "SET: "},
		{"+publish", "warning", "PUBLISH fails"},
		{"+subscribe", "warning", "SUBSCRIBE fails"},
		{"+ping", "warning", "not usable: NOPERM"},
	} {
		user := allow("less", keys+strings.Replace(commands, c.without+" ", "", 1))
		r := doctor(t, grownUp+"--name nightly", user)
		assert.That(t, r.has(s.Addr(), c.severity, c.finding), "without %s: %+v", c.without, r.Findings)
		tests.Says(t, r.lines(), " -> ACL SETUSER less "+c.without+"\n")
	}
	// Its advice is enough, also where several rights are missing.
	less := keys + strings.NewReplacer("+zadd ", "", "+hset ", "").Replace(commands)
	for name, rules := range map[string]string{
		"--name nightly": less,
		"":               keys + commands,
		"--name other":   less,
	} {
		user, told := allow("less", rules), "fails at what a lock does"
		for range 2 { // where keys are refused no command is tried
			advice := doctor(t, grownUp+name, user).advice(told)
			if rule, more, _ := strings.Cut(advice, ";"); rule != "" {
				assert.That(t, (more != "") == strings.Contains(rule, " ~"), "%s", advice)
				args := []any{"ACL", "SETUSER", "less"}
				for word := range strings.FieldsSeq(strings.TrimPrefix(rule, "ACL SETUSER less ")) {
					args = append(args, word)
				}
				assert.Succeed(t, client.Do(t.Context(), args...).Err())
			}
		}
		assert.Equal(t, doctor(t, grownUp+name, user).advice(told), "", name)
	}
	// Without channels or PUBLISH there are locks nevertheless.
	for without, line := range map[string]string{
		"&":         "ACL SETUSER less &redisson_lock__channel:* &redisson_rwlock:* &redquorum_turn:*",
		"+publish ": "ACL SETUSER less +publish",
	} {
		if without == "&" && before62 {
			continue
		}
		rules := strings.ReplaceAll(keys+commands, without, "")
		if without == "&" {
			rules = keys[:strings.Index(keys, "&")] + commands
		}
		user := allow("less", rules)
		r := doctor(t, grownUp+"--name nightly", user)
		tests.Says(t, r.lines(), "warning "+s.Addr()+": PUBLISH fails", "-> "+line+"\n", "verdict: warnings")
		start(t, "run", "nightly", "--no-guard", "--nodes", user, "--", "true").exits(exitOK, `release "nightly": no quorum`)
		assert.Succeed(t, client.Del(t.Context(), node.FenceKey("nightly")).Err())
	}
	user := allow("less", keys+strings.NewReplacer("+publish ", "", "+zadd ", "").Replace(commands))
	tests.Says(t, doctor(t, grownUp+"--name nightly", user).lines(),
		"unsafe "+s.Addr()+": fails at what a lock does: ZADD: ")
	const labels = "~redquorum_label:* ~{redquorum_label:* "
	for rules, advice := range map[string]string{
		keys + commands:          "ACL SETUSER settings ~redquorum_label:* ~{redquorum_label:*",
		keys + labels + commands: "",
	} {
		given := ""
		for _, f := range doctor(t, grownUp+"--name nightly", allow("settings", rules)).Findings {
			if strings.HasPrefix(f.Finding, "cannot compare the settings") {
				given = f.Do
			}
		}
		assert.That(t, strings.HasPrefix(given, advice) && (advice != "" || given == ""), "%s: %q, want %q", rules, given, advice)
	}
	assert.Equal(t, client.DBSize(t.Context()).Val(), 0)
}

// A server whose clock was set back before its start has no known age.
func TestDoctorOfClockSetBack(t *testing.T) {
	addr := fakeServer(t, "", map[string]string{"run_id": strings.Repeat("a", 40), "uptime_in_seconds": "-7200", "redis_version": "7.0.0", "role": "master"})
	tests.Says(t, doctor(t, "", addr).lines(), "warning "+addr+": its uptime is negative: its clock was set back, to 2h0m0s before its start", "!not ready "+addr)
	addr = fakeServer(t, "", map[string]string{"redis_version": "7.0.0", "role": "master"})
	tests.Says(t, doctor(t, "", addr).lines(), "unsafe "+addr+": INFO does not tell its run_id or uptime", "!not ready "+addr)
}

// They see of a primary and its replicas what programs see.
func TestDoctorOfAPrimaryWithReplicas(t *testing.T) {
	tests.NeedSeconds(t)
	t.Parallel()
	primary := tests.Server(t, "--min-replicas-to-write", "2", "--min-replicas-max-lag", "2", "--repl-ping-replica-period", "1", "--repl-diskless-sync-delay", "0")
	host, port, _ := net.SplitHostPort(primary.Addr())
	follows := []string{"--replicaof", host, port}
	a, b := tests.Server(t, follows...), tests.Server(t, append(follows, "--replica-priority", "0")...)
	url := primary.URL() + "?replicas=2"
	var r diagnosis
	assert.Eventually(t, "replicas that have followed for long enough", func() bool {
		time.Sleep(100 * time.Millisecond)
		r = doctor(t, grownUp, url)
		return r.Nodes[0].Abstains == 0 && r.has(primary.Addr(), "info", "1 of 2 replicas confirmed") || r.has(primary.Addr(), "info", "2 of 2 replicas confirmed")
	})
	its := primary.Addr() + ": "
	tests.Says(t, r.lines(), "info "+its+"replica "+a.Addr()+": online, ", " s ago, has followed for ", "info "+its+"replica "+b.Addr()+" has priority 0",
		"info "+its+"the primary is now "+primary.Addr(),
		"warning "+its+"min-replicas-to-write is 2, and locks need 1")
	assert.Succeed(t, clientOf(t, primary.Addr()).ConfigSet(t.Context(), "appendfsync", "always").Err())
	assert.Succeed(t, clientOf(t, primary.Addr()).ConfigSet(t.Context(), "appendonly", "yes").Err())
	for _, f := range doctor(t, grownUp, url).Findings {
		assert.That(t, !strings.Contains(f.Means, "guard may be turned off"), "%+v", f)
	}
	for _, f := range r.Nodes[0].Followers {
		assert.That(t, (f.Addr == a.Addr() || f.Addr == b.Addr()) && f.State == "online" && f.Age != nil && *f.Age < 60, "%+v", f)
	}
	assert.Equal(t, len(r.Nodes[0].Followers), 2)
	tests.Says(t, doctor(t, grownUp, a.URL()+"?replicas=2").lines(), "is a replica of "+primary.Addr(), "!the primary is now")
	r = doctor(t, grownUp, primary.URL())
	tests.Says(t, r.lines(), "warning "+its+"has 2 connected replica")
	tests.Says(t, r.advice("connected replica"), "?replicas=2")
	tests.Says(t, doctor(t, grownUp, primary.URL()+"?replicas=1").lines(), "unsafe "+its+"has 2 replicas, but its URL says replicas=1")

	b.Kill()
	assert.Eventually(t, "a replica is away", func() bool {
		return doctor(t, grownUp, url).has(primary.Addr(), "warning", "1 of 2 replicas follow it; it needs 1")
	})
	client := clientOf(t, primary.Addr())
	assert.Succeed(t, client.ConfigSet(t.Context(), "min-replicas-to-write", "0").Err())
	assert.Succeed(t, a.Stop())
	_, stdout, _ := redquorum(t, "status", "--nodes", url, "job")
	tests.Says(t, strings.Join(strings.Fields(stdout), " "), "0 of 2 replicas confirm them; it needs 1")
	assert.Eventually(t, "too few replicas", func() bool {
		return doctor(t, grownUp, url).has(primary.Addr(), "unsafe", "0 of 2 replicas follow it; it needs 1")
	})
	const refusal = "NOREPLICAS Not enough good replicas to write."
	do := remedyFor(refusal, 2)
	assert.That(t, strings.Contains(do, "may be 1 at most") && remedyFor(refusal, 0) != do, "%s: %s", refusal, do)
}

func (d diagnosis) advice(finding string) string {
	for _, f := range d.Findings {
		if strings.Contains(f.Finding, finding) {
			return f.Do
		}
	}
	return ""
}
