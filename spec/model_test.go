package spec

import (
	"cmp"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/redquorum/redquorum/internal/assert"
	"github.com/redquorum/redquorum/internal/tests"
)

type small struct {
	Rules
	nodes, rounds, crashes int
	minHold                Time
	resumes                bool
	length                 [2]Time
	offer                  [2]bool
	old                    Time
	alike                  bool
}

// configured reads the sizes of a row, as the script check does.
func configured(t *testing.T, sizes string) *small {
	m := &small{nodes: 3, rounds: 1, crashes: 1, length: [2]Time{3, 3}}
	var maxLease, drift Time
	yes := 0
	m.Window = 2
	for _, f := range strings.Fields(sizes) {
		name, value, _ := strings.Cut(f, "=")
		n, _ := strconv.ParseInt(value, 10, 64)
		switch name {
		case "LX":
			m.length[0] = n
		case "LY":
			m.length[1] = n
		case "MaxLease":
			maxLease = n
		case "Window":
			m.Window = n
		case "MinHold":
			m.minHold = n
		case "Drift":
			drift = n
		case "Pace":
			m.Pace = n
		case "Crashes":
			m.crashes = int(n)
		case "Offer":
			m.offer[1] = value == "y"
		case "Rounds":
			m.rounds = len(strings.Split(value, ","))
		case "Yes":
			yes = int(n)
		case "Need":
			m.Quorum = int(n)
		case "Claims":
			if value != "x,z" {
				t.Skipf("the claims %s are too many", value)
			}
		case "Resumers":
			m.resumes = true
		default:
			t.Fatalf("%q is not known", f)
		}
	}
	if maxLease == 0 {
		maxLease = max(m.length[0], m.length[1])
	}
	m.Quorum = cmp.Or(m.Quorum, (m.nodes+yes)/2+1) - yes
	m.Longest, m.VotesFrom, m.KeepsFrom = maxLease, maxLease+drift, m.Window+drift
	m.Allowed = func(t Time) Time { return t - drift }
	m.Lives = func(c *Claim) Time {
		if m.minHold > 0 {
			return max(c.Length, m.minHold+drift) - m.Pace
		}
		return c.Length - m.Pace
	}
	m.old = 2*max(maxLease, m.minHold) + 2*drift + m.Pace + 1
	m.alike = !m.offer[1] && !m.resumes && m.length[0] == m.length[1]
	return m
}

type world struct {
	State
	crashed int
}

func (m *small) start() *world {
	w := &world{State: State{Rules: &m.Rules, Nodes: make([]Node, m.nodes)}}
	for n := range w.Nodes {
		w.Nodes[n].Life = m.old
	}
	for i, name := range []string{"x", "y"} {
		w.Claims = append(w.Claims, &Claim{Name: name, Length: m.length[i], MinHold: m.minHold, Offer: m.offer[i], Rounds: make([]Round, m.rounds)})
	}
	if m.resumes {
		w.Claims[1].From = w.Claims[0]
	}
	return w
}

func (w *world) clone() *world {
	o := &world{State: State{Rules: w.Rules, Nodes: slices.Clone(w.Nodes)}, crashed: w.crashed}
	for _, c := range w.Claims {
		d := *c
		d.Rounds, d.Saw = slices.Clone(c.Rounds), slices.Clone(c.Saw)
		if d.From != nil {
			d.From = o.Claims[0]
		}
		o.Claims = append(o.Claims, &d)
	}
	for n := range o.Nodes {
		keys := o.Nodes[n].Keys
		o.Nodes[n].Keys = nil
		for _, k := range keys {
			o.Nodes[n].Keys = append(o.Nodes[n].Keys, Key{o.Claims[slices.Index(w.Claims, k.Claim)], k.Left})
		}
	}
	return o
}

// encode writes the state under other names of nodes and claims.
func (w *world) encode(nodes, claims []int) string {
	var b []byte
	put := func(v Time) { b = append(b, byte(v)) }
	set := func(s Set) {
		var to Time
		for i, n := range nodes {
			if s.has(n) {
				to |= 1 << i
			}
		}
		put(to)
	}
	put(Time(w.crashed))
	for _, n := range nodes {
		at := &w.Nodes[n]
		var key, left Time
		for _, k := range at.Keys {
			key, left = 1+Time(slices.Index(claims, slices.Index(w.Claims, k.Claim))), k.Left
		}
		put(key)
		put(left)
		put(at.Life)
	}
	for _, i := range claims {
		c := w.Claims[i]
		put(Time(c.Phase))
		put(c.Age)
		set(c.Votes)
		put(c.Lease)
		put(c.Hold)
		for _, n := range nodes {
			if c.Saw != nil {
				put(c.Saw[n])
			} else {
				put(0)
			}
		}
		for _, r := range c.Rounds {
			if !r.Open {
				r.Began = -1
			}
			put(r.Began)
			set(r.Kept)
		}
	}
	return string(b)
}

