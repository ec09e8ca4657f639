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
)

//go:embed page/page.html
var pageHTML string

//go:embed page/page.css
var pageCSS string

var page = template.Must(template.New("page").Parse(pageHTML))

type picture struct {
	CSS         template.CSS
	When        string
	System      string
	Facts       []string
	Contestants []Entrant
	Choice, Why string
	Noise       string
	Choices     table
	Charts      []*chart
	Tables      []table
	Words       []word
}

// A cell is one of a table. Its class is "noisy", "chosen" or "".
type cell struct{ Text, Class string }

func (t table) Cells(row int) (cells []cell) {
	for i, text := range t.Rows[row] {
		c := cell{Text: unbroken(text)}
		if t.noisy[row] && strings.Contains(text, "±") {
			c = cell{c.Text + " too noisy", "noisy"}
		}
		if t.chosen > 0 && i == t.chosen {
			c.Class = "chosen"
		}
		cells = append(cells, c)
	}
	return cells
}

// WriteHTML writes the report as one page with charts, which needs no network and no
// script.
func (r *Report) WriteHTML(w io.Writer) error {
	p := picture{CSS: template.CSS(pageCSS), When: r.Begin.Format("2 January 2006"), System: r.System, Words: words}
	if len(r.Cells) > 0 {
		p.Facts = append(p.Facts, r.rounds(), r.how())
	}
	p.Contestants = r.Contestants
	p.Noise = unbroken(r.noise())
	if a := r.Advice; a != nil {
		p.Choice, p.Why, _ = strings.Cut(unbroken(a.Text), ", because ")
		p.Choices = a.table()
	}
	for _, rtt := range r.rtts() {
		for _, c := range []*chart{r.latencyChart(rtt), r.throughputChart(rtt), r.handoverChart(rtt), r.badChart(rtt)} {
			if c != nil {
				p.Charts = append(p.Charts, c)
			}
		}
	}
	p.Tables = r.tables()
	return page.Execute(w, p)
}

// A chart has curves, in the coordinates of its picture, or bars.
type chart struct {
	Title, Note  string
	XName        string
	W, H         float64
	Left, Right  float64
	TickX, TickY float64
	YTicks       []chartTick
	XTicks       []chartTick
	Curves       []chartCurve
	Ranges       bool // whether there are any
	Bars         []chartBar
	One          float64 // where 1 is on the scale of the bars, in percent
}

type chartTick struct {
	At   float64
	Text string
}

type chartCurve struct {
	Name   string
	Colour int
	Dashed bool
	Points string // "" if there is but one: then it has a label
	Dots   []chartDot
}

type chartDot struct {
	X, Y      float64
	Low, High float64 // of the rounds
	Tip       string
	Label     string
	LabelX    float64
	Anchor    string
}

type chartBar struct {
	Name, Text, Tip string
	Colour          int
	Width           float64 // in percent
	Noise           bool
}

// A series is what a curve is drawn from: for each x, by its place, the values of the
// rounds, whose median is drawn, or none.
type series struct {
	name   string
	colour int
	dashed bool
	values [][]float64
}

const colours = 6

