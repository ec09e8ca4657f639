package redisnode_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/faults"
	"github.com/redquorum/redquorum/internal/assert"
	"github.com/redquorum/redquorum/internal/tests"
	"github.com/redquorum/redquorum/node"
)

// everyWrite wants the same error of all that writes.
func everyWrite(t *testing.T, n node.Node, want error) {
	t.Helper()
	for _, cmd := range []node.Command{acquire("new", "me", 9), release("held", "me", 9), breakLock("held", 9), extend(time.Minute, claim("held", "me", 0)...)} {
		expectErr(t, cmd.Kind.String(), ask(t, n, cmd), want)
	}
}

func TestOutOfMemory(t *testing.T) {
	p, n := serve(t)
	expect(t, "held", ask(t, n, acquire("held", "me", 1)), node.Granted)
	p.do("config", "set", "maxmemory-policy", "noeviction")
	p.do("config", "set", "maxmemory", "100kb")
	r := ask(t, n, acquire("new", "me", 2))
	expectErr(t, "acquire", r, node.ErrOutOfMemory)
	assert.That(t, r.Life != nil && !r.Unsent, "%+v", r)
	s := ask(t, n, inspect("new")).State
	assert.That(t, s.Type == "none" && s.Fence == 0, "written: %+v", s)
	r = ask(t, n, extend(time.Minute, claim("held", "me", 0)...))
	if expect(t, "extend", r, node.Done); !r.Kept[0] {
		t.Error("not kept")
	}
	// The token is the fence already, so this release needs no memory.
	expect(t, "release", ask(t, n, release("held", "me", 1)), node.Released)
}

// askMaster waits until the node has noticed that its server is a master again.
func askMaster(t *testing.T, n node.Node, cmd node.Command) (r node.Reply) {
	t.Helper()
	assert.Eventually(t, "a master", func() bool {
		cmd.Deadline = after(time.Second)
		r = ask(t, n, cmd)
		return !errors.Is(r.Err, node.ErrReadOnly)
	})
	return r
}

// A master that was a replica may have forgotten anything. A replica that serves no stale
// data refuses scripts with another error.
func TestDemotedMasterHasANewLife(t *testing.T) {
	for _, stale := range []string{"yes", "no"} {
		t.Run("replica-serve-stale-data "+stale, func(t *testing.T) {
			p, n := serve(t, "--replica-serve-stale-data", stale)
			before := expect(t, "held", ask(t, n, acquire("held", "me", 1)), node.Granted).Life
			began := clock.System().Now() // from then on it grants nothing
			p.do("replicaof", "127.0.0.1", "1")
			for range 2 { // at first on the old connection
				everyWrite(t, n, node.ErrReadOnly)
			}
			p.do("replicaof", "no", "one")
			after := expect(t, "again a master", askMaster(t, n, acquire("new", "me", 3)), node.Granted).Life
			assert.Must(t, after.ID == before.ID, "another server: %v, %v", before, after)
			if after.Born < began {
				t.Errorf("it has lived for %v, and was a replica %v ago", clock.System().Now().Sub(after.Born), clock.System().Now().Sub(began))
			}
		})
	}
}

// The replica's refusal may come when the server is a master again, and has said yes to a
// later command.
func TestYesAfterTheWordOfAReplica(t *testing.T) {
	t.Parallel()
	p := newServer(t)
	way := assert.Got(faults.NewProxy(p.addr, nil))(t)
	defer way.Close()
	n := dial(t, "redis://"+way.Addr())
	expect(t, "held", ask(t, n, acquire("held", "me", 1)), node.Granted)
	assert.Succeed(t, way.Set(faults.Conduct{Delay: faults.Range{Min: 700 * time.Millisecond, Max: 700 * time.Millisecond}}))
	p.do("replicaof", "127.0.0.1", "1")
	first := submit(n, acquire("a", "me", 2))
	assert.Eventually(t, "the replica has refused", func() bool { // the first command was an EVAL
		text, _ := p.do("info", "commandstats").(string)
		return strings.Contains(text, "cmdstat_evalsha:")
	})
	p.do("replicaof", "no", "one")
	second := submit(n, acquire("b", "me", 2))
	expectErr(t, "a replica", first()[0], node.ErrReadOnly)
	expectErr(t, "a master, in the life from before", second()[0], node.ErrUnreachable)
}

