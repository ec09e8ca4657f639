package sim_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redquorum/redquorum/faults"
	"github.com/redquorum/redquorum/internal/assert"
	"github.com/redquorum/redquorum/internal/browser"
	"github.com/redquorum/redquorum/internal/tests"
	"github.com/redquorum/redquorum/sim"
)

// forgetful is a plan in which a node forgets the lock, without the guard.
const forgetful = `nodes 5
clients 2
length 3s
lock lease=1s timeout=50ms guard=off
network delay=1ms
at 0s cut c1-n4,n5
at 1ms lock c1 x
at 40ms crash n3 empty for 10ms
at 50ms hold c2>n1 acquire
at 60ms lock c2 x
`

// crowded is forgetful with much that does not matter between the grants.
func crowded() string {
	steps := ""
	for at := 10; at < 38; at += 4 {
		steps += fmt.Sprintf("at %dms lock c3 y\nat %dms unlock c3\n", at, at+3)
	}
	return strings.NewReplacer("clients 2", "clients 3", "at 40ms crash", steps+"at 40ms crash").Replace(forgetful)
}

// varied has a lock of two names, readers, and two queued waiters.
const varied = `nodes 3
clients 4
length 400ms
lock lease=1s maxlease=1s
network delay=1ms
at 0s lock c1 x,y
at 0s lock c2 z read
at 10ms lock c3 z read
at 20ms lock c4 y fair
at 30ms lock c3 y fair
at 200ms unlock c1
at 300ms unlock c2
at 300ms unlock c3
at 300ms unlock c4
at 320ms unlock c3
`

const joint = `nodes 5
clients 1
length 1s
work names=1 joint=100%
`

func traced(t *testing.T, text string) *sim.Result {
	t.Helper()
	return sim.Run(planned(t, text), nil, sim.WithTrace())
}

func page(t *testing.T, r *sim.Result) string {
	t.Helper()
	var b bytes.Buffer
	assert.Succeed(t, r.WriteHTML(&b))
	return b.String()
}

type shown struct {
	Nodes, Clients int
	Entries        []sim.Entry
	Faults         []struct {
		At    time.Duration
		Text  string
		Parts []struct {
			Client, Node int
			Until        time.Duration
		}
	}
	Violations []struct {
		Invariant, What string
		Worst           bool
	}
}

func read(t *testing.T, html string) (s shown) {
	t.Helper()
	_, data, _ := strings.Cut(html, `<script type="application/json" id="data">`)
	data, _, _ = strings.Cut(data, "</script>")
	var all struct{ Runs []shown }
	err := json.Unmarshal([]byte(data), &all)
	assert.Must(t, err == nil && len(all.Runs) == 1, "%v, %v", err, len(all.Runs))
	return all.Runs[0]
}

func TestHTML(t *testing.T) {
	r := traced(t, forgetful)
	assert.Must(t, r.Verdict == sim.Unsafe, "%v", r.Verdict)
	html := page(t, r)
	assert.Equal(t, regexp.MustCompile(`(?i)https?:|\bsrc=|@import|\burl\(`).FindString(html), "", "the page has")
	for _, want := range []string{"unsafe", "exclusion", "c1 and c2 both hold",
		"An invariant was broken. The cause: the restart guard is off (lock guard=off).", "at 40ms crash n3 empty for 10ms"} {
		assert.That(t, strings.Contains(html, want), "the page lacks %q", want)
	}
	s := read(t, html)
	assert.That(t, s.Nodes == 5 && s.Clients == 2 && reflect.DeepEqual(s.Entries, r.Trace.Entries), "the page has other entries than the trace")
	v := s.Violations
	assert.That(t, len(v) == 1 && v[0].Invariant == "I1" && v[0].Worst, "violations: %v", v)
	if len(s.Faults) != 3 || len(s.Faults[0].Parts) != 2 || s.Faults[0].Parts[1].Until != r.Virtual || s.Faults[1].Parts[0].Until != 50*time.Millisecond {
		t.Errorf("faults: %v", s.Faults)
	}
}

