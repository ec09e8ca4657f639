package faults_test

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redquorum/redquorum/faults"
	"github.com/redquorum/redquorum/internal/assert"
)

func listening(t *testing.T) net.Listener {
	t.Helper()
	l := assert.Got(net.Listen("tcp", "127.0.0.1:0"))(t)
	t.Cleanup(func() { l.Close() })
	return l
}

func echo(t *testing.T) (addr string) {
	t.Helper()
	l := listening(t)
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(conn, conn); conn.Close() }()
		}
	}()
	return l.Addr().String()
}

func proxied(t *testing.T, tap func() io.Writer) *faults.Proxy {
	t.Helper()
	return proxyTo(t, echo(t), tap)
}

func proxyTo(t *testing.T, addr string, tap func() io.Writer) *faults.Proxy {
	t.Helper()
	p := assert.Got(faults.NewProxy(addr, tap))(t)
	t.Cleanup(func() { p.Close() })
	return p
}

func set(t *testing.T, p *faults.Proxy, c faults.Conduct) {
	t.Helper()
	assert.Succeed(t, p.Set(c))
}

func dialed(t *testing.T, p *faults.Proxy) (net.Conn, *bufio.Reader) {
	t.Helper()
	conn := assert.Got(net.Dial("tcp", p.Addr()))(t)
	t.Cleanup(func() { conn.Close() })
	return conn, bufio.NewReader(conn)
}

func ask(t *testing.T, conn net.Conn, r *bufio.Reader, line string) time.Duration {
	t.Helper()
	start := time.Now()
	assert.Succeed(t, assert.ErrorOf(io.WriteString(conn, line+"\n")))
	got, err := r.ReadString('\n')
	assert.Must(t, err == nil && got == line+"\n", "sent %q, got %q, %v", line, got, err)
	return time.Since(start)
}

func TestProxyDelays(t *testing.T) {
	const delay = 5 * time.Millisecond
	p := proxied(t, nil)
	set(t, p, faults.Conduct{Delay: faults.Range{Min: delay, Max: delay}})
	conn, r := dialed(t, p)
	d := ask(t, conn, r, "first")
	assert.That(t, d >= 4*delay, "the first answer took %v: two round trips are %v", d, 4*delay)
	best := time.Hour
	for range 400 { // a busy machine may make most of them late
		if best = min(best, ask(t, conn, r, "next")); best <= 3*delay {
			break
		}
	}
	assert.That(t, best >= 2*delay && best <= 3*delay, "the fastest answer took %v: a round trip is %v", best, 2*delay)
}

// Data stays in order with random delays, and a tap sees it all.
func TestProxyKeepsOrder(t *testing.T) {
	var mu sync.Mutex
	var seen bytes.Buffer
	p := proxied(t, func() io.Writer {
		return writer(func(b []byte) (int, error) {
			mu.Lock()
			defer mu.Unlock()
			return seen.Write(b)
		})
	})
	set(t, p, faults.Conduct{Delay: faults.Range{Max: 2 * time.Millisecond}})
	conn, r := dialed(t, p)
	var want strings.Builder
	for i := range 200 {
		line := strings.Repeat(string(rune('a'+i%26)), i) + "\n"
		want.WriteString(line)
		assert.Succeed(t, assert.ErrorOf(io.WriteString(conn, line)))
	}
	got := make([]byte, want.Len())
	_, err := io.ReadFull(r, got)
	assert.That(t, err == nil && string(got) == want.String(), "it came back in another order, or not whole: %v", err)
	mu.Lock()
	defer mu.Unlock()
	assert.That(t, seen.String() == want.String(), "the tap saw something else")
}

type writer func([]byte) (int, error)

func (w writer) Write(b []byte) (int, error) { return w(b) }

