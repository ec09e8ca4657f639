package packets

import (
	"encoding/binary"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/redquorum/redquorum/faults"
	"github.com/redquorum/redquorum/internal/assert"
)

const (
	syn = 1 << 1
	ack = 1 << 4
)

// segment returns a packet without checksums.
func segment(from, to uint16, flags byte, payload string) packet {
	p := make(packet, 40, 40+len(payload))
	p[0], p[8], p[protocolAt] = 4<<4|5, 64, 6
	p = append(p, payload...)
	binary.BigEndian.PutUint16(p[2:], uint16(len(p)))
	copy(p[sourceAt:], []byte{10, 0, 0, 1})
	copy(p[targetAt:], []byte{10, 0, 0, 2})
	binary.BigEndian.PutUint16(p[20:], from)
	binary.BigEndian.PutUint16(p[22:], to)
	p[32], p[33] = 5<<4, flags
	return p
}

func TestParse(t *testing.T) {
	good := segment(40000, 7000, syn, "x")
	p, ok := parse(good)
	assert.That(t, ok && p.from() == 40000 && p.to() == 7000 && p.opens(), "%v, %v", p, ok)
	assert.That(t, !segment(7000, 40000, syn|ack, "").opens() && !segment(7000, 40000, ack, "").opens(), "an answer opens a connection")
	for name, change := range map[string]func(packet) packet{
		"UDP":          func(p packet) packet { p[protocolAt] = 17; return p },
		"IPv6":         func(p packet) packet { p[0] = 6 << 4; return p },
		"short":        func(p packet) packet { return p[:39] },
		"long header":  func(p packet) packet { p[0] = 4<<4 | 15; return p },
		"short header": func(p packet) packet { p[0] = 4<<4 | 4; return p },
		"nothing":      func(packet) packet { return nil },
	} {
		_, ok := parse(change(segment(40000, 7000, syn, "")))
		assert.That(t, !ok, "%s: accepted", name)
	}
}

// The trouble of the link, the packet, the instant and the draw decide about a packet.
func TestCarry(t *testing.T) {
	t0 := time.Now()
	to, from := segment(40000, 7000, ack, ""), segment(7000, 40000, ack, "")
	all := faults.Percent(100)
	ms := func(n time.Duration) faults.Range {
		return faults.Range{Min: n * time.Millisecond, Max: n * time.Millisecond}
	}
	const never = -1
	for name, c := range map[string]struct {
		trouble        faults.Trouble
		silent         time.Time
		before         packet // comes first, at t0
		toLate, fromIn time.Duration
	}{
		"good":                              {},
		"cut":                               {trouble: faults.Trouble{Cut: [2]bool{true, true}}, toLate: never, fromIn: never},
		"cut to the node":                   {trouble: faults.Trouble{Cut: [2]bool{faults.ToNode: true}}, toLate: never},
		"cut back":                          {trouble: faults.Trouble{Cut: [2]bool{faults.ToClient: true}}, fromIn: never},
		"all lost":                          {trouble: faults.Trouble{Loss: [2]faults.Ratio{all, all}}, toLate: never, fromIn: never},
		"late":                              {trouble: faults.Trouble{Delay: [2]faults.Range{ms(5), ms(7)}}, toLate: 5, fromIn: 7},
		"older than the half-open fault":    {silent: t0.Add(1), before: segment(40000, 7000, syn, ""), toLate: never, fromIn: never},
		"as old as the half-open fault":     {silent: t0, before: segment(40000, 7000, syn, "")},
		"never seen to begin, and so older": {silent: t0, toLate: never, fromIn: never},
		"only another connection is young":  {silent: t0, before: segment(40001, 7000, syn, ""), toLate: never, fromIn: never},
		"an accepted connection is none that is young": {silent: t0, before: segment(7000, 40000, syn|ack, ""), toLate: never, fromIn: never},
	} {
		l := newRelay(nowhere{}).Link(7000, new(faults.Plan).Stream(faults.OfNetwork, 1))
		l.Set(c.trouble, c.silent)
		if c.before != nil {
			l.carry(c.before, t0)
		}
		for _, way := range []struct {
			p    packet
			want time.Duration
		}{{to, c.toLate}, {from, c.fromIn}} {
			late, lost := l.carry(way.p, t0.Add(time.Hour))
			if lost != (way.want == never) || !lost && late != way.want*time.Millisecond {
				t.Errorf("%s, from %d: late by %v, lost %v; want %d", name, way.p.from(), late, lost, way.want)
			}
		}
	}
}

