package courier

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/assert"
	"github.com/redquorum/redquorum/internal/backlog"
	"github.com/redquorum/redquorum/internal/replicas"
	"github.com/redquorum/redquorum/node"
)

type follower struct {
	addr   string
	stays  bool // it acknowledges nothing more
	slow   bool // it acknowledges only what is waited for by all
	copies bool // it is still being given a copy
	lag    int
	offset int
	since  time.Time
}

type primary struct {
	*wireServer
	n         node.Node
	role      string
	replid    string
	offset    int
	followers []*follower
	waited    func() // after each WAIT
	waits     []string
}

// primaryOf runs f with a node of a primary with replicas that have followed for a
// minute.
func primaryOf(t *testing.T, replicas int, f func(t *testing.T, p *primary)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		p := &primary{wireServer: new(wireServer), role: "master", replid: "a1", waited: func() {}}
		for i := range replicas {
			p.followers = append(p.followers, &follower{addr: fmt.Sprintf("ip=10.0.0.%d,port=6379", i),
				since: time.Now().Add(time.Duration(i) - time.Minute)})
		}
		p.answer = p.says
		p.n = p.node(t, target(p.dial, ""), replicas)
		f(t, p)
	})
}

func (p *primary) change(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f()
}

const uptime = 12 * time.Hour

func bulk(text string) string { return fmt.Sprintf("$%d\r\n%s\r\n", len(text), text) }

// says is the primary's answer. Each script is a write.
func (p *primary) says(command string, words []string) string {
	switch command {
	case "evalsha", "eval":
		p.offset += 10
		if slices.Contains(words, "extend") || slices.Contains(words, "downgrade") { // the owner: see asks
			return bulk("1")
		}
	case "publish":
		p.offset++
		return ":0\r\n"
	case "wait":
		p.waits = append(p.waits, words[1])
		return p.wait(words)
	case "multi":
		return "+OK\r\n"
	case "exec":
		return "*2\r\n" + bulk(p.info()) + bulk(p.list())
	case "client":
		return bulk(p.list())
	case "info":
		if words[1] == "replication" {
			return bulk(p.info())
		}
		return bulk(infoText("abc", int(uptime.Seconds())))
	}
	return ""
}

// wait has all acknowledge, and answers late if too few can.
func (p *primary) wait(words []string) string {
	want, _ := strconv.Atoi(words[1])
	ms, _ := strconv.Atoi(words[2])
	have := 0
	for _, f := range p.followers {
		if !f.stays && !f.copies && (!f.slow || want == len(p.followers)) {
			f.offset, have = p.offset, have+1
		}
	}
	if have < want {
		p.late.Store(int64(ms) * int64(time.Millisecond))
	}
	p.waited()
	return fmt.Sprintf(":%d\r\n", have)
}

func (p *primary) info() string {
	text := fmt.Sprintf("role:%s\r\nconnected_slaves:%d\r\n", p.role, len(p.followers))
	for i, f := range p.followers {
		state := "online"
		if f.copies {
			state = "wait_bgsave"
		}
		text += fmt.Sprintf("slave%d:%s,state=%s,offset=%d,lag=%d\r\n", i, f.addr, state, f.offset, f.lag)
	}
	return text + fmt.Sprintf("master_replid:%s\r\nmaster_repl_offset:%d\r\n", p.replid, p.offset)
}

func (p *primary) list() (text string) {
	for _, f := range p.followers {
		last := "replconf"
		if f.copies {
			last = "psync"
		}
		text += fmt.Sprintf("id=%d addr=10.0.0.9:1 age=%d flags=S cmd=%s user=default\n", f.since.UnixNano(),
			int(time.Since(f.since).Seconds()), last)
	}
	return text
}

func (p *primary) stay(stay bool, followers ...*follower) {
	p.change(func() {
		for _, f := range followers {
			f.stays = stay
		}
	})
}

func (p *primary) granted(t *testing.T) {
	t.Helper()
	r := p.asks(node.Acquire)
	assert.That(t, r.Status == node.Granted, "%v %v", r.Status, r.Err)
}

func (p *primary) asks(kind node.Kind) node.Reply {
	cmd := plain(kind, kind.String(), 1)
	cmd.TTL = time.Second
	return asks(p.n, time.Second, cmd)
}

func (p *primary) age(r node.Reply) time.Duration { return p.n.(*server).clock.Now().Sub(r.Life.Born) }