// key is the same for states that differ only in names of nodes and claims.
func (m *small) key(w *world) string {
	least := ""
	for _, nodes := range [][]int{{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}} {
		for _, claims := range [][]int{{0, 1}, {1, 0}} {
			if s := w.encode(nodes, claims); least == "" || s < least {
				least = s
			}
			if !m.alike {
				break
			}
		}
	}
	return least
}

// tick lets time pass.
func (m *small) tick(w *world) {
	for n := range w.Nodes {
		at := &w.Nodes[n]
		at.Pass(1)
		at.Life = min(at.Life, m.old) // so that there are not ever more states
	}
	for _, c := range w.Claims {
		w.Pass(c, 1)
		for i := range c.Rounds {
			w.PassRound(&c.Rounds[i], 1)
		}
	}
}

func (m *small) next(w *world, f func(*world)) {
	o := w.clone()
	try := func(do func(w *world) error) {
		if do(o) == nil { // else it has changed nothing
			f(o)
			o = w.clone()
		}
	}
	try(func(w *world) error { m.tick(w); return nil })
	for n := range w.Nodes {
		for d := Time(0); d <= m.Pace && w.crashed < m.crashes; d++ {
			try(func(w *world) error { w.crashed++; w.Crash(n, d); return nil })
		}
	}
	for i, c := range w.Claims {
		try(func(w *world) error { return w.Ask(w.Claims[i]) })
		try(func(w *world) error { return w.Win(w.Claims[i]) })
		try(func(w *world) error { return w.Leave(w.Claims[i]) })
		if m.resumes && i == 0 {
			try(func(w *world) error { return w.Detach(w.Claims[i]) })
		}
		for k := range c.Rounds {
			try(func(w *world) error { c := w.Claims[i]; return w.Begin(c, &c.Rounds[k], c.Length) })
			try(func(w *world) error { c := w.Claims[i]; return w.Confirm(c, &c.Rounds[k]) })
		}
		for n := range w.Nodes {
			most := m.Lives(c) + m.Pace
			if c.Offer && c.Phase == Asking {
				most = c.Length
			}
			for left := Time(1); left <= most; left++ {
				try(func(w *world) error { return w.Acquire(n, w.Claims[i], left) })
			}
			left := c.Length - m.Pace
			if k := w.Nodes[n].of(c); k != nil {
				left = max(left, k.Left)
			}
			for k := range c.Rounds {
				try(func(w *world) error { c := w.Claims[i]; return w.Extend(n, c, &c.Rounds[k], left) })
			}
			try(func(w *world) error { return w.Release(n, w.Claims[i]) })
			try(func(w *world) error { return w.GiveBack(n, w.Claims[i]) })
			try(func(w *world) error { return w.Clear(n, w.Claims[i]) })
		}
	}
}

// explore counts the states, but for names.
func (m *small) explore() (states int, broken error) {
	first := m.start()
	seen := map[string]bool{m.key(first): true}
	for layer := []*world{first}; len(layer) > 0; {
		var following []*world
		for _, w := range layer {
			m.next(w, func(o *world) {
				if k := m.key(o); !seen[k] {
					seen[k] = true
					following = append(following, o)
					if broken == nil {
						broken = o.Exclusive()
					}
				}
			})
		}
		layer = following
	}
	return len(seen), broken
}

// Both have as many states as TLC has found, for each row of the table in
// docs/evidence/formal.md but that with all other clients.
func TestSameStates(t *testing.T) {
	page, err := os.ReadFile("../docs/evidence/formal.md")
	assert.Succeed(t, err)
	rows := regexp.MustCompile(`(?m)^\| ([A-Za-z=0-9, ]*) \| ([0-9,]+) \|$`).FindAllStringSubmatch(string(page), -1)
	assert.Must(t, len(rows) >= 10, "%d rows", len(rows))
	for _, row := range rows {
		states := assert.Got(strconv.Atoi(strings.ReplaceAll(row[2], ",", "")))(t)
		if strings.Contains(row[1], "Others") || strings.Contains(row[1], "Module") || states > tests.Times(26_000, 110_000) {
			continue
		}
		t.Run(row[1], func(t *testing.T) {
			t.Parallel()
			sizes := strings.TrimPrefix(row[1], "as said above")
			got, broken := configured(t, sizes).explore()
			assert.That(t, got == states && broken == nil, "%d states, %v; TLC has found %d", got, broken, states)
		})
	}
}

// TLC still finds as many states as the table says.
func TestSameAsTLC(t *testing.T) {
	tests.NeedLong(t)
	const sizes = "MinHold=3 MaxLease=3 LX=2 LY=2"
	for _, program := range []string{"java", "mvn"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skip(err)
		}
	}
	out, err := exec.Command("./check", sizes).CombinedOutput()
	assert.Must(t, err == nil, "%v\n%s", err, out)
	row := regexp.MustCompile(`(?m)^\| nothing \| ` + sizes + ` \| nothing \| +\| ([0-9]+) \|$`).FindSubmatch(out)
	assert.Must(t, row != nil, "no row of %s:\n%s", sizes, out)
	got, _ := configured(t, sizes).explore()
	assert.That(t, strconv.Itoa(got) == string(row[1]), "%d states, and TLC finds %s", got, row[1])
}