// A replica's locks are its master's, so its vote would be the master's second one.
func TestReplicaHasNoVote(t *testing.T) {
	tests.NeedLong(t)
	t.Parallel()
	master, replica := newServer(t, "--repl-diskless-sync-delay", "0"), newServer(t)
	n := connect(t, master)

	in := func(line node.Token, cmd node.Command) node.Command {
		cmd.Wait = &node.Wait{Ticket: line, Waiter: "waiter"}
		return cmd
	}
	short := func(name string, mode node.Mode) node.Command {
		return of(mode, extend(time.Second, claim(name, "me", 0)...))
	}
	rows := []struct {
		what  string
		first []node.Command // executed by the master
		again node.Command   // changes nothing after these
		want  node.Status
	}{
		{"acquire", []node.Command{acquire("a", "me", 1)}, acquire("a", "me", 1), node.Granted},
		{"acquire several", []node.Command{both(acquire("b", "me", 1))}, both(acquire("b", "me", 1)), node.Granted},
		{"acquire in line", []node.Command{in(1, acquire("c", "me", 1))}, in(1, acquire("c", "me", 1)), node.Granted},
		{"acquire several in line", []node.Command{in(1, both(acquire("d", "me", 1)))}, in(1, both(acquire("d", "me", 1))), node.Granted},
		{"acquire to read", []node.Command{of(node.Read, acquire("e", "me", 1))}, of(node.Read, acquire("e", "me", 1)), node.Granted},
		{"acquire to write", []node.Command{of(node.Write, acquire("f", "me", 1))}, of(node.Write, acquire("f", "me", 1)), node.Granted},
		{"extend", nil, short("a", node.Exclusive), node.Done},
		{"extend several", nil, both(short("b", node.Exclusive)), node.Done},
		{"extend a reader", nil, short("e", node.Read), node.Done},
		{"extend a writer", nil, short("f", node.Write), node.Done},
		{"downgrade", []node.Command{{Kind: node.Downgrade, Claims: claim("f", "me", 1)}}, node.Command{Kind: node.Downgrade, Claims: claim("f", "me", 1)}, node.Done},
		{"release", []node.Command{release("a", "me", 1)}, release("a", "me", 1), node.Absent},
		{"release several", []node.Command{both(release("b", "me", 1))}, both(release("b", "me", 1)), node.Absent},
		{"release in line", []node.Command{in(1, release("c", "me", 1))}, in(1, release("c", "me", 1)), node.Absent},
		{"release several in line", []node.Command{in(1, both(release("d", "me", 1)))}, in(1, both(release("d", "me", 1))), node.Absent},
		{"release a reader", []node.Command{of(node.Read, release("e", "me", 1))}, of(node.Read, release("e", "me", 1)), node.Absent},
		{"release a writer", []node.Command{of(node.Write, release("f", "me", 1))}, of(node.Write, release("f", "me", 1)), node.Absent},
		{"break", []node.Command{breakLock("a", 2)}, breakLock("a", 2), node.Absent},
	}
	var met []node.Node // each knows the replica as a master, so that its first command is sent
	for range rows {
		m := connect(t, replica)
		expect(t, "a master", ask(t, m, inspect("a")), node.Done)
		met = append(met, m)
	}
	replica.do("replicaof", "127.0.0.1", port(master))
	for i, tt := range rows {
		for _, cmd := range tt.first {
			if r := ask(t, n, cmd); r.Err != nil || r.Status == node.Refused || r.Status == node.Stale {
				t.Fatalf("%s on the master: %v, %v", tt.what, r.Status, r.Err)
			}
		}
		master.do("set", "marker", tt.what)
		assert.Eventually(t, "replication", func() bool {
			return replica.client(t).Get(t.Context(), "marker").Val() == tt.what
		})
		if r := ask(t, met[i], tt.again); !errors.Is(r.Err, node.ErrReadOnly) || r.Unsent {
			t.Errorf("%s again on the replica: %v, %v, kept %v, unsent %v", tt.what, r.Status, r.Err, r.Kept, r.Unsent)
		}
		r := expect(t, tt.what+" again on the master", ask(t, n, tt.again), tt.want)
		assert.That(t, !slices.Contains(r.Kept, false), "%s again on the master: kept %v", tt.what, r.Kept)
	}
}