func TestProxyHangs(t *testing.T) {
	p := proxied(t, nil)
	conn, r := dialed(t, p)
	ask(t, conn, r, "before")
	set(t, p, faults.Conduct{Hang: true})
	dialed(t, p) // it takes connections
	assert.Succeed(t, assert.ErrorOf(io.WriteString(conn, "meanwhile\n")))
	assert.Succeed(t, conn.SetReadDeadline(time.Now().Add(30*time.Millisecond)))
	assert.Is(t, assert.ErrorOf(r.ReadByte()), os.ErrDeadlineExceeded, "while it hung")
	set(t, p, faults.Conduct{})
	assert.Succeed(t, conn.SetReadDeadline(time.Time{}))
	got, err := r.ReadString('\n')
	assert.That(t, got == "meanwhile\n", "afterwards: %q, %v", got, err)
}

func TestProxyGoesDownAndUp(t *testing.T) {
	p := proxied(t, nil)
	conn, r := dialed(t, p)
	ask(t, conn, r, "before")
	set(t, p, faults.Conduct{Down: true})
	_, err := r.ReadByte()
	assert.That(t, err != nil, "the connection survived")
	if c, err := net.Dial("tcp", p.Addr()); err == nil {
		c.Close()
		t.Error("it takes connections")
	}
	set(t, p, faults.Conduct{})
	conn, r = dialed(t, p)
	ask(t, conn, r, "after")
}

// Close waits neither for what is late, nor for what hangs.
func TestProxyClosesAtOnce(t *testing.T) {
	const late = time.Minute
	for what, conduct := range map[string]faults.Conduct{
		"late":    {Delay: faults.Range{Min: late, Max: late}},
		"hanging": {Hang: true},
	} {
		accepted := make(chan net.Conn, 1)
		l := listening(t)
		go func() {
			conn, err := l.Accept()
			if err == nil {
				accepted <- conn
			}
		}()
		p := proxyTo(t, l.Addr().String(), nil)
		set(t, p, conduct)
		near, _ := dialed(t, p)
		far := <-accepted
		defer far.Close()
		for _, conn := range []net.Conn{near, far} {
			assert.Succeed(t, assert.ErrorOf(io.WriteString(conn, "on its way")))
		}
		time.Sleep(20 * time.Millisecond) // for both to be under way
		closes(t, p, what)
	}
}

func closes(t *testing.T, p *faults.Proxy, what string) {
	t.Helper()
	closed, start := make(chan bool), time.Now()
	go func() { p.Close(); close(closed) }()
	select {
	case <-closed:
		t.Logf("%s: it took %v", what, time.Since(start))
	case <-time.After(20 * time.Second):
		t.Errorf("%s: not closed after 20 s", what)
	}
}

func events(t *testing.T, text string) (all []*faults.Event) {
	t.Helper()
	p := parsed(t, "nodes 3\nclients 2\n"+text)
	for i := range p.Events {
		all = append(all, &p.Events[i])
	}
	return all
}

func TestLinkSuffersTheLastFaultOfAKind(t *testing.T) {
	all := events(t, "at 0s delay c1>n1 1ms\nat 1s delay c1-n1 2ms\nat 2s cut c1<n1\nat 3s deafen c1-n1\nat 4s duplicate c1>n1 10% 3ms\nat 5s heal c1-n1\n")
	var l faults.Link[int]
	for _, e := range all[:5] {
		l.Strike(e, false)
	}
	ms := func(n time.Duration) faults.Range {
		return faults.Range{Min: n * time.Millisecond, Max: n * time.Millisecond}
	}
	want := faults.Trouble{Delay: [2]faults.Range{ms(2), ms(2)}, Cut: [2]bool{false, true}, Deaf: true, Duplicate: [2]faults.Ratio{faults.Percent(10), 0}, Later: ms(3)}
	assert.That(t, l.Trouble == want, "%+v, want %+v", l.Trouble, want)
	l.Strike(all[1], true) // it takes back only its own effect
	l.Strike(all[2], true)
	want.Delay, want.Cut = [2]faults.Range{ms(1), {}}, [2]bool{}
	assert.That(t, l.Trouble == want && !l.Suffers(all[2]) && l.Suffers(all[0]), "%+v, want %+v", l.Trouble, want)
	if l.Strike(all[5], false); l.Trouble != (faults.Trouble{}) {
		t.Errorf("healed, and %+v", l.Trouble)
	}
}

