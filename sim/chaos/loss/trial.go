package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/redquorum/redquorum/faults"
	"github.com/redquorum/redquorum/node/redisnode"
	"github.com/redquorum/redquorum/node/redisserver"
	"github.com/redquorum/redquorum/quorum"
	"github.com/redquorum/redquorum/sim/chaos/packets"
)

// nodes is how many servers a trial has.
const nodes = 5

// A trial has a namespace of its own.
type trial struct {
	Lease   time.Duration
	For     time.Duration
	Lockers int           // that hold leases; a fifth as many acquire and release others
	Leases  int           // of each of them, over the same connections
	Loss    int           // of a hundred packets, in both directions; 99 at most
	Reorder int           // of a hundred packets, which are late
	Gone    int           // how many servers vanish, again and again
	Away    time.Duration // for how long they do
}

// A result is what a trial has measured.
type result struct {
	Held            time.Duration // of all leases together
	Lost            int           // leases that ended before they were to
	Renewed, Failed int           // renewals; Failed counts one a second at most for each lease
	Times           int           // how often servers vanished

	Acquired []time.Duration // how long Lock took for a free name
	Again    []time.Duration // from the end of a lost lease until the next one
	// From the moment at which packets arrive again:
	Used    []time.Duration // until the node has answered a Locker that often asks
	Granted []time.Duration // until a Lock under way was granted
	Resumed []time.Duration // until a lease was renewed whose renewals had failed
}

// A meter collects a result.
type meter struct {
	trial
	mu       sync.Mutex
	r        result
	returned time.Time // of the servers that vanished; zero while they are gone
}

// inside carries out the trial in text, and prints its result as JSON.
func inside(ctx context.Context, text string, out io.Writer) error {
	var t trial
	if err := json.Unmarshal([]byte(text), &t); err != nil {
		return err
	}
	m := &meter{trial: t}
	return errors.Join(m.measure(ctx), json.NewEncoder(out).Encode(m.r))
}

// measure carries the trial out in this process's namespace.
func (m *meter) measure(ctx context.Context) error {
	relay, err := packets.Open()
	if err != nil {
		return err
	}
	defer relay.Close()
	servers, err := redisserver.StartN(nodes, redisserver.Config{Args: []string{"--bind", "127.0.0.1", packets.Near, "--protected-mode", "no"}})
	if err != nil {
		return err
	}
	var links []*packets.Link
	var urls []string
	for _, s := range servers {
		defer s.Close()
		_, text, _ := net.SplitHostPort(s.Addr())
		port, err := strconv.Atoi(text)
		if err != nil {
			return err
		}
		l := relay.Link(port, rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64())))
		links, urls = append(links, l), append(urls, "redis://"+l.Addr())
	}
	lockers := make([]*quorum.Locker, m.Lockers+(m.Lockers+4)/5)
	for i := range lockers {
		all, err := redisnode.Dial(urls...) // connections of its own
		if err != nil {
			return err
		}
		options := quorum.Options{Lease: m.Lease, NoRestartGuard: true, Observe: m.observer(i >= m.Lockers)}
		if lockers[i], err = quorum.New(all, options); err != nil {
			return err
		}
	}
	set(links, m.trouble())
	ctx, cancel := context.WithTimeout(ctx, m.For)
	defer cancel()
	var all sync.WaitGroup
	for i, l := range lockers {
		if i >= m.Lockers {
			all.Go(func() { m.acquire(ctx, l, fmt.Sprintf("free-%d", i)) })
			continue
		}
		for k := range m.Leases {
			all.Go(func() { m.hold(ctx, l, fmt.Sprintf("held-%d-%d", i, k)) })
		}
	}
	if m.Gone > 0 {
		m.vanish(ctx, links[:m.Gone])
	}
	all.Wait()
	set(links, packets.Trouble{})
	for _, l := range lockers {
		all.Go(func() { _ = l.Close() }) // the servers end now, with all locks
	}
	all.Wait()
	return nil
}

