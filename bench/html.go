package bench

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"math"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

//go:embed page/page.html
var pageHTML string

//go:embed page/page.css
var pageCSS string

var page = template.Must(template.New("page").Parse(pageHTML))

// A picture is what the page shows.
type picture struct {
	CSS         template.CSS
	When        string
	System      string
	Facts       []string
	Contestants []Entrant
	Advice      string
	Choices     pictureTable
	Charts      []*chart
	Tables      []pictureTable
	Model       []string
	Words       []word
}

type pictureTable struct {
	Title string
	Head  []string
	Rows  []pictureRow
}

type pictureRow struct {
	Cells []string
	Note  string
}

func (t table) picture() pictureTable {
	p := pictureTable{Title: t.title, Head: t.head}
	for i, row := range t.rows {
		p.Rows = append(p.Rows, pictureRow{row, t.notes[i]})
	}
	return p
}

// WriteHTML writes the report as one page with charts, which needs nothing else:
// no network, no script.
func (r *Report) WriteHTML(w io.Writer) error {
	p := picture{CSS: template.CSS(pageCSS), When: r.Begin.Format("2 January 2006"), System: r.System, Words: words}
	if len(r.Cells) > 0 {
		p.Facts = append(p.Facts, r.rounds(), r.how())
	}
	for _, l := range r.Links {
		p.Facts = append(p.Facts, fmt.Sprintf("On links of %v a PING took %s", l.RTT, short(float64(l.Measured))))
	}
	p.Contestants = r.Contestants
	if r.Advice != nil {
		p.Advice, p.Choices = unbroken(r.Advice.Text), r.Advice.table().picture()
	}
	for _, rtt := range r.rtts() {
		for _, c := range []*chart{r.latencyChart(rtt), r.throughputChart(rtt), r.badChart(rtt), r.ratioChart(rtt)} {
			if c != nil {
				p.Charts = append(p.Charts, c)
			}
		}
	}
	for _, t := range r.tables() {
		p.Tables = append(p.Tables, t.picture())
	}
	if r.Model != nil {
		p.Charts = append(p.Charts, r.Model.charts()...)
		for _, t := range r.Model.tables() {
			p.Tables = append(p.Tables, t.picture())
		}
		p.Model = r.Model.Distributions
	}
	return page.Execute(w, p)
}

// A chart has curves or bars, in the coordinates of its picture.
type chart struct {
	Title, Note  string
	XName        string
	W, H         float64
	Left, Right  float64
	TickX, TickY float64
	YTicks       []chartTick
	XTicks       []chartTick
	Curves       []chartCurve
	Bars         []chartBar
	One          float64 // where 1 is, of ratios; 0 is nowhere
}

type chartTick struct {
	At   float64
	Text string
}

type chartCurve struct {
	Name   string
	Colour int
	Dashed bool
	Points string
	Dots   []chartDot
}

type chartDot struct {
	X, Y float64
	Tip  string
}

type chartBar struct {
	Name, Text, Tip          string
	Colour                   int
	X, Y, Middle, Width, End float64
	Height                   float64
}

// A series is what a curve is drawn from: a value for each x, by its place, or
// NaN.
type series struct {
	name   string
	colour int
	dashed bool
	values []float64
}

// colours is how many there are.
const colours = 6

// curves draws series over labels that stand at equal distances. Values are
// written by text. The scale is from 0, or logarithmic where it would squeeze
// half of them into a tenth of it.
func curves(title, note, xName string, labels []string, all []series, text func(float64) string) *chart {
	c := &chart{Title: title, Note: note, XName: xName, W: 480, H: 270, Left: 64, Right: 468}
	top, bottom := 12.0, 226.0
	c.TickX, c.TickY = c.Left-8, bottom+18
	var values []float64
	for _, s := range all {
		for _, v := range s.values {
			if v > 0 {
				values = append(values, v)
			}
		}
	}
	if len(values) == 0 {
		return nil
	}
	least, most := slices.Min(values), slices.Max(values)
	logarithmic := most > 10*median(values)
	var ticks []float64
	height := func(v float64) float64 { return bottom - (bottom-top)*v/most }
	if logarithmic {
		low, high := math.Floor(math.Log10(least)), math.Ceil(math.Log10(most))
		for e := low; e <= high; e++ {
			ticks = append(ticks, math.Pow(10, e))
		}
		height = func(v float64) float64 { return bottom - (bottom-top)*(math.Log10(v)-low)/max(high-low, 1) }
		c.Note += "; each line is ten times the one below"
	} else {
		step := niceStep(most / 4)
		most = step * math.Ceil(most/step)
		for v := 0.0; v <= most*1.0001; v += step {
			ticks = append(ticks, v)
		}
	}
	for _, v := range ticks {
		c.YTicks = append(c.YTicks, chartTick{round(height(v)), text(v)})
	}
	place := func(i int) float64 {
		return round(c.Left + (c.Right-c.Left)*(float64(i)+0.5)/float64(len(labels)))
	}
	for i, l := range labels {
		c.XTicks = append(c.XTicks, chartTick{place(i), l})
	}
	for _, s := range all {
		if !slices.ContainsFunc(s.values, func(v float64) bool { return v > 0 }) {
			continue
		}
		curve := chartCurve{Name: s.name, Colour: s.colour % colours, Dashed: s.dashed}
		var points []string
		for i, v := range s.values {
			if v > 0 {
				x, y := place(i), round(height(v))
				points = append(points, fmt.Sprintf("%g,%g", x, y))
				curve.Dots = append(curve.Dots, chartDot{x, y, fmt.Sprintf("%s, %s %s: %s", s.name, xName, labels[i], text(v))})
			}
		}
		curve.Points = strings.Join(points, " ")
		c.Curves = append(c.Curves, curve)
	}
	return c
}

