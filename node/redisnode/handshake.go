package redisnode

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/node"
)

// handshake asks the servers behind a new link how long they have lived. Until
// that is known no command may use the link: its reply would carry another
// life.
func (s *server) handshake(l link) (*node.Life, error) {
	texts, err := l.info(s.ctx)
	switch err = connectError(err); {
	case errors.Is(err, node.ErrAuth):
		return nil, fmt.Errorf("%w (the restart guard needs INFO)", err)
	case errors.Is(err, node.ErrUnsupported):
		texts = nil // it is no Redis, and has no life to tell of
	case err != nil:
		return nil, err
	}
	before := s.census.life
	life := s.census.take(texts, s.clock.Now())
	switch {
	case life == nil:
		s.log.Warn("server does not say since when it runs: there is no restart guard for it")
	case before != nil && before.ID != life.ID:
		s.log.Warn("server has a new life: it restarted, or this is another one",
			"age", s.clock.Now().Sub(life.Born).Round(time.Millisecond))
	}
	return life, nil
}

// A census is what is known of the lives of the servers behind a node: of one,
// or of a cluster's masters.
type census struct {
	life    *node.Life
	born    map[string]clock.Instant // by run_id, as of the last handshake
	contact clock.Instant            // when a reply of life came last
}

// take learns from the INFO of all servers, received at now. It returns nil if
// there are none, or one of them does not say who it is.
func (c *census) take(texts []string, now clock.Instant) *node.Life {
	born := make(map[string]clock.Instant, len(texts))
	ids := make([]string, 0, len(texts))
	latest := clock.Instant(math.MinInt64) // an instant of before our own start is negative
	for _, text := range texts {
		id, uptime, ok := parseInfo(text)
		if !ok {
			*c = census{}
			return nil
		}
		born[id] = c.judge(id, uptime, now)
		ids = append(ids, id)
		latest = max(latest, born[id])
	}
	if len(ids) == 0 {
		*c = census{}
		return nil
	}
	slices.Sort(ids)
	c.life = &node.Life{ID: strings.Join(ids, "+"), Born: latest}
	c.born = born
	c.contact = now
	return c.life
}

// judge returns the latest instant at which the life id can have begun, given
// its uptime at now.
//
// The server computes the uptime from whole seconds of the time of day, so the
// true one may be a second less.
//
// A life that began before the last word of the life that it follows is no
// restart: either another server has taken over, and what it holds is a copy
// that may lack the newest locks, or the server's clock was set. Both ways
// nothing older than this moment can be trusted.
func (c *census) judge(id string, uptime time.Duration, now clock.Instant) clock.Instant {
	if before, known := c.born[id]; known {
		return before
	}
	born := now.Add(-max(0, uptime-time.Second))
	if c.life != nil && born < c.contact {
		return now
	}
	return born
}

// parseInfo finds the two fields that matter in the text of INFO server.
func parseInfo(text string) (id string, uptime time.Duration, ok bool) {
	seconds := int64(-1)
	for line := range strings.Lines(text) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		switch key {
		case "run_id":
			id = value
		case "uptime_in_seconds":
			if n, err := strconv.ParseInt(value, 10, 64); err == nil {
				seconds = n
			}
		}
	}
	return id, time.Duration(seconds) * time.Second, id != "" && seconds >= 0
}