// Such a link is made again ever more rarely.
func TestReadOnlyIsNotHurried(t *testing.T) {
	t.Parallel()
	p, n := serve(t)
	expect(t, "held", ask(t, n, acquire("held", "me", 1)), node.Granted)
	p.do("replicaof", "127.0.0.1", "1")
	made := func() int { return atoi(t, infoField(p, "stats", "total_connections_received")) }
	before, end := made(), time.Now().Add(time.Second)
	for time.Now().Before(end) {
		ask(t, n, acquire("new", "me", 2))
	}
	if n := made() - before; n > 50 { // two of them are this test's
		t.Errorf("%d connections in a second", n)
	}
}

func TestTooManyClients(t *testing.T) {
	p := newServer(t, "--maxclients", "3")
	var held []net.Conn
	for range 3 {
		conn := assert.Got(net.Dial("tcp", p.addr))(t)
		defer conn.Close()
		held = append(held, conn)
	}
	n := dial(t, "redis://"+p.addr)
	r := expectErr(t, "too many", ask(t, n, inspect("a")), node.ErrUnreachable)
	assert.That(t, strings.Contains(r.Err.Error(), "max number of clients reached"), "%v", r.Err)
	for _, conn := range held {
		conn.Close()
	}
	assert.Eventually(t, "there is room", func() bool { return ask(t, n, inspect("a")).Err == nil })
}

func TestLoading(t *testing.T) {
	tests.NeedLong(t)
	t.Parallel()
	p := newServer(t, "--key-load-delay", "2000", "--rdbcompression", "no") // it answers after every 2 MB
	c := p.client(t)
	pipe := c.Pipeline()
	for i := range 2000 {
		pipe.Set(t.Context(), name(i), strings.Repeat("x", 10_000), 0)
	}
	assert.Succeed(t, assert.ErrorOf(pipe.Exec(t.Context())))
	p.do("save")
	n := connect(t, p)
	expect(t, "warm", ask(t, n, inspect("a")), node.Done)
	loaded := make(chan struct{})
	go func() { defer close(loaded); p.Restart(false) }()
	defer func() { <-loaded }()
	assert.Eventually(t, "the server is loading", func() bool { return errors.Is(ask(t, n, inspect("a")).Err, node.ErrLoading) })
	assert.Eventually(t, "the data is loaded", func() bool { return ask(t, n, inspect("a")).Err == nil })
}

var (
	minimalACL = documented("an ACL user needs no more than")
	bracesACL  = documented("For names with an opening brace")
	askACL     = documented("To ask holders to finish")
)

// documented returns the rules that the package documentation lists after a text.
func documented(after string) (rules []any) {
	doc, err := os.ReadFile("doc.go")
	if err != nil {
		panic(err)
	}
	_, rest, is := strings.Cut(string(doc), after)
	_, rest, lists := strings.Cut(rest, "\n//\n")
	if !is || !lists {
		panic("doc.go lists no rules after " + after)
	}
	list, _, _ := strings.Cut(rest, "\n//\n")
	for _, rule := range strings.Fields(list) {
		if strings.ContainsAny(rule[:1], "~&+-") || strings.HasPrefix(rule, "reset") {
			rules = append(rules, rule)
		}
	}
	return rules
}

