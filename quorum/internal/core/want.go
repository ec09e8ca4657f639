package core

import (
	"time"

	"github.com/redquorum/redquorum/node"
)

// A Want is what one acquisition asks for.
type Want struct {
	Claim   // without owner and token
	Lease   time.Duration
	MaxHold time.Duration
	MinHold time.Duration // as it was asked for
	Keep    time.Duration // how long the nodes keep the name at least; 0: as long as the lease lasts
	Wait    time.Duration // < 0: no bound
	Fixed   bool
	Note    string
	Fair    bool
	Reentry bool
	Outer   []*tenant // that the context belongs to, and that have or had any of the names
}

// Life is how long the nodes keep the name from the acquisition if they hear no more of
// it.
func (s *Want) Life() time.Duration { return max(s.Lease, s.Keep) }

// asksBehindHolders reports whether the acquisition asks the nodes even if a name is
// held in this process.
func (s *Want) asksBehindHolders() bool {
	return s.Wait != 0 && (s.Fair || s.Names != nil || s.Mode == node.Write)
}
