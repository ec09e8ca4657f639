package sim_test

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redquorum/redquorum/faults"
	"github.com/redquorum/redquorum/internal/assert"
	"github.com/redquorum/redquorum/sim"
)

func golden(t *testing.T, path string, got []byte) {
	t.Helper()
	if *update {
		assert.Succeed(t, os.WriteFile(path, got, 0o666))
	}
	want, err := os.ReadFile(path)
	assert.That(t, err == nil && bytes.Equal(got, want), "it differs from %s (%v); -update writes it again", path, err)
}

// A fingerprint of a trace has a byte for each few lines, to tell where traces begin to
// differ.
const linesPerByte = 16

func fingerprint(lines []string) string {
	var b []byte
	for some := range slices.Chunk(lines, linesPerByte) {
		h := fnv.New32a()
		for _, line := range some {
			h.Write([]byte(line))
		}
		b = append(b, byte(h.Sum32()))
	}
	return hex.EncodeToString(b)
}

func differs(lines []string, was, is string) string {
	at := 0
	for at < min(len(was), len(is)) && was[at:at+2] == is[at:at+2] {
		at += 2
	}
	from := min(at/2*linesPerByte, len(lines))
	return strings.Join(lines[from:min(from+linesPerByte, len(lines))], "")
}

// recorded maps the first two words of each line of testdata/scenarios.txt to it.
func recorded(t *testing.T) map[string]string {
	text, err := os.ReadFile("testdata/scenarios.txt")
	assert.Must(t, err == nil || *update, "%v", err)
	rows := make(map[string]string)
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) > 2 && line[0] == 'S' {
			rows[f[0]+" "+f[1]] = line
		}
	}
	return rows
}

// Each scenario goes as its file says, and event by event as recorded.
func TestScenarios(t *testing.T) {
	all := sim.Scenarios()
	assert.Must(t, len(all) == 76, "%d scenarios", len(all))
	was := recorded(t)
	var b bytes.Buffer
	b.WriteString("# What became of each scenario: the verdict, the invariants that were broken, how many lines its trace has, and a\n" +
		"# byte for each 16 of them. TestScenarios compares with it, and -update writes it again.\n")
	for i, s := range all {
		assert.That(t, s.ID == fmt.Sprintf("S%02d", i+1) && s.Title != "" && len(s.Story) != 0 && s.Protects != "", "%+v", s)
		for _, v := range sim.Variants {
			p := s.Plan(v)
			want, ok := s.Wants[v.Name]
			assert.That(t, ok == (p != nil && (v.Name == "plain" || v.Name == sim.Mistaken || v.Name == "redquorum")),
				"%s wants of %s: %q", s.ID, v.Name, want)
			if !ok || p == nil {
				continue
			}
			assert.That(t, p.Events != nil && len(p.Events) <= 12, "%s has %d events", s.ID, len(p.Events))
			r := sim.Run(p, nil, sim.WithTrace())
			assert.That(t, r.Verdict == want, "%s with %s is %s, not %s: %v", s.ID, v.Name, r.Verdict, want, r.Worst())
			assert.That(t, p.Lock.Client != faults.Redquorum || want == sim.Sound || want == sim.Outside, "%s: our own lock may not be %s", s.ID, want)
			lines := traceOf(t, r, p)
			broken := "-"
			for i, v := range r.Violations {
				broken = strings.TrimPrefix(broken, "-") + strings.Repeat(",", min(i, 1)) + v.Invariant
			}
			key := s.ID + " " + v.Name
			is := fmt.Sprintf("%s %s %s %d %s\n", key, r.Verdict, broken, len(lines), fingerprint(lines))
			b.WriteString(is)
			if !*update && was[key] != is {
				f, g := strings.Fields(was[key]+" - - - - -"), strings.Fields(is)
				t.Errorf("it was %swhat differs first is in these lines; compare with those of the last commit by\n"+
					"  git worktree add /tmp/before HEAD && (cd /tmp/before && go run ./cmd/redquorum sim scenario %s --client %s)\n%s",
					was[key], s.ID, v.Name, differs(lines, f[5], g[5]))
			}
		}
	}
	golden(t, filepath.Join("testdata", "scenarios.txt"), b.Bytes())
}

func traceOf(t *testing.T, r *sim.Result, p *faults.Plan) []string {
	t.Helper()
	var trace bytes.Buffer
	assert.Succeed(t, r.Trace.WriteText(&trace, p))
	return slices.Collect(strings.Lines(trace.String()))
}

