package sim_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redquorum/redquorum/faults"
	"github.com/redquorum/redquorum/internal/assert"
	"github.com/redquorum/redquorum/internal/tests"
	"github.com/redquorum/redquorum/sim"
)

func TestQuiet(t *testing.T) {
	for seed := range uint64(tests.Times(10, 50)) {
		p := faults.New(5, 3)
		p.Seed = seed
		r := sim.Run(p, nil)
		if r.Verdict != sim.Sound || r.Grants < 20 {
			t.Errorf("seed %d: %s, %d grants: %v", seed, r.Verdict, r.Grants, r.Violations)
			r = sim.Run(p, nil, sim.WithTrace())
			r.Trace.WriteText(os.Stdout, p)
			break
		}
		if seed == 0 {
			t.Logf("%d events, %d grants, %v", r.Events, r.Grants, r.Virtual)
		}
	}
}

func explored(t *testing.T, c sim.Campaign) *sim.Report {
	t.Helper()
	c.Jobs, c.Bugs = runtime.GOMAXPROCS(0), 10
	r := sim.Explore(t.Context(), c)
	for _, f := range r.Found {
		t.Errorf("seed %d: %s %s: %s", f.Seed, f.Verdict, f.Invariant, f.What)
	}
	t.Logf("%d seeds, %d events, %d grants, %d outside", r.Seeds, r.Events, r.Grants, r.Outside)
	return r
}

// Every run of a campaign is sound, or has left what a lock with a lease can stand, and
// the campaign reaches every mark. SEEDS makes it longer.
func TestSeeds(t *testing.T) {
	c := sim.Campaign{To: uint64(tests.Times(99, 499))}
	if n, err := strconv.ParseUint(os.Getenv("SEEDS"), 10, 64); err == nil && n > 0 {
		c.To = n - 1
	}
	missed := explored(t, c).Missed()
	assert.That(t, len(missed) == 0 || c.To < 1999, "never reached: %v", missed)
}

// Servers lack disk, memory or processor, and connections break.
func TestSeedsWithMachines(t *testing.T) {
	tests.NeedSeconds(t)
	explored(t, sim.Campaign{To: uint64(tests.Times(15, 100)), Profile: faults.Profile{Machines: true}})
}

// Each node is a primary with replicas, with failovers of all kinds.
func TestReplicasSeeds(t *testing.T) {
	tests.NeedSeconds(t)
	explored(t, sim.Campaign{To: uint64(tests.Times(25, 200)), Profile: faults.Profile{Replicas: true}})
}

func TestProgramLocksOften(t *testing.T) {
	r := sim.Run(faults.New(3, 1), func(c *sim.Client) error {
		for range 200 {
			lease, err := c.Locker().Lock(c.Context(), "x")
			if err != nil {
				return err
			}
			if err := lease.Unlock(c.Context()); err != nil {
				return err
			}
		}
		return nil
	})
	if sound(t, r); r.Grants < 200 {
		t.Errorf("%d grants", r.Grants)
	}
}

// Holds are as long as planned: expiring ones about a lease, and those with a late write
// up to two leases longer.
func TestHoldsAreAsPlanned(t *testing.T) {
	for _, c := range []struct{ expiring, late int64 }{{0, 0}, {50, 0}, {100, 0}, {0, 100}} {
		p := faults.New(3, 1)
		p.Length, p.Work.Expiring, p.Work.Late = time.Minute, faults.Percent(c.expiring), faults.Percent(c.late)
		p.Work.Hold = faults.Range{Min: 10 * time.Millisecond, Max: 20 * time.Millisecond}
		var began time.Duration
		short, expiring, others := 0, 0, 0
		for _, e := range sim.Run(p, nil, sim.WithTrace()).Trace.Entries {
			held := e.At - began
			if e.Kind == sim.KindCalm {
				break
			}
			switch {
			case e.Kind == sim.KindBelief:
				began = e.At
			case e.Kind != sim.KindBeliefEnd:
			case held < 50*time.Millisecond:
				short++
			case held > 850*time.Millisecond && held < 1150*time.Millisecond:
				expiring++
			default:
				others++
			}
		}
		if c.late == 0 && ((short > 0) != (c.expiring < 100) || (expiring > 0) != (c.expiring > 0) || others > 0) || c.late > 0 && others < short {
			t.Errorf("%+v: %d holds are short, %d about as long as the lease, %d neither", c, short, expiring, others)
		}
	}
}

// evidence returns a page.
func evidence(t *testing.T, name string) string {
	t.Helper()
	content := assert.Got(os.ReadFile("../docs/evidence/" + name))(t)
	return string(content)
}

// The plans, tests, rules and mutants that two pages name exist, and one page names each
// saved plan.
func TestTrackRecord(t *testing.T) {
	page := evidence(t, "track-record.md")
	for _, link := range regexp.MustCompile(`\[([^]]+)\]\(([^)#]+)[^)]*\)`).FindAllStringSubmatch(page+evidence(t, "threats.md"), -1) {
		name, want := link[1], ""
		switch {
		case strings.HasPrefix(name, "Test"):
			want = "func " + name + "("
		case strings.HasPrefix(name, "M"):
			want = `{ID: "` + name + `"`
		case strings.HasPrefix(name, `"`): // a rule, or its beginning
			want = strings.Trim(name, `…"`)
		}
		text, err := os.ReadFile(filepath.Join("../docs/evidence", link[2]))
		assert.That(t, err == nil && strings.Contains(string(text), want), "%s is not in %s (%v)", name, link[2], err)
	}
	plans, err := filepath.Glob("testdata/bugs/*.plan")
	assert.Must(t, err == nil && len(plans) != 0, "no plans: %v", err)
	for _, plan := range plans {
		assert.That(t, strings.Contains(page, "(../../sim/"+filepath.ToSlash(plan)+")"), "the page does not name %s", plan)
	}
}

func TestTrackRecordCounts(t *testing.T) {
	page := evidence(t, "track-record.md")
	fixed := regexp.MustCompile("^\\| 20\\d\\d-\\d\\d-\\d\\d `[0-9a-f]{7,}` \\| [^|]+ \\| ([^|]+) \\| [^|]+ \\|\n$")
	_, counts, _ := strings.Cut(page, "\n| |")
	header, _, _ := strings.Cut(counts, " |\n")
	finders := strings.Split(strings.TrimSpace(header), " | ")
	all := map[string]int{} // rows by finder
	line := func(title string, rows map[string]int) {
		t.Helper()
		text := "| " + title + " |"
		for _, finder := range finders {
			text += fmt.Sprintf(" %d |", rows[finder])
		}
		assert.That(t, strings.Contains(page, "\n"+text+"\n"), "the page lacks the line\n%s", text)
	}
	for _, section := range strings.Split(page, "\n## ") {
		title, text, _ := strings.Cut(section, "\n")
		_, table, _ := strings.Cut(text, "\n|---|---|---|---|\n")
		rows := map[string]int{}
		for row := range strings.Lines(table) {
			if !strings.HasPrefix(row, "|") {
				continue
			}
			m := fixed.FindStringSubmatch(row)
			if m == nil || !slices.Contains(finders, m[1]) {
				t.Errorf("this is no row: %s", row)
				continue
			}
			rows[m[1]]++
			rows["all"]++
		}
		for finder, n := range rows {
			all[finder] += n
		}
		if len(rows) > 0 {
			line(title, rows)
		}
	}
	line("all", all)
	tests.Says(t, page, fmt.Sprintf(" Of %d rows, ", all["all"]))
}
