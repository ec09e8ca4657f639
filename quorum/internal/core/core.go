package core

import (
	"context"
	"fmt"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/quorum/internal/vote"
)

// An Engine is the state of a Locker: the holders and waiters of this process, and the commands under way.
type Engine struct {
	*Config
	machine

	tokens    *tokens
	voters    *voters
	queues    *queues
	attempts  limiter
	handovers *handovers
	releases  *releases

	renewals []*renewal // of leases that are due in this step
	rounds   []*Round   // to be used again
	waiters  []*waiter
}

func NewEngine(c *Config) *Engine {
	w := world{nodes: c.Nodes, clock: c.Clock, steps: c.Opts.Steps, reports: c.Above}
	e := &Engine{Config: c, machine: newMachine(w), attempts: limiter{bound: firstAttempts}}
	e.fired = e.sendRenewals
	e.tokens = &tokens{moment: &e.moment, maker: vote.Tokens{Retention: c.Opts.FenceRetention}}
	e.voters = newVoters(c, &e.moment)
	e.voters.tell, e.voters.log = e.tell, e.log
	e.queues = &queues{Engine: e, byName: make(map[string]*queue), contended: make(map[string]struct{}), listeners: make(map[string]listeners)}
	e.handovers = &handovers{Engine: e, waiters: make(map[string]*waiter), byOwner: make(map[string]*offer),
		since: make([]clock.Instant, len(c.Nodes))}
	e.releases = &releases{Engine: e, reached: make([]clock.Instant, len(c.Nodes)), again: make([]int, len(c.Nodes)), later: make([][]*sweep, len(c.Nodes))}
	e.voters.recovered = e.releases.reach
	return e
}

// tellOf reports an event of a claim.
func (e *Engine) tellOf(c *Claim, x Event) {
	if e.observed() {
		x.Name, x.Owner, x.Token = c.Title(), c.Owner, c.Token
		e.tell(x)
	}
}

// Begin notes that a call begins. It returns an error if ctx has ended, or the Locker is closed.
func (e *Engine) Begin(ctx context.Context, op, title string) (err error) {
	if ctx.Err() != nil {
		return fmt.Errorf("%s %q: %w", op, title, e.Above.Stopped(ctx))
	}
	e.Read(func() {
		if e.closed {
			err = ErrClosed
		} else {
			e.calls++
		}
	})
	return err
}