// The traces in the documentation are those of their plans. A line that begins with # is
// about the next one, and stays with it.
func TestTraces(t *testing.T) {
	files, err := filepath.Glob("testdata/traces/*.txt")
	assert.Must(t, err == nil && len(files) == 6, "%d traces, %v", len(files), err)
	for _, path := range files {
		text := assert.Got(os.ReadFile(path))(t)
		head, was, _ := strings.Cut(string(text), "\n\n")
		p, err := faults.Parse(head)
		assert.Must(t, err == nil, "%s: %v", path, err)
		about, said := make(map[string]string), "" // by the line without its time
		for line := range strings.Lines(was) {
			if line[0] == '#' {
				said += line
			} else if said != "" {
				about[strings.Join(strings.Fields(line)[1:], " ")], said = said, ""
			}
		}
		b := bytes.NewBufferString(head + "\n\n")
		for _, line := range traceOf(t, sim.Run(p, nil, sim.WithTrace()), p) {
			if strings.Contains(line, "the faults are over") { // then every client gets every lock once
				break
			}
			if f := strings.Fields(line); len(f) > 0 {
				key := strings.Join(f[1:], " ")
				b.WriteString(about[key])
				delete(about, key)
			}
			b.WriteString(line)
		}
		golden(t, path, b.Bytes())
	}
}

// The story of a ghost lock has its attempt, and the ghosts.
func TestStory(t *testing.T) {
	s, _ := sim.FindScenario("S24")
	got := sim.Run(s.Plan(sim.Variants[0]), nil, sim.WithTrace()).Story(10)
	want := []string{
		"0.000 ms  hold c1>n3,n4,n5 acquire for 80ms (a fault)",
		"1.000 ms  try c1 x (a step)",
		"55.000 ms  c1 is done with try x: the nodes did not grant it",
		"80.000 ms  hold c1>n3,n4,n5 acquire for 80ms is over",
		"81.000 ms  n3, n4, n5: x kept for c1, which does not have it, until 1081.115 ms",
		"100.000 ms  lock c2 x (a step)",
		"1091.432 ms  c2 is granted x",
		"2077.433 ms  c2 no longer holds x",
		"3000.000 ms  the faults are over for a majority, and forever elsewhere",
	}
	for i := range got {
		got[i] = strings.TrimSpace(got[i])
	}
	assert.That(t, slices.Equal(got, want), "the story is\n%s", strings.Join(got, "\n"))
}

// The table in the documentation is what the simulator finds.
func TestMatrix(t *testing.T) {
	const page, begin, end = "../docs/evidence/failures.md", "<!-- matrix -->\n", "<!-- end -->"
	text := assert.Got(os.ReadFile(page))(t)
	before, rest, ok1 := strings.Cut(string(text), begin)
	_, after, ok2 := strings.Cut(rest, end)
	assert.Must(t, ok1 && ok2, "no table in %v", page)
	var b bytes.Buffer
	assert.Succeed(t, sim.RunMatrix().WriteMarkdown(&b))
	golden(t, page, []byte(before+begin+b.String()+end+after))
}

func TestBugsStayFixed(t *testing.T) { areSound(t, "testdata/bugs/*.plan", 50) }

// These plans are near the counterexamples of spec/Replicas.tla.
func TestReplicasPlans(t *testing.T) { areSound(t, "../spec/plans/replicas-*.plan", 8) }

func areSound(t *testing.T, pattern string, least int) {
	t.Helper()
	plans, err := filepath.Glob(pattern)
	assert.Must(t, err == nil && len(plans) >= least, "%d plans: %v", len(plans), err)
	for _, path := range plans {
		text := assert.Got(os.ReadFile(path))(t)
		p, err := faults.Parse(string(text))
		assert.Must(t, err == nil, "%s: %v", path, err)
		r := sim.Run(p, nil)
		assert.That(t, r.Verdict == sim.Sound, "%s is %s: %v", path, r.Verdict, r.Worst())
	}
}

// A narrow terminal has two lines for a scenario.
func TestMatrixFits(t *testing.T) {
	m := &sim.Matrix{Scenarios: sim.Scenarios()}
	for range m.Scenarios {
		row := make([]*sim.Result, len(sim.Variants))
		row[0], row[len(row)-1] = &sim.Result{Verdict: sim.Unsafe}, &sim.Result{Verdict: sim.Sound, Waited: time.Second}
		m.Results = append(m.Results, row)
	}
	for columns, want := range map[int]string{
		200: "S03  The machine sleeps                           <broken    > -          -          -          -          -          <ok 1.0 s>\n",
		90:  "S03  The machine sleeps\n     <broken    > -          -          -          -          -          <ok 1.0 s>\n",
	} {
		var b strings.Builder
		err := m.WriteText(&b, columns, func(v sim.Verdict, text string) string {
			if v == "" {
				return text
			}
			return "<" + text + ">"
		})
		assert.That(t, err == nil && strings.Contains(b.String(), want), "%d columns: %v\n%s", columns, err, &b)
		for line := range strings.Lines(b.String()) {
			assert.That(t, len(line) <= columns+1, "%d columns: %s", columns, line)
		}
	}
}