func round(v float64) float64 { return math.Round(10*v) / 10 }

// niceStep returns 1, 2 or 5 of a power of ten, at least v.
func niceStep(v float64) float64 {
	unit := math.Pow(10, math.Floor(math.Log10(v)))
	for _, n := range []float64{1, 2, 5} {
		if n*unit >= v {
			return n * unit
		}
	}
	return 10 * unit
}

// A row is what a bar is drawn from.
type row struct {
	name, text, tip string
	colour          int
	value           float64
}

// longestBar is the ratio beyond which a bar grows no longer: a hung node can
// make one of thousands, beside which all others would vanish.
const longestBar = 20

// bars draws ratios.
func bars(title, note string, rows []row) *chart {
	if len(rows) == 0 {
		return nil
	}
	const tall, gap = 18.0, 7.0
	c := &chart{Title: title, Note: note, W: 480, H: (tall+gap)*float64(len(rows)) + gap}
	longest, most := 0, 1.0
	for _, r := range rows {
		longest, most = max(longest, utf8.RuneCountInString(r.name)), max(most, min(r.value, longestBar))
	}
	left := min(240, 7*float64(longest)+12)
	scale := (c.W - left - 110) / most
	c.Left, c.Right, c.One = left, c.W, round(left+scale)
	for i, r := range rows {
		y := gap + float64(i)*(tall+gap)
		width := max(1, round(min(r.value, longestBar)*scale))
		if r.value > longestBar {
			r.text = "… " + r.text
		}
		c.Bars = append(c.Bars, chartBar{Name: r.name, Text: r.text, Tip: r.tip, Colour: r.colour % colours,
			X: left, Y: y, Middle: y + tall/2, Width: width, End: left + width, Height: tall})
	}
	return c
}

func (r *Report) behind(rtt time.Duration) string {
	if rtt == 0 {
		return ""
	}
	return fmt.Sprintf(", links of %v", rtt)
}

// numbersOf returns the numbers of nodes for which a workload has cells.
func (r *Report) numbersOf(workload string, rtt time.Duration) (nodes []int) {
	for _, c := range r.Cells {
		if c.Workload == workload && c.RTT == rtt && len(c.Median) > 0 && !slices.Contains(nodes, c.Nodes) {
			nodes = append(nodes, c.Nodes)
		}
	}
	return nodes
}

func (r *Report) casesOf(workload string, rtt time.Duration, nodes int) (cases []string) {
	for _, c := range r.Cells {
		if c.Workload == workload && c.RTT == rtt && c.Nodes == nodes && !slices.Contains(cases, c.Case) {
			cases = append(cases, c.Case)
		}
	}
	return cases
}

// value returns a metric's median, or NaN.
func (r *Report) value(workload, which, contestant string, nodes int, rtt time.Duration, metric string) float64 {
	if c := r.find(workload, which, contestant, nodes, rtt); c != nil {
		if v, ok := c.Median[metric]; ok {
			return v
		}
	}
	return math.NaN()
}

func (r *Report) latencyChart(rtt time.Duration) *chart {
	nodes := r.numbersOf("latency", rtt)
	var all []series
	var labels []string
	for _, n := range nodes {
		labels = append(labels, fmt.Sprint(n))
	}
	for i, name := range r.names() {
		for _, q := range []string{"p50", "p99"} {
			s := series{name: name + " " + q, colour: i, dashed: q == "p99"}
			for _, n := range nodes {
				s.values = append(s.values, r.value("latency", "", name, n, rtt, "pair-"+q+"-ns"))
			}
			all = append(all, s)
		}
	}
	return curves("Latency by number of nodes"+r.behind(rtt), "a lock and its release, one caller, nobody else", "nodes", labels, all, axis)
}

func (r *Report) throughputChart(rtt time.Duration) *chart {
	nodes := r.numbersOf("throughput", rtt)
	if len(nodes) == 0 {
		return nil
	}
	// One contestant: a curve for each number of nodes; several: for the most.
	if len(r.Contestants) > 1 {
		nodes = nodes[len(nodes)-1:]
	}
	cases := r.casesOf("throughput", rtt, nodes[0])
	var labels []string
	for _, which := range cases {
		labels = append(labels, strings.TrimPrefix(which, "callers="))
	}
	var all []series
	for _, name := range r.names() {
		for _, n := range nodes {
			s := series{name: name, colour: len(all)}
			if len(r.Contestants) == 1 {
				s.name = fmt.Sprintf("N=%d", n)
			}
			for _, which := range cases {
				s.values = append(s.values, r.value("throughput", which, name, n, rtt, "locks/s"))
			}
			all = append(all, s)
		}
	}
	note := "locks a second, each caller with names of its own"
	if len(r.Contestants) > 1 {
		note += fmt.Sprintf(", %d nodes", nodes[0])
	}
	return curves("Throughput by number of callers"+r.behind(rtt), note, "callers", labels, all, count)
}

