package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/redquorum/redquorum/faults"
	"github.com/redquorum/redquorum/internal/assert"
	"github.com/redquorum/redquorum/internal/browser"
	"github.com/redquorum/redquorum/internal/tests"
	"github.com/redquorum/redquorum/sim"
	"github.com/redquorum/redquorum/sim/playground/play"
)

// The playground works from a file in a browser, in every look, and agrees with Go.
func TestPlayground(t *testing.T) {
	tests.NeedLong(t)
	t.Parallel()
	b := browser.Start(t)
	dir := t.TempDir()
	assert.Succeed(t, build(dir))
	const most = 2_100_000
	n := onTheWire(t, dir)
	assert.That(t, n <= most, "%d bytes over the wire, more than %d", n, most)
	index := filepath.Join(dir, "index.html")
	for i, look := range browser.Looks {
		b.OpenFile(index, look)
		b.Holds("viewers.length === 2", "viewers[0].run.verdict === 'unsafe'") // without the simulator
		b.Eval(until("!byId('find').disabled"))
		b.Fits()
		b.Shot("playground-" + look.String())
		if i == 0 {
			chaptersAgree(t, b)
			for _, use := range append(uses, shows) {
				b.Eval("(async () => {" + helpers + use + "})()")
			}
		}
		for c := range play.Chapters() {
			if i > 0 && !tests.Long() {
				break
			}
			b.Eval(fmt.Sprintf("byId('chapters').children[%d].firstChild.click()", c))
			b.Eval(until("plan.value === data.chapters[%d].plan && shownPlan === asText()", c))
			b.Fits()
			b.Shot(fmt.Sprintf("chapter%d-%s", c+1, look))
		}
	}
	plan := "redquorum plan 1\nnodes 3\nclients 1\nat 5ms lock c1 x\n"
	b.OpenFile(index+"#"+fragment(t, b, plan), browser.Looks[0])
	b.Eval(until("viewers.length === 2 && viewers[0].run.nodes === 3"))
}

func until(condition string, args ...any) string {
	return fmt.Sprintf(`(async () => {
	for (let i = 0; i < 2000; i++) {
		if (%s) return;
		await new Promise(done => setTimeout(done, 10));
	}
	throw new Error('it does not come to that; status: ' + byId('status').textContent);
})()`, fmt.Sprintf(condition, args...))
}

func fragment(t *testing.T, b *browser.Browser, plan string) (text string) {
	t.Helper()
	quoted, err := json.Marshal(plan)
	if err == nil {
		err = json.Unmarshal(b.Eval(fmt.Sprintf("new URLSearchParams({ left: 'plain', right: 'no guard', plan: %s }).toString()", quoted)), &text)
	}
	assert.Succeed(t, err)
	return text
}

// chaptersAgree compares the page's runs with those of this program.
func chaptersAgree(t *testing.T, b *browser.Browser) {
	t.Helper()
	for _, c := range play.Chapters() {
		for _, lock := range []string{c.Left, "redquorum"} {
			v, _ := sim.FindVariant(lock)
			want := sim.Run(v.Of(assert.Got(faults.Parse(c.Plan))(t)), nil, sim.WithTrace())
			plan, _ := json.Marshal(c.Plan)
			var got struct {
				Verdict sim.Verdict
				Entries []sim.Entry
			}
			assert.Succeed(t, json.Unmarshal(b.Eval(fmt.Sprintf("ask('run', %s, %q)", plan, lock)), &got))
			if got.Verdict != want.Verdict || len(got.Entries) != len(want.Trace.Entries) {
				t.Errorf("%s with %s: %s with %d entries in the page, %s with %d in Go", c.Title, lock,
					got.Verdict, len(got.Entries), want.Verdict, len(want.Trace.Entries))
			}
		}
	}
}

// helpers are functions for uses.
const helpers = `
const must = (so, what) => { if (!so) throw new Error('not so: ' + what + '; status: ' + byId('status').textContent); };
const until = async (condition, what) => {
	for (let i = 0; i < 3000 && !condition(); i++) await new Promise(done => setTimeout(done, 10));
	must(condition(), what);
};
const settled = () => until(() => !running && !again && shownPlan === asText(), 'settled');
const key = (key, target, shiftKey = false) => target.dispatchEvent(new KeyboardEvent('keydown', { key, shiftKey, bubbles: true }));
byId('chapters').children[0].firstChild.click();
await settled();
const runs = () => viewers.map(v => v.run);
const [left, right] = [0, 1].map(i => () => viewers[i].run.verdict);
must(left() === 'unsafe' && right() === 'sound', 'the verdicts of the first chapter');
`