// The end of a fault ends its effects on the processes and links concerned, and no
// others.
func TestHTMLFaults(t *testing.T) {
	s := read(t, page(t, traced(t, `nodes 3
clients 2
length 1s
lock lease=300ms
at 10ms cut c*-n1
at 20ms hold c1>n2 acquire
at 30ms kill c2
at 35ms demote n3 n1
at 40ms crash n3 durable
at 50ms pause c1 for 1h
at 60ms step n2 1ms
at 70ms demote n1,n2 empty
at 100ms heal c1-n1
at 110ms release c1>n*
at 120ms start c2
at 130ms restart n3
at 140ms promote n2
`)))
	const ms = time.Millisecond
	want := map[string][]time.Duration{
		"cut c*-n1": {100 * ms, time.Second}, "hold c1>n2 acquire": {110 * ms}, "kill c2": {120 * ms},
		"crash n3 durable": {130 * ms}, "pause c1 for 1h": {time.Second}, "step n2 1ms": {60 * ms},
		"demote n3 n1": {40 * ms}, "demote n1,n2 empty": {time.Second, 140 * ms},
	}
	for _, f := range s.Faults {
		for i, until := range want[f.Text] {
			if got := f.Parts[i].Until; got != until && (until != time.Second || got < until) {
				t.Errorf("%s, part %d: ends at %v, want %v", f.Text, i, got, until)
			}
		}
		delete(want, f.Text)
	}
	assert.That(t, len(want) == 0, "not shown: %v", want)
}

func TestHTMLEscapes(t *testing.T) {
	r := traced(t, forgetful)
	evil := `</script><script>alert("1")</script><!--` + "\u2028"
	r.Trace.Entries[1].Text = evil
	r.Violations[0].What = evil
	for i := range r.Trace.Entries {
		if e := &r.Trace.Entries[i]; e.Kind == sim.KindViolation {
			e.Text = r.Violations[0].Invariant + ": " + evil
		}
	}
	html := page(t, r)
	assert.That(t, !strings.Contains(html, "<script>alert") && !strings.Contains(html, "<!--"), "the page runs what is in the data")
	s := read(t, html)
	assert.That(t, s.Entries[1].Text == evil, "the text is now %q", s.Entries[1].Text)
}

// The page of a scenario says that what is to fail does so as expected.
func TestHTMLOfScenarios(t *testing.T) {
	for _, c := range []struct {
		id, variant string
		want        []string
	}{
		{"S28", "plain", []string{"<h1>Scenario S28: The release of one attempt ends the next</h1>", "c1 uses one value for all its attempts.",
			"textbook Redlock: the steps", `"protects":"a fresh owner for each attempt"`, "Textbook Redlock fails here, as expected."}},
		{"S54", sim.Mistaken, []string{"Textbook Redlock with a known mistake fails here, as expected.", "with a known mistake: half of the nodes"}},
		{"S28", "redquorum", []string{"Every invariant held.", `"lock":"redquorum"`}},
	} {
		s, _ := sim.FindScenario(c.id)
		v, _ := sim.FindVariant(c.variant)
		var b bytes.Buffer
		assert.Succeed(t, s.WriteHTML(&b, sim.Run(s.Plan(v), nil, sim.WithTrace())))
		for _, want := range c.want {
			assert.That(t, strings.Contains(b.String(), want), "%s with %s: the page lacks %q", c.id, c.variant, want)
		}
		assert.That(t, !strings.Contains(b.String(), ": a bug."), "%s with %s is called a bug", c.id, c.variant)
	}
}