func TestLinkHolds(t *testing.T) {
	all := events(t, "at 0s hold c1>n1 acquire 1\nat 1s hold c1-n1\nat 2s release c1-n1\n")
	var l faults.Link[int]
	keeps := func(message, way int, kind string, want bool) {
		t.Helper()
		assert.Equal(t, l.Hold(way, kind, message), want, message)
	}
	l.Strike(all[0], false)
	keeps(1, faults.ToNode, "release", false)
	keeps(2, faults.ToClient, "acquire", false)
	keeps(3, faults.ToNode, "acquire", true)
	keeps(4, faults.ToNode, "acquire", false)
	l.Strike(all[1], false)
	again := l.Again()
	keeps(5, faults.ToClient, "release", true)
	free := l.Strike(all[0], true)
	assert.That(t, slices.Equal(free, []int{3}), "%v go on", free)
	free = l.Strike(all[2], false)
	assert.That(t, slices.Equal(free, []int{5}) && !l.Holds(), "%v go on", free)
	free = again.Strike(all[2], false)
	assert.That(t, len(free) == 0, "another process gets %v", free)
}

func TestServerDoesWhatTheLatestFaultSays(t *testing.T) {
	all := events(t, "at 0s crash n1 second for 2s\nat 1s crash n1 empty for 2s\nat 2s demote n1 durable for 2s\nat 3s demote n1 empty for 2s\nat 4s slow n1 1ms for 2s\nat 5s slow n1 2ms for 2s\nat 6s full n1 disk\nat 7s restart n1\nat 8s pause n1 for 2s\n")
	s := faults.Server{Mode: faults.Durable}
	for i, step := range []struct {
		event int
		end   bool
		does  []faults.Verb
	}{
		{0, false, []faults.Verb{faults.Crash}},
		{1, false, nil}, // it is down
		{2, false, nil},
		{0, true, nil}, // the later one keeps it down
		{1, true, []faults.Verb{faults.Restart}},
		{2, false, []faults.Verb{faults.Demote}},
		{3, false, []faults.Verb{faults.Demote}},
		{2, true, nil},
		{3, true, []faults.Verb{faults.Promote}},
		{4, false, []faults.Verb{faults.Slow}},
		{5, false, []faults.Verb{faults.Slow}},
		{4, true, nil},
		{7, false, []faults.Verb{faults.Crash, faults.Restart}},
		{6, false, []faults.Verb{faults.Full}},
		{8, false, []faults.Verb{faults.Pause}},
	} {
		does := s.Strike(all[step.event], step.end)
		assert.That(t, slices.Equal(does, step.does), "step %d: it does %v, want %v", i, does, step.does)
	}
	if s.Slow.Max != 2*time.Millisecond || s.Mode != faults.Empty || !s.Lacks(faults.Disk) || s.Lacks(faults.Memory) || s.Stopped != 1 {
		t.Errorf("%+v", s)
	}
	s.Strike(all[0], false)
	if does := s.Heal(); !slices.Equal(does, []faults.Verb{faults.Restart, faults.Full, faults.Promote}) || s.Lacks(faults.Disk) || s.Down {
		t.Errorf("healed, it does %v: %+v", does, s)
	}
}

func TestProcessIsDeadUntilTheLatestKillEnds(t *testing.T) {
	all := events(t, "at 0s kill c1 for 2s\nat 1s kill c1 for 2s\nat 2s pause c1 for 2s\nat 3s start c1\nat 4s pause c1 for 1s\n")
	var p faults.Process
	for i, step := range []struct {
		event int
		end   bool
		does  faults.Verb
	}{
		{0, false, faults.Kill},
		{1, false, ""},
		{2, false, ""},
		{0, true, ""}, // the later one keeps it dead
		{1, true, faults.Start},
		{3, false, ""},
		{2, false, faults.Pause},
		{4, false, faults.Pause},
		{4, true, faults.Pause},
	} {
		assert.Equal(t, p.Strike(all[step.event], step.end), step.does, i)
	}
	assert.That(t, !p.Dead && p.Stopped == 1, "%+v", p)
}