var yeses = map[node.Kind]node.Status{node.Acquire: node.Granted, node.Extend: node.Done, node.Downgrade: node.Done}

// all asks for each kind of yes, which counts, or fails with such an error.
func (p *primary) all(t *testing.T, what string, want error) (replies map[node.Kind]node.Reply) {
	t.Helper()
	replies = map[node.Kind]node.Reply{}
	for kind, yes := range yeses {
		r := p.asks(kind)
		replies[kind] = r
		if want == nil && r.Status != yes || want != nil && !errors.Is(r.Err, want) {
			t.Errorf("%s, %v: %v %v, want %v", what, kind, r.Status, r.Err, want)
		}
	}
	return replies
}

// A yes counts if any majority of primary and replicas has it.
func TestAYesNeedsAMajority(t *testing.T) {
	for replicas, needed := range map[int]int{1: 1, 2: 1, 3: 2, 4: 2, 5: 3} {
		for have := range replicas + 1 {
			primaryOf(t, replicas, func(t *testing.T, p *primary) {
				p.stay(true, p.followers[have:]...)
				want := node.ErrUnreplicated
				if have >= needed {
					want = nil
				}
				r := p.all(t, fmt.Sprintf("%d of %d", have, replicas), want)[node.Acquire]
				text := fmt.Sprintf("only %d of %d replicas have it", have, replicas)
				assert.That(t, want == nil || strings.Contains(r.Err.Error(), text), "%v, want %s", r.Err, text)
			})
		}
	}
}

// A yes does not count if the server was demoted and promoted since the handshake: the
// replicas may have followed another meanwhile.
func TestAPromotionMeanwhile(t *testing.T) {
	for _, replicas := range []int{1, 2} {
		primaryOf(t, replicas, func(t *testing.T, p *primary) {
			p.all(t, "before", nil)
			p.change(func() { p.waited = func() { p.replid = "b2"; p.waited = func() {} } })
			if r := p.asks(node.Acquire); !errors.Is(r.Err, node.ErrUnreachable) {
				t.Errorf("%d replicas, promoted during the wait: %v %v", replicas, r.Status, r.Err)
			}
			time.Sleep(time.Second)
			p.all(t, "after a new handshake", nil)
			p.change(func() { p.role = "slave" })
			r := p.asks(node.Acquire)
			assert.That(t, r.Err != nil, "%d replicas, demoted: %v", replicas, r.Status)
		})
	}
}

// WAIT counts connections, not servers.
func TestWhatWaitReturnsIsNoEvidence(t *testing.T) {
	primaryOf(t, 2, func(t *testing.T, p *primary) {
		p.stay(true, p.followers...)
		p.answers(func(command string, words []string) string {
			if command == "wait" {
				return ":2\r\n"
			}
			return p.says(command, words)
		})
		r := p.asks(node.Acquire)
		assert.That(t, errors.Is(r.Err, node.ErrUnreplicated), "%v %v", r.Status, r.Err)
	})
}

// Two connections of one replica are one.
func TestAnAddressCountsOnce(t *testing.T) {
	primaryOf(t, 3, func(t *testing.T, p *primary) {
		p.change(func() {
			p.followers[1].addr = p.followers[0].addr
			p.followers[2].stays = true
		})
		p.all(t, "twice the same", node.ErrUnreplicated)
		p.stay(false, p.followers[2])
		p.all(t, "and another", nil)
	})
}

// Replicas beyond those that the program knows of may be another majority.
func TestMoreReplicasThanSaid(t *testing.T) {
	primaryOf(t, 2, func(t *testing.T, p *primary) {
		p.all(t, "two", nil)
		p.change(func() { p.followers = append(p.followers, &follower{addr: "ip=10.0.0.7,port=6379"}) })
		for range 2 { // on the connections that are there, and on new ones
			r := p.asks(node.Acquire)
			if !errors.Is(r.Err, node.ErrUnreplicated) || node.Permanent(r.Err) ||
				!strings.Contains(r.Err.Error(), "it has 3 replicas, and Replicas is 2") {
				t.Errorf("%v %v", r.Status, r.Err)
			}
			time.Sleep(5 * time.Second)
		}
		p.change(func() { p.followers = p.followers[:2] })
		time.Sleep(maxQuiet)
		p.all(t, "two again", nil)
	})
}