func TestHTMLExplainsFaults(t *testing.T) {
	text := assert.Got(os.ReadFile("internal/page/run.js"))(t)
	_, words, _ := strings.Cut(string(text), "const verbs = {")
	words, _, _ = strings.Cut(words, "};")
	var events []faults.Event
	for _, s := range sim.Scenarios() {
		events = append(events, s.Plan(sim.Variants[0]).Events...)
	}
	for seed := range uint64(200) {
		events = append(events, faults.Generate(seed, faults.Profile{Outside: true, Machines: true}).Events...)
	}
	seen := make(map[faults.Verb]bool)
	for _, e := range events {
		assert.That(t, seen[e.Verb] || e.Verb.IsStep() || regexp.MustCompile(`\b`+string(e.Verb)+`: \['`).MatchString(words), "%s is not explained", e.Verb)
		seen[e.Verb] = true
	}
}

func TestHTMLWithoutTrace(t *testing.T) {
	err := sim.Run(faults.New(3, 1), nil).WriteHTML(new(bytes.Buffer))
	assert.That(t, err != nil, "no error")
}

// Nodes that are down show no keys. Durable keys are there again afterwards.
const crashing = `nodes 3
clients 1
length 400ms
lock lease=300ms timeout=50ms guard=off renew=off
network delay=1ms
at 0s lock c1 x
at 50ms crash n1 durable for 20ms
at 60ms crash n2 empty for 20ms
at 80ms hold c1>n3
at 90ms unlock c1
`

// The page opens where it should in every look, and all its controls work without an
// error.
func TestHTMLInBrowser(t *testing.T) {
	tests.NeedLong(t)
	t.Parallel()
	b := browser.Start(t)
	for name, r := range map[string]*sim.Result{
		"violated": traced(t, forgetful),
		"varied":   traced(t, varied),
		"joint":    traced(t, joint),
		"crowded":  traced(t, crowded()),
		"crashing": traced(t, crashing),
		"long":     sim.Run(faults.Generate(3, faults.Profile{}), nil, sim.WithTrace()),
	} {
		if name != "violated" && !tests.Long() {
			continue // each takes a second
		}
		// The conditions see what is inside the viewer.
		html := strings.Replace(page(t, r), "\nreturn {\n  run, begin,", "\nglobalThis.inside = code => eval(code);\nreturn {\n  run, begin,", 1)
		for _, look := range browser.Looks {
			b.Open(html, look)
			b.Shot(name + "-" + look.String())
			b.Fits()
			for _, condition := range slices.Concat(always, expected[name]) {
				b.Holds(inside(condition))
			}
			b.Eval(inside(try))
			b.Fits()
			assert.Must(t, !t.Failed(), "so it is in %s, %s", name, look)
		}
	}
}

func inside(code string) string { return fmt.Sprintf("inside(%q)", code) }

// always holds for every page when it opens, as conditions in its script.
var always = []string{
	"document.documentElement.dataset.theme === (matchMedia('(prefers-color-scheme: dark)').matches ? 'dark' : 'light')",
	"canvas.getBoundingClientRect().top < .4 * innerHeight",
	"part('about').querySelector('pre').textContent === run.plan && part('about').querySelector('details').open === innerWidth > 900",
	"shared.time >= (violated ? worst.at : last)",
	"part('story').childElementCount > 0 && part('state').childElementCount > 0",
	"Math.abs(view.from + slider.value / slider.max * (view.to - view.from) - shared.time) < 1e-3 * (view.to - view.from)",
	"document.querySelector('main').getBoundingClientRect().right > .97 * innerWidth",
	"!outages.some(o => bars.some(b => b.key && b.lane === nodeLane(o.node) && b.from < o.until && b.until > o.from))",
	"hits.filter(h => h.fault).every(h => h.text === h.fault.text || (choose(h.entry), part('event').textContent.includes(h.fault.text)))",
}