// The same draws have the same effect, and a share is about as large as it is to be.
func TestShares(t *testing.T) {
	run := func(seed uint64) (fates []bool) {
		l := newRelay(nowhere{}).Link(7000, (&faults.Plan{Seed: seed}).Stream(faults.OfNetwork, 1))
		l.Set(faults.Trouble{Loss: [2]faults.Ratio{faults.Percent(10), faults.Percent(10)}, Delay: [2]faults.Range{{Max: 4}, {Max: 4}}}, time.Time{})
		late := 0
		for range 10_000 {
			after, lost := l.carry(segment(40000, 7000, ack, ""), time.Time{})
			fates = append(fates, lost)
			if after > 0 {
				late++
			}
		}
		if c := l.Count(); c.Packets != 10_000 || c.Lost < 900 || c.Lost > 1100 || late < 6900 || late > 7500 {
			t.Errorf("%+v, %d late", c, late)
		}
		return fates
	}
	first := run(1)
	assert.That(t, slices.Equal(first, run(1)) && !slices.Equal(first, run(2)), "it does not depend on the seed alone")
}

// nowhere is a device without packets.
type nowhere struct{}

func (nowhere) Read([]byte) (int, error)    { return 0, io.EOF }
func (nowhere) Write(b []byte) (int, error) { return len(b), nil }
func (nowhere) Close() error                { return nil }

// A bench is a device that a test feeds.
type bench struct{ in, out chan packet }

func (b bench) Read(to []byte) (int, error) {
	p, ok := <-b.in
	if !ok {
		return 0, io.EOF
	}
	return copy(to, p), nil
}
func (b bench) Write(p []byte) (int, error) { b.out <- append(packet(nil), p...); return len(p), nil }
func (b bench) Close() error                { close(b.in); return nil }

// The relay finds the link of a packet, and writes what is not lost: at once, or later.
func TestRelay(t *testing.T) {
	b := bench{make(chan packet), make(chan packet, 10)}
	r := newRelay(b)
	good, cut, slow := r.Link(7000, new(faults.Plan).Stream(faults.OfNetwork, 1)), r.Link(7001, new(faults.Plan).Stream(faults.OfNetwork, 2)), r.Link(7002, new(faults.Plan).Stream(faults.OfNetwork, 3))
	cut.Set(faults.Trouble{Cut: [2]bool{true, true}}, time.Time{})
	late := faults.Range{Min: 20 * time.Millisecond, Max: 20 * time.Millisecond}
	slow.Set(faults.Trouble{Delay: [2]faults.Range{faults.ToNode: late}}, time.Time{})
	b.in <- segment(40000, 7002, ack, "1") // late
	b.in <- segment(40000, 7001, ack, "2") // lost
	b.in <- segment(7001, 40000, ack, "3") // lost
	b.in <- packet("none of TCP")
	b.in <- segment(40000, 7000, ack, "4")
	b.in <- segment(7000, 40000, ack, "5")
	b.in <- segment(40000, 7003, ack, "6") // of no link
	cut.Close()
	b.in <- segment(40000, 7001, ack, "7")
	got := ""
	for range 5 {
		p := <-b.out
		assert.That(t, p[sourceAt+3] == 2, "%v is not turned", p)
		got += string(p[40:])
	}
	assert.That(t, got == "45671", "%s, want 45671", got)
	assert.That(t, good.Count() == (Count{2, 0}) && cut.Count() == (Count{2, 2}) && good.Addr() == "10.0.0.2:7000",
		"%+v, %+v, %s", good.Count(), cut.Count(), good.Addr())
	assert.NoError(t, r.Close())
}