// A backup follows like a replica, but has no port: it cannot be promoted.
func TestABackupIsNoReplica(t *testing.T) {
	primaryOf(t, 2, func(t *testing.T, p *primary) {
		p.all(t, "two", nil)
		p.change(func() {
			for range 2 {
				p.followers = append(p.followers, &follower{addr: "ip=10.0.0.7,port=0", copies: true,
					since: time.Now()})
			}
		})
		for range 3 {
			for kind, r := range p.all(t, "and two backups", nil) {
				assert.That(t, p.age(r) >= 50*time.Second, "%v: its life has lasted %v", kind, p.age(r))
			}
			time.Sleep(5 * time.Second)
		}
		p.stay(true, p.followers[:2]...)
		p.all(t, "only backups", node.ErrUnreplicated)
	})
}

// A program that does not count replicas is warned once. A backup is none.
func TestReplicasThatAreNotCountedAreLogged(t *testing.T) {
	for port, warnings := range map[int]int{6379: 1, 0: 0} {
		synctest.Test(t, func(t *testing.T) {
			var log bytes.Buffer
			s := gatherer(clock.Runtime())
			s.lines = backlog.Lines(s.clock, slog.New(slog.NewTextHandler(&log, nil)))
			for range 3 {
				s.lifespan.noteReplicas(fmt.Sprintf("role:master\r\nslave0:ip=10.0.0.1,port=%d,state=online\r\n", port))
			}
			s.lines.Finish(s.clock.Now().Add(logFor))
			assert.Equal(t, strings.Count(log.String(), "two may hold one lock"), warnings, "warnings")
		})
	}
}

// A new replica may have confirmed another lock to another server. So a yes is as young
// as the youngest that it needs, unless it needs all.
func TestAYesIsAsYoungAsWhoConfirmsIt(t *testing.T) {
	for replicas, want := range map[int]time.Duration{1: time.Minute, 2: 5 * time.Second} {
		primaryOf(t, replicas, func(t *testing.T, p *primary) {
			young := p.followers[0]
			p.change(func() {
				young.since = time.Now().Add(-5 * time.Second)
				for _, f := range p.followers[1:] {
					f.stays = true
				}
			})
			for kind, r := range p.all(t, "the young one has it", nil) {
				age, want := p.age(r), want
				if replicas == 1 {
					want = uptime - time.Second
				}
				// package quorum does not look at that
				if kind != node.Downgrade && (age > want+time.Second || age < want-2*time.Second) {
					t.Errorf("of %d, %v: its life has lasted %v, want %v", replicas, kind, age, want)
				}
			}
			if replicas == 1 {
				return
			}
			p.stay(false, p.followers[1])
			p.asks(node.Acquire)
			age := p.age(p.asks(node.Acquire))
			assert.That(t, age >= 58*time.Second && age <= 61*time.Second, "both have it: its life has lasted %v", age)
			p.change(func() { // it comes again
				young.since = time.Now()
				p.followers[0], p.followers = young, p.followers[:1]
			})
			age = p.age(p.asks(node.Acquire))
			assert.That(t, age <= time.Second, "only one that has just come: its life has lasted %v", age)
		})
	}
}

// A replica that comes again does not make a yes young that an old one has: neither
// during its copy, nor if it is quicker, nor if it is silent and known to be the new one.
func TestAReplicaComesAgain(t *testing.T) {
	for _, again := range []follower{{copies: true}, {}, {stays: true}} {
		primaryOf(t, 2, func(t *testing.T, p *primary) {
			what := fmt.Sprintf("it is given a copy: %v, silent: %v", again.copies, again.stays)
			followers := p.followers
			again.addr, again.since = followers[0].addr, time.Now()
			p.change(func() { p.followers = followers[1:] })
			p.granted(t)
			p.change(func() {
				p.followers = append(p.followers, &again)
				p.followers[0].slow = !again.copies && !again.stays
			})
			for range 3 {
				began := time.Now()
				if r := p.asks(node.Acquire); r.Status != node.Granted || p.age(r) < 50*time.Second ||
					time.Since(began) > 0 {
					t.Errorf("%s: %v, its life has lasted %v, %v after %v", what, r.Status, p.age(r), r.Err,
						time.Since(began))
				}
			}
		})
	}
}

