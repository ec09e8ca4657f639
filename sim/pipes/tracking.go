package pipes

import (
	"fmt"
	"strings"
	"time"
)

// miniredis lacks client side caching, which rueidislock needs: CLIENT TRACKING ON OPTOUT
// NOLOOP. A server notifies a connection when a key changes that it has read.

type version struct {
	value   string
	expires time.Time
}

// tracks handles CLIENT TRACKING, and other settings of rueidis.
func (s *redis) tracks(args []string) (handled bool) {
	if len(args) < 2 || s.current == nil {
		return false
	}
	switch strings.ToUpper(args[0]) {
	case "TRACKING":
		s.current.known = make(map[string]version)
		return true
	case "SETINFO":
		return true
	}
	return false
}

// remember is called with s.mu held.
func (s *redis) remember(c *conn) {
	for _, key := range s.read {
		if c.known != nil {
			c.known[key] = s.version(key)
		}
	}
	s.read = nil
}

func (s *redis) version(key string) version {
	value, _ := s.data.Get(key)
	if value == "" {
		return version{}
	}
	return version{value, s.last.Add(s.data.TTL(key))}
}

// invalidates notifies the connections that have read what has changed, except the one
// that changed it, with s.mu held.
func (s *redis) invalidates(by *conn) {
	for _, c := range s.conns {
		for key, was := range c.known {
			now := s.version(key)
			if now == was {
				continue
			}
			if c == by && now.value != "" {
				c.known[key] = now
				continue
			}
			delete(c.known, key)
			_, _ = c.Write(fmt.Appendf(nil, ">2\r\n$10\r\ninvalidate\r\n*1\r\n$%d\r\n%s\r\n", len(key), key))
		}
	}
}