// curves draws series over labels that stand at equal distances. Values are written by
// text. The scale is from 0, or logarithmic where it would squeeze half of them into a
// tenth of it.
func curves(title, note, xName string, labels []string, all []series, text func(float64) string) *chart {
	c := &chart{Title: title, Note: note, XName: xName, W: 420, H: 270, Left: 66, Right: 414}
	top, bottom := 12.0, 226.0
	c.TickX, c.TickY = c.Left-8, bottom+20
	var values []float64
	for _, s := range all {
		for _, rounds := range s.values {
			if v := median(rounds); v > 0 {
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
		curve := chartCurve{Name: s.name, Colour: s.colour % colours, Dashed: s.dashed}
		var points []string
		for i, rounds := range s.values {
			v := median(rounds)
			if !(v > 0) {
				continue
			}
			inside := func(v float64) float64 { return round(min(max(height(v), top-8), bottom)) }
			x, y := place(i), round(height(v))
			points = append(points, fmt.Sprintf("%g,%g", x, y))
			tip := fmt.Sprintf("%s, %s %s: %s", s.name, xName, labels[i], text(v))
			if len(rounds) > 1 {
				tip += fmt.Sprintf(" ±%.0f%%", 100*spread(rounds))
			}
			dot := chartDot{X: x, Y: y, Low: inside(slices.Min(rounds)), High: inside(slices.Max(rounds)), Tip: tip}
			c.Ranges = c.Ranges || dot.High < dot.Low
			if dot.LabelX, dot.Anchor = x+9, "start"; x > (c.Left+c.Right)/2 {
				dot.LabelX, dot.Anchor = x-9, "end"
			}
			curve.Dots = append(curve.Dots, dot)
		}
		switch len(points) {
		case 0:
			continue
		case 1: // there is no curve, and what the dot is, it says
			curve.Dots[0].Label = s.name
		default:
			curve.Points = strings.Join(points, " ")
		}
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

type row struct {
	name, text, tip string
	colour          int
	value           float64
	noise           bool
}

// longestBar is the ratio beyond which a bar does not grow: a hung node can make a ratio
// of thousands, and all other bars would vanish next to it.
const longestBar = 20

func bars(title, note string, rows []row) *chart {
	if len(rows) == 0 {
		return nil
	}
	c := &chart{Title: title, Note: note}
	most := 1.0
	for _, r := range rows {
		most = max(most, min(r.value, longestBar))
	}
	c.One = round(100 / most)
	for _, r := range rows {
		if r.value > longestBar {
			r.text = "… " + r.text
		}
		if r.noise {
			r.text += ", noise"
		}
		c.Bars = append(c.Bars, chartBar{Name: r.name, Text: r.text, Tip: r.tip, Colour: r.colour % colours,
			Noise: r.noise,
			Width: round(100 * min(r.value, longestBar) / most)})
	}
	return c
}

func (r *Report) behind(rtt time.Duration) string {
	if rtt == 0 {
		return ""
	}
	return fmt.Sprintf(", links of %v", rtt)
}

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

// values returns what the rounds measured of a metric that has a median.
func (r *Report) values(workload, which, contestant string, nodes int, rtt time.Duration, metric string) []float64 {
	if c := r.find(workload, which, contestant, nodes, rtt); c != nil {
		if _, ok := c.Median[metric]; ok {
			return c.values(metric)
		}
	}
	return nil
}

func (r *Report) latencyChart(rtt time.Duration) *chart {
	nodes := r.numbersOf("latency", rtt)
	var all []series
	var labels []string
	for _, n := range nodes {
		labels = append(labels, fmt.Sprint(n))
	}
	note := "a lock and its release, one caller, nobody else"
	few := ""
	for i, name := range r.names() {
		for _, q := range []string{"p50", "p99"} {
			s := series{name: name + " " + q, colour: i, dashed: q == "p99"}
			for _, n := range nodes {
				values := r.values("latency", "", name, n, rtt, "pair-"+q+"-ns")
				if len(values) == 0 {
					few = "; no p99 of fewer than 100 pairs"
				}
				s.values = append(s.values, values)
			}
			all = append(all, s)
		}
	}
	return curves("Latency by number of nodes"+r.behind(rtt), note+few, "nodes", labels, all, short)
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
				s.values = append(s.values, r.values("throughput", which, name, n, rtt, "locks/s"))
			}
			all = append(all, s)
		}
	}
	note := "locks a second, each caller with names of its own"
	if len(r.Contestants) > 1 {
		note += fmt.Sprintf(", %d nodes", nodes[0])
	}
	return curves("Throughput by number of callers"+r.behind(rtt), note, "callers", labels, all, digits)
}

// handoverChart compares how often a contended name changes its holder.
func (r *Report) handoverChart(rtt time.Duration) *chart {
	nodes := r.numbersOf("handover", rtt)
	if len(nodes) == 0 {
		return nil
	}
	n, most := nodes[len(nodes)-1], 0.0
	var rows []row
	for i, name := range r.names() {
		for _, which := range r.casesOf("handover", rtt, n) {
			values := r.values("handover", which, name, n, rtt, "changes/s")
			if len(values) == 0 {
				continue
			}
			label, v := which, median(values)
			if len(r.Contestants) > 1 {
				label = name + ", " + which
			}
			most = max(most, v)
			rows = append(rows, row{name: label, text: digits(v), colour: i, value: v,
				tip: fmt.Sprintf("%s: %s ±%.0f%%", label, digits(v), 100*spread(values))})
		}
	}
	for i := range rows {
		rows[i].value /= max(most, 1)
	}
	return bars(fmt.Sprintf("Hand-over, %d nodes%s", n, r.behind(rtt)),
		"changes of the holder a second, eight callers of one name; the line is the most", rows)
}

// badChart compares bad nodes with healthy ones.
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
	note := which + " of a pair, as a multiple of that with healthy nodes; the line is 1"
	if c := r.find("bad", "healthy", r.Contestants[0].Name, n, rtt); c != nil && c.noisy() {
		note += "; that with healthy nodes is too noisy: run longer"
	}
	if r.Servers != Given && slices.ContainsFunc(rows, func(r row) bool { return r.value < 1 && !r.noise }) {
		note += "; below 1: all servers share this machine, and bad ones leave it to the others"
	}
	return bars(fmt.Sprintf("Bad nodes of %d%s", n, r.behind(rtt)), note, rows)
}

// badRows returns a row for each case, or none if one of them lacks the metric.
func (r *Report) badRows(rtt time.Duration, n int, metric string) (rows []row) {
	for i, name := range r.names() {
		healthy := r.values("bad", "healthy", name, n, rtt, metric)
		for _, which := range r.casesOf("bad", rtt, n) {
			values := r.values("bad", which, name, n, rtt, metric)
			if c := r.find("bad", which, name, n, rtt); which == "healthy" || len(c.Median) == 0 {
				continue
			}
			if len(values) == 0 || len(healthy) == 0 {
				return nil
			}
			label := which
			if len(r.Contestants) > 1 {
				label = name + ", " + which
			}
			v, usual := median(values), median(healthy)
			tip := fmt.Sprintf("%s: %s ±%.0f%%, healthy %s ±%.0f%%", label, short(v), 100*spread(values), short(usual),
				100*spread(healthy))
			rows = append(rows, row{label, digits(v/usual) + " x", tip, i, v / usual, isNoise(values, healthy)})
		}
	}
	return rows
}
