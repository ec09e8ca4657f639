package faults

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Check reports all that Parse would refuse.
func (p *Plan) Check() error {
	if p == nil {
		return errors.New("plan: there is none")
	}
	_, _, err := parse(p.String())
	if wrong := p.check(); err == nil && wrong != nil {
		err = wrong.err
	}
	if err != nil {
		return fmt.Errorf("plan: %w", err)
	}
	return nil
}

type wrong struct {
	settings []string
	event    int
	err      error
}

func (p *Plan) check() *wrong {
	w := func(settings, format string, args ...any) *wrong {
		return &wrong{settings: strings.Split(settings, ", "), err: fmt.Errorf(format, args...)}
	}
	switch l := p.Lock; {
	case p.Nodes < 1 || p.Nodes > MaxNodes:
		return w("nodes", "nodes is %d; want 1 to %d", p.Nodes, MaxNodes)
	case p.Clients < 1 || p.Clients > MaxClients:
		return w("clients", "clients is %d; want 1 to %d", p.Clients, MaxClients)
	case p.Length <= 0:
		return w("length", "length is %s; want more than 0", formatDuration(p.Length))
	case p.Work.Names < 1 || p.Work.Names > MaxNames:
		return w("work names", "work names is %d; want 1 to %d", p.Work.Names, MaxNames)
	case p.Work.Tasks < 1 || p.Work.Tasks > maxTasks:
		return w("work tasks", "work tasks is %d; want 1 to %d", p.Work.Tasks, maxTasks)
	case p.Work.Step < 0 || p.Work.Step > maxStep:
		return w("work step", "work step is %s; want 0 to %s", formatDuration(p.Work.Step), formatDuration(maxStep))
	case l.Lease <= 0 || l.MaxLease < l.Lease || l.MaxLease > MaxLease:
		return w("lock lease, lock maxlease",
			"lock lease is %s and maxlease %s; want 0 < lease <= maxlease, and at most %s",
			formatDuration(l.Lease), formatDuration(l.MaxLease), formatDuration(MaxLease))
	case l.Timeout <= 0 || l.Poll < time.Millisecond || l.Grace < 0 || l.MaxHold < 0 || l.MaxDown < 0:
		return w("lock timeout, lock poll, lock grace, lock maxhold, lock maxdown",
			"lock timeout, poll, grace, maxhold and maxdown are %v, %v, %v, %v and %v; want a timeout of more than 0, a poll of at least 1ms, and the others not negative", l.Timeout, l.Poll, l.Grace, l.MaxHold, l.MaxDown)
	case l.Client != Redquorum && l.Client != Plain:
		return w("lock client", "lock client: want %s or %s, have %q", Redquorum, Plain, l.Client)
	case l.Replicas > MaxNodes || p.Nodes%(1+l.Replicas) != 0:
		return w("lock replicas, nodes", "nodes is %d, and lock replicas %d; want a multiple of %d nodes: a primary and its replicas each", p.Nodes, l.Replicas, 1+l.Replicas)
	case l.Replicas > 0 && p.Work.Joint > 0:
		return w("lock replicas, work joint", "lock replicas is %d; work joint is for nodes that are one server",
			l.Replicas)
	case l.Need != 0 && (l.Need <= p.Sites()/2 || l.Need > p.Sites()):
		return w("lock need, nodes, lock replicas",
			"lock need is %d; want more than half of %d nodes, and at most all, or 0", l.Need, p.Sites())
	case p.Work.Read+p.Work.Write > Percent(100):
		return w("work read, work write", "work read and write are %s and %s; want at most 100%% together", p.Work.Read,
			p.Work.Write)
	case l.Client == Plain && (l.Need != 0 || l.MaxDown != 0 || p.Work.special()):
		return w("lock client", "a plain client has one kind of lock, and a majority, waits without a bound, and has no label, and nothing to hand over, break or inspect it")
	case l.Drift < 0 || l.Drift > Percent(40):
		return w("lock drift", "lock drift is %s; want 0%% to 40%%", l.Drift)
	case l.Client == Redquorum && l.Lease <= 2*l.allowance(l.Lease):
		return w("lock lease, lock drift", "lock lease is %s, and the allowance for drift of clocks takes %s of it; want more than twice as much",
			formatDuration(l.Lease), formatDuration(l.allowance(l.Lease)))
	case l.Client == Redquorum && p.Work.Short > 0 && l.Lease/10 <= 2*l.allowance(l.Lease/10):
		return w("lock lease, work short", "lock lease is %s, and the allowance for drift of clocks takes %s of a tenth of it; want more than twice as much",
			formatDuration(l.Lease), formatDuration(l.allowance(l.Lease/10)))
	}
	for i, e := range p.Events {
		if err := p.checkEvent(e); err != nil {
			return &wrong{event: i, err: fmt.Errorf("at %s: %w", e, err)}
		}
	}
	return nil
}

// allowance is what a lease of that length loses to the drift of clocks.
func (l *Lock) allowance(lease time.Duration) time.Duration {
	return time.Duration(float64(lease)*float64(l.Drift)/1e6) + 2*time.Millisecond
}

func (p *Plan) checkEvent(e Event) error {
	for _, s := range []struct {
		set    Set
		count  int
		letter byte
	}{{e.Links.Nodes, p.Nodes, 'n'}, {e.Procs.Nodes, p.Nodes, 'n'}, {e.Source, p.Nodes, 'n'},
		{e.Links.Clients, p.Clients, 'c'}, {e.Procs.Clients, p.Clients, 'c'}} {
		if s.set != All && s.set>>s.count != 0 {
			return fmt.Errorf("there is no %s", (s.set >> s.count << s.count).text(s.letter))
		}
	}
	return cmp.Or(checkWho(e), p.checkReplicas(e), p.checkWhen(e), checkHow(e), p.checkNames(e))
}

