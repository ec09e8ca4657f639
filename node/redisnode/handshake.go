package redisnode

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redquorum/redquorum/node"
)

// handshake learns from the answers to INFO server whose a new link is: since
// when the servers behind it live. No reply counts before that is known.
func (s *server) handshake(texts []string, err error) (*node.Life, error) {
	switch err = connectError(err); {
	case errors.Is(err, node.ErrAuth):
		return nil, fmt.Errorf("%w (the restart guard needs INFO)", err)
	case errors.Is(err, node.ErrUnsupported):
		texts = nil // it is no Redis, and has no life to tell of
	case err != nil:
		return nil, err
	}
	before := s.census.Life()
	life := s.census.Take(uptimes(texts), s.clock.Now())
	s.life.Store(life)
	s.demoted = false
	switch {
	case life == nil:
		s.log.Warn("server does not say since when it runs: there is no restart guard for it")
	case before != nil && *before != *life:
		s.log.Warn("server has a new life: it restarted, was a replica for a while, or this is another one",
			"age", s.clock.Now().Sub(life.Born).Round(time.Millisecond))
	}
	return life, nil
}

// uptimes returns what the INFO texts of all servers tell, or nothing if one of
// them does not say who it is.
func uptimes(texts []string) (all []node.Uptime) {
	for _, text := range texts {
		id, up, ok := parseInfo(text)
		if !ok {
			return nil
		}
		all = append(all, node.Uptime{ID: id, Up: up})
	}
	return all
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