// violated holds for the page of a run that breaks mutual exclusion.
var violated = []string{
	"messages.some(m => m.state === 'stuck') && part('legend').textContent.includes('held back forever')",
	"part('event').textContent.includes('Mutual exclusion is broken. c1 and c2 both hold')",
	"part('state').textContent.startsWith('c1 and c2 hold x')",
	"stateAt(0)[0].text === 'nobody holds anything' && stateAt(end)[0].text === 'c1 and c2 hold x'",
	"conflict.map(b => clientName(b.clients[0])).join() === 'c1,c2'",
	"conflict.every(b => x(b.from) > gutter && x(b.from) < width - 10)",
	"conflict.every(b => { const [, top, , h] = placeOfBar(b); return top >= lanesTop && top + h <= lanesBottom(); })",
	"canvas.getBoundingClientRect().top + lineOf(conflict[1].lane) < innerHeight",
	"['c1 is granted x', 'its key is on n1', 'c2 is granted x', 'crash n3 empty for 10ms', 'mutual exclusion is broken'].every(w => part('story').textContent.includes(w))",
	"(shared.fit(), violations.length > 0 && violations.every(v => Math.abs(x(v.at) - overviewX(v.at)) < .01))",
}

var expected = map[string][]string{
	"violated": violated,
	"crowded":  violated,
	"crashing": {
		"bars.filter(b => b.key && b.lane === nodeLane(0)).map(b => Math.round(b.from / 1e6) + '-' + Math.round(b.until / 1e6)).join().startsWith('3-50,70-')",
		"bars.filter(b => b.key && b.lane === nodeLane(1)).map(b => Math.round(b.from / 1e6) + '-' + Math.round(b.until / 1e6)).join().startsWith('3-60,4')",
		"['read', 'invariant', 'forever'].every(sign => !part('legend').textContent.includes(sign))",
	},
	"varied": {
		"lanes[0].rows.map(r => r.name).join() === 'x,y,z'",
		"groups.some(g => g.map(b => b.name).join() === 'x,y' && g.every(b => textsOf(b)[0].startsWith('c1 holds x + y')))",
		"new Set(bars.filter(b => b.whole === 'x + y').map(b => placeOfBar(b)[1])).size === 2",
		"bars.filter(b => b.key && textsOf(b)[0] === \"c2+c3's key z (read)\").length === 3",
		"bars.some(b => b.lane === 3 && b.waits && b.name === 'y' && b.until > 200e6 && b.until < 210e6)",
		"bars.some(b => whatIs(b) === 'n1 knows that for y there wait c4, then c3')",
		"bars.every(b => b.clients.length > 0)",
		"unit - 4 >= 11",
	},
	"joint": {
		"groups.some(g => g.map(b => b.name).join() === 'far,x1' && new Set(g.map(b => b.lane)).size === 1)",
		"!lanes[nodeLane(3)].rows.some(r => r.name === 'far') && lanes[nodeLane(2)].rows.some(r => r.name === 'far')",
		"document.body.textContent.includes('The name far is on n1 to n3 only')",
	},
}

const try = `
for (const action of Object.values(actions)) { action(); draw(); }
for (const key of Object.keys(keys)) canvas.dispatchEvent(new KeyboardEvent('keydown', { key, bubbles: true }));
for (let i = 0; i < entries.length; i++) if (inWords(entries[i]).includes('undefined')) console.error('entry ' + i + ': ' + inWords(entries[i]));
for (const hit of hits) if (describe(hit).includes('undefined')) console.error(describe(hit));
for (let i = 0; i < 300; i++) showTip(i * 4, i * 2);
const before = view.to - view.from;
canvas.dispatchEvent(new WheelEvent('wheel', { deltaY: -120, cancelable: true }));
if (!(view.to - view.from < before)) console.error('the wheel does not zoom');
for (const fold of document.querySelectorAll('details')) fold.open = true;
for (const told of part('story').querySelectorAll('button')) told.click();
for (let i = 0; i < 3000; i += 100) { slider.value = i; slider.oninput(); draw(); }
which.value = 'all';
showTable(0);
byId('theme').click();
for (const wide of ['10px', '']) { canvas.style.width = wide; resize(); } // a window may be narrower than the names of the lanes
actions.violation();
draw();
`
