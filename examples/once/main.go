// Once has several callers that need a new access token. The refresh token is good for one
// use, as services that rotate them demand: so one caller refreshes, and the others wait
// for its result. A caller that gets none knows whether somebody is at it, or the lock
// servers are down.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"sync"
	"time"

	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/node/embedded"
	"github.com/redquorum/redquorum/quorum"
)

// A credential is the result: what one caller gets, and all use.
type credential struct {
	access, refresh string
	fence           node.Token // of the caller that stored it
}

// A store keeps the credential for all programs. In production it is a database.
type store struct {
	mu  sync.Mutex
	now credential
}

func (s *store) load() credential {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now
}

var errLate = errors.New("a newer holder has stored a credential")

func (s *store) save(c credential) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.fence < s.now.fence {
		return errLate
	}
	s.now = c
	return nil
}

var (
	errBusy = errors.New("somebody is refreshing: try again soon")
	errDown = errors.New("the lock servers are down: nobody may refresh")
)

// renew returns a credential other than the stale one. It calls refresh only if nobody
// else has: a caller that has waited takes what is stored then.
func renew(ctx context.Context, l *quorum.Locker, s *store, stale credential,
	refresh func(context.Context, credential) (credential, error)) (c credential, err error) {
	err = l.Do(ctx, "refresh/acme", func(ctx context.Context, lease *quorum.Lease) (err error) {
		if c = s.load(); c.access != stale.access {
			return nil
		}
		if c, err = refresh(ctx, c); err != nil {
			return err
		}
		c.fence = lease.Token()
		return s.save(c) // also if the lease is over: the old refresh token is used up
	}, quorum.WithWait(2*time.Second))
	if err == nil {
		return c, nil
	}
	if c = s.load(); c.access != stale.access { // somebody has done it meanwhile
		return c, nil
	}
	switch {
	case errors.Is(err, quorum.ErrNotHeld): // the function ran, and its end is not known
		return c, err
	case errors.Is(err, quorum.ErrHeld):
		return c, fmt.Errorf("%w: %w", errBusy, err)
	case errors.Is(err, quorum.ErrNoQuorum):
		return c, fmt.Errorf("%w: %w", errDown, err)
	}
	return c, err
}

func main() {
	servers, err := embedded.Start(3) // in production: redisnode.Dial("redis://10.0.0.1:6379", ...)
	if err != nil {
		log.Fatal(err)
	}
	defer servers.Close()
	locker, err := quorum.New(servers.Nodes(), quorum.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer locker.Close()

	ctx, saved := context.Background(), &store{now: credential{access: "access-0", refresh: "refresh-0"}}
	used := 0
	refresh := func(context.Context, credential) (credential, error) {
		used++
		time.Sleep(100 * time.Millisecond) // the service
		return credential{access: fmt.Sprint("access-", used), refresh: fmt.Sprint("refresh-", used)}, nil
	}
	stale := saved.load()
	results := make([]string, 8)
	var all sync.WaitGroup
	for i := range results {
		all.Go(func() {
			c, err := renew(ctx, locker, saved, stale, refresh)
			if err != nil {
				log.Fatal(err)
			}
			results[i] = c.access
		})
	}
	all.Wait()
	fmt.Println(used, "refresh for", len(results), "callers:", results)

	stale = saved.load()
	busy, err := locker.Lock(ctx, "refresh/acme", quorum.WithNote("anna"))
	if err != nil {
		log.Fatal(err)
	}
	_, err = renew(ctx, locker, saved, stale, refresh)
	fmt.Println("busy:", errors.Is(err, errBusy), "down:", errors.Is(err, errDown))
	if err := busy.Unlock(ctx); err != nil {
		log.Fatal(err)
	}
	servers.Server(0).Kill()
	servers.Server(1).Kill()
	_, err = renew(ctx, locker, saved, stale, refresh)
	fmt.Println("busy:", errors.Is(err, errBusy), "down:", errors.Is(err, errDown))
}