func (p *Plan) checkReplicas(e Event) error {
	if p.Lock.Replicas == 0 {
		if e.Verb == Sever || e.Verb == Lead {
			return fmt.Errorf("each node is one server: want lock replicas=2, say")
		}
		return nil
	}
	switch e.Verb {
	case View, Alias, DoBreak:
		return fmt.Errorf("it is about nodes that are one server, and lock replicas is %d", p.Lock.Replicas)
	case Crash:
		if e.Mode == Replica {
			return fmt.Errorf("no server takes its place by itself: want durable, second or empty, and promote another one")
		}
	case Demote, Sever:
		for n := range p.Nodes {
			if e.Procs.Nodes.Has(n) && (e.Source == 0 || e.Source&^p.Members(n) != 0) {
				return fmt.Errorf("want another server of the same node after the target: n%d is with %s", n+1,
					(p.Members(n) &^ Of(n)).text('n'))
			}
		}
		if e.Source&e.Procs.Nodes != 0 {
			return fmt.Errorf("a server does not follow itself, nor is it severed from itself")
		}
	case Lead:
		if e.Source == 0 || e.Source&(e.Source-1) != 0 {
			return fmt.Errorf("want one server that they are led to")
		}
	}
	return nil
}

func checkWho(e Event) error {
	about := groups[e.Verb]
	switch {
	case (e.Verb == HalfOpen || e.Verb == Reset) && e.Links.Way != Both:
		return fmt.Errorf("a connection has both ways: want -")
	case about == onNodes && e.Procs.Nodes == 0:
		return fmt.Errorf("want nodes")
	case (about == onClients || about == isStep) && e.Procs.Clients == 0:
		return fmt.Errorf("want clients")
	case e.Verb == View && e.Procs.Nodes == 0:
		return fmt.Errorf("want nodes")
	case about == onProcs && (e.Procs.Clients == 0) == (e.Procs.Nodes == 0):
		return fmt.Errorf("want nodes or clients")
	case e.Verb == Demote && e.Source&(e.Source-1) != 0:
		return fmt.Errorf("want one node that it copies")
	case e.Verb == Demote && e.Source&e.Procs.Nodes != 0:
		return fmt.Errorf("no node is a replica of itself")
	}
	return nil
}

func (p *Plan) checkWhen(e Event) error {
	switch {
	case (e.Verb == View || e.Verb == Clone || e.Verb == Alias) && e.At != 0:
		return fmt.Errorf("it is so from the beginning: its time must be 0s")
	case e.At < 0:
		return fmt.Errorf("its time is negative")
	case e.At > p.Length:
		return fmt.Errorf("the part with faults is over by then: length is %s", formatDuration(p.Length))
	case e.For < 0:
		return fmt.Errorf("it lasts a negative time")
	case (e.Verb == Pause || e.Verb == Suspend || e.Verb == Block || e.Verb == Strobe) && e.For == 0:
		return fmt.Errorf("want \"for\" and a time")
	case e.For > 0 && !lasts[e.Verb]:
		return fmt.Errorf("it does not last, and cannot have \"for\"")
	case e.Verb == Strobe && e.Every <= 0:
		return fmt.Errorf("want a period of more than 0")
	}
	return nil
}

func checkHow(e Event) error {
	switch {
	case e.Verb == Rate && (e.Ratio > Percent(50) || e.Ratio < -Percent(50)):
		return fmt.Errorf("a clock's rate may be off by 50%% at most")
	case (e.Verb == Loss || e.Verb == Duplicate || e.Verb == Reorder) && (e.Ratio < 0 || e.Ratio > Percent(100)):
		return fmt.Errorf("want 0%% to 100%%")
	case e.Verb == Starve && (e.Ratio < Percent(1) || e.Ratio >= Percent(100)):
		return fmt.Errorf("want 1%% or more, and less than 100%%")
	case e.Verb == DoExtend && e.Offset <= 0:
		return fmt.Errorf("want a lease of more than 0")
	}
	return nil
}

func (p *Plan) checkNames(e Event) error {
	switch {
	case strings.ContainsAny(e.Name, " \t\n#"), e.Name == "for", e.Name == Far:
		return fmt.Errorf("%q cannot be a name here", e.Name)
	case slices.Contains(strings.Split(e.Name, ",")[1:], ""), strings.HasPrefix(e.Name, ","):
		return fmt.Errorf("one of the names in %q is empty", e.Name)
	case e.As != "" && strings.Contains(e.Name, ","):
		return fmt.Errorf("several names are not for %s", e.As)
	case (e.Verb == DoBreak || e.Verb == DoInspect) && strings.Contains(e.Name, ","):
		return fmt.Errorf("want one name, have %q", e.Name)
	case e.Verb == View && p.Work.Joint > 0:
		return fmt.Errorf("work joint is for clients that list the same nodes: %s is on the first of them", Far)
	case p.Lock.Client == Plain && (e.As != "" || forLibrary[e.Verb]):
		return fmt.Errorf("a plain client has one kind of lock, and nothing to hand over, break or inspect it")
	}
	return nil
}

var forLibrary = map[Verb]bool{DoDowngrade: true, DoDetach: true, DoHandle: true, DoResume: true, DoBreak: true,
	DoInspect: true, DoClose: true}

// lasts are the verbs that may have a "for".
var lasts = map[Verb]bool{
	Cut: true, Delay: true, Loss: true, Duplicate: true, Reorder: true, Hold: true, Deafen: true, HalfOpen: true,
	Crash: true, Demote: true, Slow: true,
	Block: true, Full: true, Forge: true, Sever: true, Starve: true, Pause: true, Suspend: true, Strobe: true,
	Kill: true, Step: true,
}
