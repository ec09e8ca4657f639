package sim

import (
	"slices"
)

// inspects calls Inspect for a name, and checks the report. It returns the verdict, or "" after an
// error.
func (c *Client) inspects(name string) string {
	w := c.w
	var through []*holder // that have the name now
	for _, h := range w.check.holders {
		if h.has(name) && h.believed() {
			through = append(through, h)
		}
	}
	i := &inspection{c: c, name: name}
	w.check.inspections = append(w.check.inspections, i)
	start := c.starts()
	report, err := c.locker.Inspect(c.ctx, name)
	w.check.inspections = without(w.check.inspections, slices.Index(w.check.inspections, i))
	c.bounded("Inspect", start, w.p.Lock.Timeout)
	i.tells(report, err, through)
	if err != nil {
		return ""
	}
	w.sometimes(Inspected)
	return string(report.Verdict)
}
