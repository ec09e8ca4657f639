package faults

import "slices"

// A Server decides what the faults of a plan do to one server, and its owner carries out
// what Strike and Heal return. A server without faults is Server{Mode: Durable}.
type Server struct {
	Down    bool
	Mode    Mode // with what it comes back from a crash
	Demoted bool
	Slow    Range  // that each command takes
	Starved *Event // the latest that gives it a share of the processor; nil: it has all
	Stopped int    // how many faults stop it

	downBy, demotedBy, slowBy *Event
	lacks                     []*Event // of disk or memory
}

// Strike begins or ends a fault, and returns what the server does now: it crashes,
// restarts, is demoted or promoted, or does what the fault's verb says. It does nothing
// if another fault has replaced this one.
func (s *Server) Strike(e *Event, end bool) []Verb {
	switch e.Verb {
	case Crash:
		if end {
			if s.downBy != e {
				return nil
			}
			return s.restart()
		}
		s.Mode, s.downBy = e.Mode, e
		return s.crash()
	case Restart:
		return append(s.crash(), s.restart()...)
	case Demote:
		switch {
		case end && s.demotedBy != e, !end && s.Down:
			return nil
		case end:
			return s.promote()
		}
		s.Demoted, s.demotedBy = true, e
	case Promote:
		return s.promote()
	case Slow:
		switch {
		case !end:
			s.Slow, s.slowBy = e.Range, e
		case s.slowBy == e:
			s.Slow, s.slowBy = Range{}, nil
		default:
			return nil
		}
	case Full:
		if s.lacks = slices.DeleteFunc(s.lacks, func(o *Event) bool { return o == e }); !end {
			s.lacks = append(s.lacks, e)
		}
	case Starve:
		if !end {
			s.Starved = e
		} else if s.Starved == e {
			s.Starved = nil
		}
	case Pause, Suspend:
		if !end {
			s.Stopped++
		} else {
			s.Stopped = max(0, s.Stopped-1)
		}
	}
	return []Verb{e.Verb}
}

func (s *Server) crash() []Verb {
	if s.Down {
		return nil
	}
	s.Down, s.Demoted, s.demotedBy = true, false, nil
	return []Verb{Crash}
}

func (s *Server) restart() []Verb {
	s.Down, s.downBy = false, nil
	return []Verb{Restart}
}

func (s *Server) promote() []Verb {
	s.Demoted, s.demotedBy = false, nil
	return []Verb{Promote}
}

// Heal ends all faults of the server, and returns what it does now, as Strike does.
func (s *Server) Heal() (does []Verb) {
	if s.Down {
		does = s.restart()
	}
	if s.Lacks(Disk) || s.Lacks(Memory) {
		does = append(does, Full)
	}
	does = append(does, s.promote()...)
	*s = Server{Mode: s.Mode}
	return does
}

func (s *Server) Lacks(what Mode) bool {
	return slices.ContainsFunc(s.lacks, func(e *Event) bool { return e.Mode == what })
}

// A Process does for one client what a Server does for a server.
type Process struct {
	Dead    bool
	Stopped int // how many faults stop it

	killedBy *Event
}

// Strike begins or ends a fault, and returns what the client does now: it is killed,
// starts, stops or goes on. It is "" if nothing changes.
func (p *Process) Strike(e *Event, end bool) Verb {
	switch {
	case e.Verb == Kill && !end:
		p.killedBy = e
		if p.Dead {
			return ""
		}
		p.Dead, p.Stopped = true, 0
		return Kill
	case e.Verb == Kill && p.killedBy != e, e.Verb == Kill && !p.Dead, e.Verb == Start && !p.Dead:
		return ""
	case e.Verb == Kill, e.Verb == Start:
		p.Dead = false
		return Start
	case e.Verb != Pause && e.Verb != Suspend:
		return e.Verb
	case p.Dead:
		return ""
	case !end:
		p.Stopped++
	default:
		p.Stopped = max(0, p.Stopped-1)
	}
	return e.Verb
}