// Two users with the documented rules for their own names have all of these locks, and
// nothing of each other's.
func TestTenants(t *testing.T) {
	t.Parallel()
	p := newServer(t)
	p.needChannelRules()
	tenants := map[string][]string{
		"ta": {"ta/1", "ta/{2}", "ta/X:{tb/", "ta/X:{tb/}"},
		"tb": {"tb/1", "tb/{2}", "tb/X:{ta/", "tb/X:{ta/}"},
	}
	for tenant := range tenants {
		rule := []any{"acl", "setuser", tenant, "on", ">s3cret"}
		for _, r := range slices.Concat(minimalACL, bracesACL) {
			rule = append(rule, strings.ReplaceAll(r.(string), "nightly", tenant+"/"))
		}
		p.do(rule...)
	}
	for tenant, other := range map[string]string{"ta": "tb", "tb": "ta"} {
		n := dial(t, "redis://"+tenant+":s3cret@"+p.addr)
		for _, name := range tenants[tenant] {
			hasAll(t, n, name)
		}
		user := redis.NewClient(&redis.Options{Addr: p.addr, Username: tenant, Password: "s3cret", DisableIdentity: true})
		defer user.Close()
		for _, name := range tenants[other] {
			hasNothing(t, n, user, name)
		}
	}
}

func hasAll(t *testing.T, n node.Node, name string) {
	t.Helper()
	woken := make(chan bool, 100)
	for _, mode := range []node.Mode{node.Exclusive, node.Read} {
		stop := n.Watch(name, mode, func() { woken <- true })
		<-woken
		stop()
	}
	for _, cmd := range everything(name, 5) {
		expect(t, fmt.Sprint(name, cmd.Kind, cmd.Mode), ask(t, n, cmd.Command), cmd.want)
	}
	several := both(acquire(name, "me", 40))
	expect(t, name, ask(t, n, several), node.Granted)
	several.Kind = node.Release
	expect(t, name, ask(t, n, several), node.Released)
}

// hasNothing requires that a user is refused, whatever there is of a name.
func hasNothing(t *testing.T, n node.Node, user *redis.Client, name string) {
	t.Helper()
	for _, cmd := range everything(name, 50) {
		expectErr(t, fmt.Sprint(name, cmd.Kind, cmd.Mode), ask(t, n, cmd.Command), node.ErrAuth)
	}
	var errs []error
	for _, key := range []string{
		name, node.FenceKey(name), node.ReadersKey(name), node.NextKey(name), node.QueueKey(name),
		node.PlaceKey(name, "w"), node.HoldKey(name, "o"),
	} {
		errs = append(errs, user.Set(t.Context(), key, "1", time.Second).Err(), user.Get(t.Context(), key).Err())
	}
	for _, channel := range []string{node.Channel(name), node.ReadWriteChannel(name)} {
		errs = append(errs, user.Publish(t.Context(), channel, "0").Err())
	}
	for i, err := range errs {
		assert.That(t, err != nil && strings.HasPrefix(err.Error(), "NOPERM"), "%s: key or channel %d of it: %v", name, i, err)
	}
}

func TestFenceThatIsNoToken(t *testing.T) {
	t.Parallel()
	p, n := serve(t)
	for mode := node.Exclusive; mode <= node.Write; mode++ {
		for _, held := range []bool{false, true} {
			p.do("flushall")
			p.do("set", "redquorum_fence:{a}", "rubbish")
			if held {
				p.do("hset", "a", "you", 1)
			}
			r := ask(t, n, of(mode, acquire("a", "me", 1)))
			if expectErr(t, fmt.Sprint(mode, held), r, node.ErrWrongType); !strings.Contains(r.Err.Error(), "not a token") {
				t.Errorf("%v, held: %t: %v", mode, held, r.Err)
			}
		}
	}
}