// shows holds when a chapter is opened.
const shows = `
for (let i = 0; i < data.chapters.length; i++) {
	byId('chapters').children[i].firstChild.click();
	await settled();
	const { from, to } = shared.view, said = slider.getAttribute('aria-valuetext');
	must(shared.time > from && shared.time < to, 'the slider is in view');
	if (left() === 'unsafe') must(said.includes(data.chapters[i].scenario ? 'c1 and c2 hold x' : 'c1 holds x'), said); // where c2 could
	else must(runs().every(r => r.entries.some(e => e.kind === 'belief' && e.client === 1 && e.at < to)), 'c2 gets the lock in view');
}
`

// uses is done after the first chapter was opened.
var uses = []string{
	// A changed text is run, and a wrong one says so.
	`plan.value = plan.value.replace('crash n3 empty', 'crash n3 durable');
	plan.dispatchEvent(new Event('input'));
	await settled();
	must(left() === 'sound', 'a node that forgets nothing does no harm');
	plan.value += 'at 5ms explode n1\n';
	plan.dispatchEvent(new Event('input'));
	await until(() => byId('status').classList.contains('wrong'), 'an error');
	must(byId('status').textContent.includes('explode') && left() === 'sound', 'the error names the word');`,
	// A node that forgets too early does no harm: its fault is dragged to the beginning,
	// and moved by keyboard.
	`const crash = [...strip.children].find(e => e.textContent.startsWith('crash'));
	const box = crash.getBoundingClientRect(), at = x => ({ clientX: x, clientY: box.top + 5, pointerId: 1, bubbles: true });
	crash.setPointerCapture = () => {};
	crash.dispatchEvent(new PointerEvent('pointerdown', at(box.left + 3)));
	crash.dispatchEvent(new PointerEvent('pointermove', at(box.left + 3 - .6 * strip.clientWidth)));
	crash.dispatchEvent(new PointerEvent('pointerup', at(box.left + 3 - .6 * strip.clientWidth)));
	await settled();
	must(plan.value.includes('at 0ms crash') && left() === 'sound', 'the crash is early: ' + plan.value);
	const before = plan.value;
	key('ArrowRight', crash);
	await settled();
	must(plan.value !== before && crash.ariaLabel.includes('crash n3 empty at '), 'the arrow moves it');`,
	// The slider moves both sides, and says what it shows.
	`const texts = new Set(), times = [];
	shared.seek(0);
	for (let i = 0; i < 60; i++) { key('ArrowRight', slider); texts.add(slider.getAttribute('aria-valuetext')); times.push(shared.time); }
	must(times.every((t, i) => i === 0 || t >= times[i - 1]) && times.at(-1) > 4e6, 'it goes on: ' + times);
	must([...texts].some(t => t.includes('textbook Redlock: c1 holds x') && t.includes('redquorum: c1 holds x')), [...texts].at(-1));
	key('v', slider);
	must(slider.getAttribute('aria-valuetext').includes('c1 and c2 hold x'), slider.getAttribute('aria-valuetext'));
	for (const k of Object.keys(keys)) key(k, slider);
	actions.fit();`,
	`sides[1].value = 'no guard';
	sides[1].onchange();
	await settled();
	must(right() === 'unsafe' && location.hash.includes('right=no+guard'), right() + ' ' + location.hash);
	sides[1].value = 'redquorum';`,
	`byId('find').click();
	await until(() => !finding, 'found');
	must(/^Seed \d+$/.test(byId('chapter-title').textContent), 'the text is about the seed');
	must(left() !== 'sound' && right() === 'sound', 'it breaks the left one alone: ' + left() + ' ' + right() + '\n' + plan.value);`,
}

// onTheWire is the size of the page as a server compresses it.
func onTheWire(t *testing.T, dir string) (sum int) {
	t.Helper()
	files, err := os.ReadDir(dir)
	assert.Succeed(t, err)
	for _, f := range files {
		data := assert.Got(os.ReadFile(filepath.Join(dir, f.Name())))(t)
		packed := assert.Got(pack(data))(t)
		sum += len(packed)
	}
	return sum
}