// The end of a fault undoes only its own effect.
func TestFaultsEndWhatTheyBegan(t *testing.T) {
	const plan = "nodes 1\nclients 1\nlength 6s\nlock lease=5s maxlease=5s guard=off renew=off\nnetwork delay=1ms\nat 2s try c1 x\n"
	for _, c := range []struct{ events, want string }{
		{"", "granted after 4ms"},
		{"at 0s delay c1-n1 5ms for 3s", "granted after 24ms"},
		{"at 0s delay c1-n1 5ms for 1s\nat 500ms delay c1-n1 10ms for 3s", "granted after 44ms"},
		{"at 0s delay c1-n1 5ms for 3s\nat 500ms delay c1-n1 10ms for 1s", "granted after 24ms"},
		{"at 0s delay c1-n1 5ms for 3s\nat 500ms delay c1>n1 10ms for 1s", "granted after 24ms"},
		{"at 0s loss c1-n1 100% for 5s\nat 500ms loss c1-n1 100% for 100ms", "no answer in time"},
		{"at 0s cut c1-n1 for 1s\nat 500ms heal\nat 800ms cut c1-n1", "no answer in time"},
		{"at 0s cut c1-n1 for 5s\nat 500ms heal", "granted after 4ms"},
		{"at 0s hold c1>n1 for 1s\nat 500ms hold c1>n1", "no answer in time"},
		{"at 0s slow n1 5ms for 1s\nat 500ms slow n1 10ms for 3s", "granted after 24ms"},
		{"at 0s full n1 disk for 3s", "cannot save to disk"},
		{"at 0s full n1 memory for 3s", "out of memory"},
		{"at 0s full n1 memory for 3s\nat 500ms full n1 disk for 1s", "out of memory"},
		{"at 0s full n1 disk for 1s\nat 500ms full n1 disk for 500ms", "granted after 4ms"},
		{"at 30ms starve n1 5% for 3s", "granted after 33ms"},
		{"at 30ms starve n1 5% for 1s", "granted after 4ms"},
		{"at 1s try c1 y\nat 1500ms halfopen c1-n1 for 3s", "no answer in time"},
		{"at 1s try c1 y\nat 1500ms halfopen c1-n1\nat 1600ms try c1 z", "granted after 2ms"},
		{"at 1s try c1 y\nat 1500ms halfopen c1-n1 for 100ms", "granted after 2ms"},
		{"at 1s try c1 y\nat 1500ms halfopen c1-n1\nat 1600ms heal", "granted after 2ms"},
		{"at 1s try c1 y\nat 1500ms reset c1-n1", "granted after 2ms"},
		{"at 1s try c1 y\nat 2000500us reset c1-n1", "unreachable"},
		{"at 1s try c1 y\nat 1400ms cut c1<n1 for 200ms\nat 1500ms reset c1-n1", "no answer in time"},
		{"at 0s crash n1 durable for 1s\nat 500ms crash n1 durable for 3s", "unreachable"},
		{"at 0s crash n1 empty for 3s\nat 500ms restart n1\nat 5s try c1 x", "held"},
		{"at 0s kill c1 for 1s\nat 500ms kill c1 for 4s", ""},
	} {
		r := traced(t, plan+c.events+"\n")
		got := ""
		for _, e := range r.Trace.Entries {
			if e.Kind == sim.KindResult && e.At < 6*time.Second {
				got = e.Text
				if strings.HasSuffix(e.Text, "granted") {
					got = fmt.Sprint("granted after ", (e.At - 2*time.Second).Truncate(time.Millisecond))
				}
			}
		}
		assert.That(t, strings.Contains(got, c.want) && (c.want != "" || got == ""), "%s\nends in %q, want %q", c.events, got, c.want)
	}
}

// A node keeps the subscriber of a half-open connection until the fault ends, and hands
// the lock on to it.
func TestHalfOpenSubscribers(t *testing.T) {
	const plan = "nodes 3\nclients 3\nlength 3s\nlock lease=1s timeout=50ms poll=200ms\nnetwork delay=1ms\n" +
		"at 0s lock c1 x\nat 10ms lock c2 x\nat 60ms lock c3 x\nat 260ms kill c2\nat 300ms unlock c1\nat 2s unlock c3\n"
	for event, late := range map[string]bool{
		"":                                       false,
		"at 250ms halfopen c2-n*":                true,
		"at 250ms halfopen c2-n* for 1s":         true,
		"at 250ms halfopen c2-n* for 40ms":       false,
		"at 250ms halfopen c2-n1 for 1s":         false, // one of three
		"at 250ms halfopen c2-n*\nat 290ms heal": false,
	} {
		for _, e := range traced(t, plan+event+"\n").Trace.Entries {
			if e.Kind != sim.KindBelief || e.Client != 2 {
				continue
			}
			assert.That(t, (e.At > 390*time.Millisecond) == late, "with %q c3 has the lock at %v", event, e.At)
			break
		}
	}
}