// The owner of a connection is known only when it is the only one left.
func TestConnectionsAreToldApart(t *testing.T) {
	r := new(replication)
	for _, step := range []struct {
		addrs, ids string
		whose      map[string]string
	}{
		{"a b", "1 2", map[string]string{}},
		{"b", "2", map[string]string{"2": "b"}},
		{"a b", "2 3", map[string]string{"2": "b", "3": "a"}},
		{"a b b", "2 3 4", map[string]string{"2": "b", "3": "a", "4": "b"}},
		{"a b", "5 6", map[string]string{}},
	} {
		found := round{Said: replicas.Said{Addrs: strings.Fields(step.addrs)}, connections: map[string]connection{}}
		for _, id := range strings.Fields(step.ids) {
			found.connections[id] = connection{}
		}
		r.tellApart(found)
		assert.That(t, maps.Equal(r.whose, step.whose), "%s on %s: %v, want %v", step.ids, step.addrs, r.whose,
			step.whose)
	}
}

// While an old replica could make a grant count, rounds wait for it, once if it is
// silent. Otherwise they wait for as many as are needed.
func TestWhomARoundWaitsFor(t *testing.T) {
	primaryOf(t, 2, func(t *testing.T, p *primary) {
		waits := func() (list []string) {
			p.change(func() { list, p.waits = p.waits, nil })
			return list
		}
		p.granted(t)
		waits()
		p.granted(t)
		got := waits()
		assert.That(t, slices.Equal(got, []string{"1"}), "both follow for long: waited for %v", got)
		p.change(func() {
			p.followers[0].since = time.Now()
			p.followers[1].stays = true
		})
		for range 100 {
			p.granted(t)
			time.Sleep(10 * time.Millisecond)
		}
		both := 0
		for _, n := range waits() {
			if n == "2" {
				both++
			}
		}
		assert.That(t, both >= 1 && both <= 2, "waited %d times for one that is silent", both)
	})
}

func TestTooFewReplicasAreNotWaitedFor(t *testing.T) {
	for what, f := range map[string]func(p *primary){
		"none follows":                func(p *primary) { p.followers = nil },
		"they are silent for seconds": func(p *primary) { p.followers[0].lag, p.followers[1].lag = 5, 5 },
	} {
		primaryOf(t, 2, func(t *testing.T, p *primary) {
			p.granted(t)
			followers := p.followers
			p.change(func() {
				p.followers[0].stays, p.followers[1].stays = true, true
				f(p)
			})
			p.asks(node.Acquire) // which finds out
			began := time.Now()
			for range 10 {
				p.all(t, what, node.ErrUnreplicated)
			}
			took := time.Since(began)
			assert.That(t, took <= 100*time.Millisecond, "%s: 30 answers took %v", what, took)
			p.change(func() {
				p.followers = followers
				for _, f := range followers {
					f.stays, f.lag = false, 0
				}
			})
			p.granted(t)
			p.stay(true, followers...)
			began = time.Now()
			if r := p.asks(node.Acquire); !errors.Is(r.Err, node.ErrUnreplicated) || time.Since(began) < time.Second ||
				time.Since(began) > 1100*time.Millisecond {
				t.Errorf("silent only now: %v after %v", r.Err, time.Since(began))
			}
		})
	}
}

// A deposed primary may long answer what needs no replica, such as that a lock is held.
// It is asked for its replicas every second while it answers, and left without them.
func TestADeposedPrimaryIsLeft(t *testing.T) {
	primaryOf(t, 2, func(t *testing.T, p *primary) {
		p.granted(t)
		rounds := p.count("wait")
		time.Sleep(4*restAfter + restAfter/3)
		idle := p.count("wait") - rounds
		assert.That(t, idle >= 3 && idle <= 5, "%d rounds in four times %v without a command", idle, restAfter)
		p.change(func() { p.followers = nil })
		connections, began := p.count(""), time.Now()
		for p.count("") == connections && time.Since(began) < restAfter {
			p.asks(node.Release)
			time.Sleep(100 * time.Millisecond)
		}
		assert.That(t, time.Since(began) <= 1200*time.Millisecond, "it is left after %v", time.Since(began))
	})
}

// A round has its own connection. A release needs no replica, and does not wait.
func TestSilentReplicasHoldUpNothingElse(t *testing.T) {
	primaryOf(t, 2, func(t *testing.T, p *primary) {
		p.granted(t)
		p.stay(true, p.followers...)
		done := make(chan node.Reply)
		go func() { done <- p.asks(node.Acquire) }()
		time.Sleep(250 * time.Millisecond) // beyond the round that goes over the link
		for range 30 {
			began := time.Now()
			if r := p.asks(node.Release); r.Status != node.Released || time.Since(began) > 0 {
				t.Errorf("%v %v after %v", r.Status, r.Err, time.Since(began))
			}
			time.Sleep(7 * time.Millisecond)
		}
		r := <-done
		assert.That(t, errors.Is(r.Err, node.ErrUnreplicated), "%v %v", r.Status, r.Err)
	})
}

