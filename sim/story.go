package sim

import (
	"fmt"
	"strings"
	"time"

	"github.com/redquorum/redquorum/faults"
)

// Story tells in at most so many lines how a traced run came to its verdict: who
// believed to hold what, what went wrong, and what was violated.
func (r *Result) Story(lines int) []string {
	if r.Trace == nil {
		return nil
	}
	var story []string
	last := ""
	for _, e := range r.Trace.Entries {
		var text string
		switch e.Kind {
		case KindFault:
			text = e.Text + " (a fault)"
		case KindFaultEnd:
			text = e.Text + " is over"
		case KindBelief:
			text = fmt.Sprintf("%s is granted %s", procName('c', e.Client), e.Name)
			if e.Name == faults.Far {
				text += " (a name on " + r.Plan.FarWords() + " only)"
			}
			if e.Token != 0 {
				text += fmt.Sprintf(", token %d", e.Token)
			}
		case KindBeliefEnd:
			text = fmt.Sprintf("%s no longer holds %s", procName('c', e.Client), e.Name)
		case KindAccess:
			text = fmt.Sprintf("%s %s %s", procName('c', e.Client), e.Text, e.Name)
		case KindCalm:
			text = e.Text
		case KindViolation:
			text = "VIOLATED " + e.Text
		default:
			continue
		}
		if text == last {
			continue
		}
		last = text
		story = append(story, fmt.Sprintf("%10s ms  %s", FormatTime(e.At), text))
	}
	if over := len(story) - lines; over > 0 {
		story = story[over:]
		story[0] = strings.Repeat(" ", 15) + "..."
	}
	return story
}

// Years says a virtual time in words.
func Years(d time.Duration) string {
	switch {
	case d < 2*time.Hour:
		return d.Round(time.Second).String()
	case d < 72*time.Hour:
		return fmt.Sprintf("%.1f hours", d.Hours())
	case d < 365*24*time.Hour:
		return fmt.Sprintf("%.1f days", d.Hours()/24)
	}
	return fmt.Sprintf("%.2f years", d.Hours()/24/365)
}