// A server that is out of memory still releases and breaks locks, even if a fence has to
// rise, which refuses a late copy of an acquire. But what frees nothing does not fill
// such a server.
func TestOutOfMemoryFrees(t *testing.T) {
	p, n := serve(t, "--maxmemory-policy", "noeviction")
	in := func(patience time.Duration, cmd node.Command) node.Command {
		cmd.Wait = &node.Wait{Ticket: 1, Waiter: "waiter", PlaceTTL: patience}
		return cmd
	}
	const minute = time.Minute
	for _, tt := range []struct {
		what   string
		first  []node.Command
		meddle []any // done to the server then
		full   node.Command
		want   string // the answer, and for each name what there is, and its fence
	}{
		{"release", []node.Command{acquire("x", "me", 1)}, nil, release("x", "me", 2), "released: none 2"},
		{"release without a fence", []node.Command{acquire("x", "me", 1)}, []any{"del", node.FenceKey("x")}, release("x", "me", 2), "released: none 2"},
		{"several", []node.Command{both(acquire("x", "me", 1))}, nil, both(release("x", "me", 2)), "released: none 2, none 2"},
		{"the second of several", []node.Command{both(acquire("x", "me", 1))}, []any{"del", "x"}, both(release("x", "me", 2)), "absent: none 2, none 2"},
		{"next to no lock", []node.Command{acquire("x2", "me", 1)}, []any{"set", "x", "text"}, both(release("x", "me", 2)), "WRONGTYPE: text 2, none 2"},
		{"in line", []node.Command{in(minute, acquire("x", "me", 1))}, nil, in(0, release("x", "me", 2)), "released: none 2"},
		{"back to the line", []node.Command{in(minute, acquire("x", "me", 1))}, nil, in(minute, release("x", "me", 2)), "released: none 2 waiter"},
		{"several in line", []node.Command{in(minute, both(acquire("x", "me", 1)))}, []any{"del", "x"}, in(0, both(release("x", "me", 2))), "absent: none 2, none 2"},
		{"the offer", nil, []any{"hset", "x", node.Offer("me"), "1"}, in(0, release("x", "me", 2)), "released: none 2"},
		{"a place", []node.Command{acquire("x", "you", 1), in(minute, acquire("x", "me", 2))}, nil, in(0, release("x", "me", 2)), "absent: you 2"},
		{"a reader", []node.Command{of(node.Read, acquire("x", "me", 1))}, nil, of(node.Read, release("x", "me", 2)), "released: none 2"},
		{"a writer", []node.Command{of(node.Write, acquire("x", "me", 1))}, nil, of(node.Write, release("x", "me", 2)), "released: none 2"},
		{"break", []node.Command{acquire("x", "you", 1)}, nil, breakLock("x", 2), "released: none 2"},
		{"break readers", []node.Command{of(node.Read, acquire("x", "you", 1))}, nil, breakLock("x", 2), "released: none 2"},
		{"break nothing", nil, nil, breakLock("x", 2), "absent: none 2"},
		{"break no lock", nil, []any{"set", "x", "text"}, breakLock("x", 2), "WRONGTYPE: text 0"},
		{"release another's", []node.Command{acquire("x", "you", 1)}, nil, release("x", "me", 2), "OOM: you 1"},
		{"release nothing", nil, nil, release("x", "me", 2), "OOM: none 0"},
		{"release no lock", nil, []any{"set", "x", "text"}, release("x", "me", 2), "OOM: text 0"},
	} {
		p.do("flushall")
		for _, cmd := range tt.first {
			r := ask(t, n, cmd)
			assert.Must(t, r.Err == nil, "%s: first: %v", tt.what, r.Err)
		}
		if tt.meddle != nil {
			p.do(tt.meddle...)
		}
		p.do("config", "set", "maxmemory", "1")
		r := ask(t, n, tt.full)
		p.do("config", "set", "maxmemory", "0")
		got := r.Status.String()
		switch {
		case errors.Is(r.Err, node.ErrWrongType):
			got = "WRONGTYPE"
		case errors.Is(r.Err, node.ErrOutOfMemory):
			got = "OOM"
		}
		for i, c := range tt.full.Claims {
			s := ask(t, n, inspect(c.Name)).State
			is := s.Type + s.Value
			for _, f := range s.Fields {
				is += f.Name
			}
			got += fmt.Sprint([]string{": ", ", "}[i], strings.TrimPrefix(strings.TrimPrefix(is, "hash"), "string"), " ", s.Fence)
			for _, place := range s.Queue {
				got += " " + place.Waiter
			}
		}
		assert.That(t, got == tt.want, "%s: %s, want %s", tt.what, got, tt.want)
	}
}