// late is by how much the packets are late that others overtake.
var late = faults.Range{Min: 5 * time.Millisecond, Max: 50 * time.Millisecond}

// trouble is what happens to all packets while no server has vanished.
func (t *trial) trouble() packets.Trouble {
	return packets.Trouble{Loss: faults.Percent(int64(t.Loss)), Reorder: faults.Percent(int64(t.Reorder)), Later: late}
}

// set says what happens to packets on links, both ways.
func set(links []*packets.Link, t packets.Trouble) {
	for _, l := range links {
		l.Set([2]packets.Trouble{t, t}, time.Time{})
	}
}

// observer returns what counts the events of one Locker. Whether that often asks decides what they say.
func (m *meter) observer(often bool) func(quorum.Event) {
	failing := make(map[string]bool) // by name
	return func(e quorum.Event) {
		now := time.Now()
		m.mu.Lock()
		defer m.mu.Unlock()
		switch {
		case often:
			if e.Kind == quorum.EventNodeRecovered && !m.returned.IsZero() {
				m.r.Used = append(m.r.Used, now.Sub(m.returned))
			}
		case e.Kind == quorum.EventExtended:
			m.r.Renewed++
			if failing[e.Name] && !m.returned.IsZero() {
				m.r.Resumed = append(m.r.Resumed, now.Sub(m.returned))
			}
			failing[e.Name] = false
		case e.Kind == quorum.EventExtendFailed:
			m.r.Failed++
			failing[e.Name] = true
		case e.Kind == quorum.EventLost:
			m.r.Lost++
			failing[e.Name] = false
		}
	}
}

// hold holds a lease until ctx ends, and acquires it again whenever it is lost.
func (m *meter) hold(ctx context.Context, l *quorum.Locker, name string) {
	var lost time.Time
	sleep(ctx, rand.N(m.Lease/3)) // the connections and renewals of many do not come at once
	for {
		lease, err := l.Lock(ctx, name)
		if err != nil {
			return // as ctx has ended
		}
		start := time.Now()
		if !lost.IsZero() {
			m.note(func(r *result) { r.Again = append(r.Again, start.Sub(lost)) })
		}
		select {
		case <-lease.Context().Done():
		case <-ctx.Done():
		}
		lost = time.Now()
		m.note(func(r *result) { r.Held += lost.Sub(start) })
	}
}

// acquire acquires and releases free names until ctx ends.
func (m *meter) acquire(ctx context.Context, l *quorum.Locker, name string) {
	pause := 2 * time.Second // in which connections become idle
	if m.Gone > 0 {
		pause = 200 * time.Millisecond // the return of a node is to be noticed
	}
	for i := 0; ; i++ {
		start := time.Now()
		lease, err := l.Lock(ctx, fmt.Sprintf("%s-%d", name, i))
		if err != nil {
			return // as ctx has ended
		}
		now := time.Now()
		m.note(func(r *result) {
			r.Acquired = append(r.Acquired, now.Sub(start))
			if m.Gone > nodes/2 && start.Before(m.returned) {
				r.Granted = append(r.Granted, now.Sub(m.returned))
			}
		})
		_ = lease.Unlock(ctx) // what is left expires
		sleep(ctx, rand.N(2*pause))
	}
}

func (m *meter) note(what func(*result)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	what(&m.r)
}

// vanish lets servers vanish and return until ctx ends.
func (m *meter) vanish(ctx context.Context, links []*packets.Link) {
	for sleep(ctx, m.Lease) {
		m.note(func(r *result) { r.Times++; m.returned = time.Time{} })
		set(links, packets.Trouble{Cut: true})
		if !sleep(ctx, m.Away) {
			return // none has returned
		}
		m.note(func(*result) { m.returned = time.Now() })
		set(links, m.trouble())
	}
}

// sleep waits, and reports whether ctx has not ended.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}