func TestAHandOverNeedsReplicas(t *testing.T) {
	primaryOf(t, 2, func(t *testing.T, p *primary) {
		p.granted(t)
		turns := make(chan node.Turn, 10)
		stop := p.n.Listen("me", func(turn node.Turn) { turns <- turn })
		defer stop()
		<-turns // it has begun
		s := p.n.(*server)
		message := node.WaiterChannel("me")
		for _, stays := range []bool{false, true} {
			p.change(func() { p.followers[0].stays, p.followers[1].stays = stays, stays; p.offset += 10 })
			s.watch.wake(message, "grant me:1 7 abc proof name")
			turn := <-turns
			assert.That(t, turn.Owner == "me:1" && turn.Token == 7 && (turn.Life == nil) == stays,
				"replicas are silent: %v; %+v", stays, turn)
		}
	})
}

// A round proves nothing about what comes after its offset, on either connection.
func TestARoundCoversOnlyWhatWasBefore(t *testing.T) {
	for _, lone := range []bool{false, true} {
		primaryOf(t, 2, func(t *testing.T, p *primary) {
			turns := make(chan node.Turn, 10)
			defer p.n.Listen("me", func(turn node.Turn) { turns <- turn })()
			<-turns // it has begun
			if lone {
				p.granted(t) // a round that was quick
			}
			second := make(chan node.Reply, 1)
			p.change(func() {
				p.waited = func() {
					p.waited = func() {}
					p.followers[0].stays, p.followers[1].stays = true, true
					p.late.Store(int64(5 * time.Millisecond))
					p.offset += 10 // the server hands a lock over
					p.n.(*server).watch.wake(node.WaiterChannel("me"), "grant me:1 7 abc proof name")
					go func() { second <- p.asks(node.Acquire) }()
				}
			})
			p.granted(t)
			r := <-second
			assert.That(t, r.Err != nil, "lone %v, a yes: %v", lone, r.Status)
			turn := <-turns
			assert.That(t, turn.Life == nil, "lone %v, a hand-over: %+v", lone, turn)
			assert.That(t, !lone || !p.n.(*server).queue.holder.(*replication).quick,
				"the round went over the replication's own connection")
		})
	}
}

// An address may lead to two servers. One cannot answer for the other.
func TestTheSecondConnectionLeadsToTheSameServer(t *testing.T) {
	primaryOf(t, 1, func(t *testing.T, p *primary) {
		p.granted(t)
		p.answers(func(command string, words []string) string {
			switch {
			case command == "evalsha":
				return nonsense // which ends the link
			case command == "info" && words[1] == "server" && p.conns%2 == 0:
				return bulk(infoText("other", 1000))
			}
			return p.says(command, words)
		})
		p.asks(node.Acquire)
		time.Sleep(time.Minute)
		if r := p.asks(node.Acquire); !errors.Is(r.Err, node.ErrUnreachable) ||
			!strings.Contains(r.Err.Error(), "another server") {
			t.Errorf("%v %v", r.Status, r.Err)
		}
	})
}

// The next reply after a round's belongs to another command, whatever the round's says.
func TestEveryReplyToARoundIsCounted(t *testing.T) {
	no := refusal{error: errors.New("NOPERM")}
	var said round
	for i, got := range []result{{val: "text"}, {err: no}, {val: nil}, {val: int64(3)}, {val: []any{"a", no}},
		{val: []any{}}} {
		bad := i == 1 || i == 4
		err := said.add(got)
		assert.That(t, said.replies == i+1 && (err != nil) == bad, "reply %d: %v, %d are counted", i+1, err,
			said.replies)
	}
}

// The life of a yes changes only if it matters: package quorum looks at each new one.
func TestTheLifeOfAYesStays(t *testing.T) {
	primaryOf(t, 2, func(t *testing.T, p *primary) {
		p.change(func() { p.followers[0].since = time.Now().Add(-2 * settled) })
		p.change(func() { p.followers[1].since = time.Now().Add(-3 * settled) })
		lives := map[*node.Life]bool{}
		for i := range 20 {
			p.stay(i%2 == 0, p.followers[1])
			lives[p.asks(node.Acquire).Life] = true
			time.Sleep(time.Second / 3)
		}
		assert.That(t, len(lives) <= 2, "%d lives", len(lives))
	})
}