// A server with a long script answers only BUSY, to a connected node and to a new one.
func TestBusy(t *testing.T) {
	p, n := serve(t, "--lua-time-limit", "50")
	expect(t, "warm", ask(t, n, inspect("a")), node.Done)
	c := p.client(t)
	go c.Eval(context.Background(), "while true do end", nil)
	var r node.Reply
	assert.Eventually(t, "the server is busy", func() bool {
		r = ask(t, n, within(200*time.Millisecond, inspect("a")))
		return !errors.Is(r.Err, node.ErrTimeout) && r.Err != nil
	})
	expectErr(t, "busy", r, node.ErrBusy)
	late := connect(t, p)
	expectErr(t, "busy", ask(t, late, inspect("a")), node.ErrBusy)
	r = expectErr(t, "still busy", ask(t, late, inspect("a")), node.ErrBusy)
	assert.That(t, r.Unsent, "sent to a server that does not say whose life it has")
	p.do("script", "kill")
	for _, n := range []node.Node{n, late} {
		assert.Eventually(t, "the script is gone", func() bool { return ask(t, n, inspect("a")).Err == nil })
	}
}

func TestMinimalACL(t *testing.T) {
	t.Parallel()
	p := newServer(t)
	url := p.locker(minimalACL...)
	n := dial(t, url)
	p.do("set", "nightly-text", "another library's")
	woken := make(chan bool, 1000)
	defer n.Watch("nightly", node.Exclusive, func() { woken <- true })()
	<-woken
	hasAll(t, n, "nightly")
	<-woken
	expectErr(t, "another name", ask(t, n, acquire("daily", "me", 1)), node.ErrAuth)
	expectErr(t, "extend another name", ask(t, n, extend(time.Minute, claim("daily", "me", 0)...)), node.ErrAuth)

	// Each command is needed; these only for watching, idling, and many together.
	idle := []string{"ping", "subscribe", "unsubscribe", "mget"}
	for _, rule := range minimalACL {
		if command, ok := strings.CutPrefix(rule.(string), "+"); ok && !slices.Contains(idle, command) {
			p.allow("-" + command)
			assert.That(t, fails(t, url), "works without %s", command)
			p.allow("+" + command)
		}
	}
	assert.That(t, !fails(t, url), "fails with all")
	assert.That(t, fails(t, url+"/1"), "another database works without SELECT")
	p.allow("+select")
	assert.That(t, !fails(t, url+"/1"), "another database fails with SELECT")

	// These are to ask holders to finish, and to be asked.
	p.allow(askACL...)
	name := node.AskName("me")
	defer n.Watch(name, node.Exclusive, func() { woken <- true })()
	<-woken
	expect(t, "acquire", ask(t, n, acquire(name, "you", 1)), node.Granted)
	expect(t, "release", ask(t, n, release(name, "you", 1)), node.Released)
	<-woken
	expect(t, "inspect", ask(t, n, inspect(name)), node.Done)
}

func fails(t *testing.T, url string) (refused bool) {
	t.Helper()
	n := dial(t, url)
	defer n.Close()
	now := node.Token(time.Now().UnixMicro())
	commands := []node.Command{
		acquire("nightly", "me", now), acquire("nightly", "you", now+1), extend(time.Minute, claim("nightly", "me", 0)...),
		inspect("nightly"), release("nightly", "me", now+1), acquire("nightly", "me", now+2), breakLock("nightly", now+3),
		release("nightly", "me", now+4), inspect("nightly-text"),
	}
	for _, cmd := range everything("nightly", now+5) {
		commands = append(commands, cmd.Command)
	}
	for i, cmd := range commands {
		r := ask(t, n, cmd)
		assert.Must(t, r.Err == nil || errors.Is(r.Err, node.ErrAuth), "step %d, %v: %v", i, cmd.Kind, r.Err)
		refused = refused || r.Err != nil
	}
	return refused
}