// badChart sets bad nodes beside healthy ones.
func (r *Report) badChart(rtt time.Duration) *chart {
	nodes := r.numbersOf("bad", rtt)
	if len(nodes) == 0 {
		return nil
	}
	n := nodes[len(nodes)-1]
	rows := r.badRows(rtt, n, "pair-p99-ns")
	which := "the p99"
	if len(rows) == 0 { // too few samples
		rows, which = r.badRows(rtt, n, "pair-p50-ns"), "the median"
	}
	return bars(fmt.Sprintf("Bad nodes of %d%s", n, r.behind(rtt)), which+" of a pair, as a multiple of that with healthy nodes; the line is 1", rows)
}

// badRows returns a row for each case, or none if one of them lacks the metric.
func (r *Report) badRows(rtt time.Duration, n int, metric string) (rows []row) {
	for i, name := range r.names() {
		healthy := r.value("bad", "healthy", name, n, rtt, metric)
		for _, which := range r.casesOf("bad", rtt, n) {
			v := r.value("bad", which, name, n, rtt, metric)
			if c := r.find("bad", which, name, n, rtt); which == "healthy" || len(c.Median) == 0 {
				continue
			}
			if !(v > 0) || !(healthy > 0) {
				return nil
			}
			label := which
			if len(r.Contestants) > 1 {
				label = name + ", " + which
			}
			rows = append(rows, row{label, digits(v/healthy) + " x", fmt.Sprintf("%s: %s, healthy %s", label, short(v), short(healthy)), i, v / healthy})
		}
	}
	return rows
}

// ratioChart sets the contestants beside the base, with the most nodes.
func (r *Report) ratioChart(rtt time.Duration) *chart {
	if r.Base == "" {
		return nil
	}
	var rows []row
	for i := range workloads {
		w := &workloads[i]
		nodes := r.numbersOf(w.name, rtt)
		if len(nodes) == 0 {
			continue
		}
		n := nodes[len(nodes)-1]
		for _, which := range r.casesOf(w.name, rtt, n) {
			base := r.find(w.name, which, r.Base, n, rtt)
			for j, name := range r.names() {
				c := r.find(w.name, which, name, n, rtt)
				if name == r.Base || c == nil || base == nil {
					continue
				}
				ratio, rounds := c.ratio(base, w.main)
				if !(ratio > 0) {
					continue
				}
				if !w.more {
					ratio = 1 / ratio
				}
				label := strings.TrimSpace(w.name + " " + which)
				if len(r.Contestants) > 2 {
					label = name + ": " + label
				}
				rows = append(rows, row{label, digits(ratio) + " x" + c.of(rounds), label + ", by " + w.main, j, ratio})
			}
		}
	}
	return bars("Times better than "+r.Base+r.behind(rtt), "throughput, or one by latency or CPU; at the line both are equal", rows)
}

func (m *Model) charts() (all []*chart) {
	for _, loss := range losses {
		var curvesOf []series
		var labels []string
		for i, t := range terrains {
			for _, q := range []string{"p50", "p99.9"} {
				s := series{name: t.name + " " + q, colour: i, dashed: q != "p50"}
				labels = nil
				for _, r := range m.Rows {
					if r.Links != t.name || r.Loss != float64(loss)/1e6 {
						continue
					}
					v := r.PairP50
					if q != "p50" {
						v = r.PairP999
					}
					labels = append(labels, fmt.Sprint(r.Nodes))
					s.values = append(s.values, float64(v))
				}
				curvesOf = append(curvesOf, s)
			}
		}
		c := curves(fmt.Sprintf("Model: latency by number of nodes, %s loss", percent(float64(loss)/1e6)), "a lock and its release, in virtual time", "nodes",
			labels, curvesOf, axis)
		if c != nil {
			all = append(all, c)
		}
	}
	return all
}

// axis writes a time on an axis, where it is a round number.
func axis(ns float64) string {
	for _, unit := range []struct {
		size float64
		name string
	}{{1e9, "s"}, {1e6, "ms"}, {1e3, "µs"}} {
		if ns >= unit.size {
			return fmt.Sprintf("%.3g %s", ns/unit.size, unit.name)
		}
	}
	return "0"
}

func count(v float64) string {
	switch {
	case v >= 1e6:
		return fmt.Sprintf("%.3g M", v/1e6)
	case v >= 1e4:
		return fmt.Sprintf("%.3g k", v/1e3)
	}
	return fmt.Sprintf("%.4g", v)
}