// All names are released, with an error.
func TestReleaseWithoutTheRightToPublish(t *testing.T) {
	p := newServer(t)
	p.needChannelRules()
	n := dial(t, p.locker(minimalACL...))
	for _, wait := range []*node.Wait{nil, {Ticket: 5, Waiter: "me"}} {
		get, end := both(acquire("nightly/", "me", 1)), both(release("nightly/", "me", 1))
		get.Wait, end.Wait = wait, wait
		expect(t, "acquire", ask(t, n, get), node.Granted)
		p.allow("resetchannels")
		expectErr(t, "release", ask(t, n, end), node.ErrAuth)
		p.allow("&redisson_lock__channel:{nightly*", "&redquorum_turn:*")
		left := p.do("exists", "nightly/", "nightly/2")
		assert.That(t, left == int64(0), "%+v: %v of two names are left", wait, left)
		p.do("flushall")
	}
}

// A server that refuses INFO is sent no command: it might execute it.
func TestWithoutInfoNoLockStays(t *testing.T) {
	t.Parallel()
	p := newServer(t)
	url := p.locker("~*", "&*", "+@all", "-info")
	n := dial(t, url)
	for range 2 {
		if r := expectErr(t, "no INFO", ask(t, n, acquire("a", "me", 1)), node.ErrAuth); !r.Unsent || !strings.Contains(r.Err.Error(), "restart guard needs INFO") {
			t.Errorf("it was sent, or this is unhelpful: %+v", r)
		}
	}
	left := p.do("exists", "a")
	assert.That(t, left == int64(0), "a lock is left that nobody holds")
	p.allow("+info|server")
	r := expectErr(t, "not all that is needed of INFO", ask(t, dial(t, url), inspect("a")), node.ErrAuth)
	assert.That(t, strings.Contains(r.Err.Error(), "restart guard needs INFO"), "unhelpful: %v", r.Err)
	p.allow("+info")
	assert.Eventually(t, "the user may use INFO", func() bool { return ask(t, n, acquire("a", "me", 3)).Status == node.Granted })
}

// A lock that gets no TTL must not stay: nobody else would ever get it.
func TestLockWithoutExpiryDoesNotStay(t *testing.T) {
	p, admin := serve(t)
	locker := dial(t, p.locker("~*", "&*", "+@all", "-pexpire"))
	for mode := node.Exclusive; mode <= node.Write; mode++ {
		expectErr(t, "no PEXPIRE", ask(t, locker, of(mode, acquire("a", "me", 1))), node.ErrAuth)
		left := p.do("exists", "a", node.HoldKey("a", "me"))
		assert.That(t, left == int64(0), "%v: a lock or a hold is left", mode)
		p.do("flushall")
	}
	// With another reader the lock stays, with its TTL, without this one.
	first, second := of(node.Read, acquire("a", "other", 1)), of(node.Read, acquire("a", "me", 2))
	second.TTL = 2 * first.TTL
	expect(t, "a reader with the right", ask(t, admin, first), node.Granted)
	expectErr(t, "no PEXPIRE", ask(t, locker, second), node.ErrAuth)
	if r := ask(t, admin, inspect("a")); r.State == nil || len(r.State.Fields) != 2 || r.State.TTL > first.TTL {
		t.Errorf("the node has %+v, %v", r.State, r.Err)
	}
	hold := p.do("exists", node.HoldKey("a", "me"))
	assert.That(t, hold == int64(0), "the hold of one that does not read is left")
}

// Nobody would ever remove such a queue.
func TestQueueWithoutExpiryDoesNotStay(t *testing.T) {
	p, admin := serve(t)
	locker := dial(t, p.locker("~*", "&*", "+@all", "-pexpire"))
	for _, cmd := range []node.Command{acquire("a", "me", 2), release("a", "you", 1)} {
		cmd.Wait = &node.Wait{Ticket: 1, Waiter: "waiter", PlaceTTL: time.Minute}
		expect(t, "held", ask(t, admin, acquire("a", "you", 1)), node.Granted)
		expectErr(t, cmd.Kind.String(), ask(t, locker, cmd), node.ErrAuth)
		left := p.do("keys", "redquorum_wait*").([]any)
		assert.That(t, len(left) == 0, "%v leaves %v", cmd.Kind, left)
		p.do("flushall")
	}
}
