// Package certmagiclock gives any storage of CertMagic, which Caddy uses, locks on a
// quorum of Redis servers. So only one program of a cluster asks for a certificate.
//
//	certmagic.Default.Storage = certmagiclock.New(locker, &certmagic.FileStorage{Path: "/mnt/certificates"})
//
// All programs of the cluster need it, because it replaces the locks of the storage. A
// lock is renewed until it is unlocked. CertMagic learns of a loss before it tries again
// to get the certificate, and when it unlocks.
package certmagiclock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/caddyserver/certmagic"

	"github.com/redquorum/redquorum/quorum"
)

// A Storage is a certmagic.Storage with other locks. Make it with New.
type Storage struct {
	certmagic.Storage
	locker *quorum.Locker
	opts   []quorum.Option
	leases sync.Map // the *quorum.Lease of each key, since CertMagic unlocks by the key alone
}

// New returns a Storage with the data of s. The options apply to each lock.
func New(l *quorum.Locker, s certmagic.Storage, opts ...quorum.Option) *Storage {
	return &Storage{Storage: s, locker: l, opts: opts}
}

// Lock waits for the lock of key until ctx ends.
func (s *Storage) Lock(ctx context.Context, key string) error {
	lease, err := s.locker.Lock(ctx, key, s.opts...)
	return s.keep(ctx, key, lease, err)
}

func (s *Storage) TryLock(ctx context.Context, key string) (bool, error) {
	lease, err := s.locker.TryLock(ctx, key, s.opts...)
	if err = s.keep(ctx, key, lease, err); errors.Is(err, quorum.ErrHeld) {
		return false, nil
	}
	return err == nil, err
}

// keep stores a lease for Unlock. If there is one already, it was lost, and its user's
// Unlock must not find the new lease.
func (s *Storage) keep(ctx context.Context, key string, lease *quorum.Lease, err error) error {
	if err == nil {
		if _, lost := s.leases.LoadOrStore(key, lease); lost {
			err = errors.Join(fmt.Errorf("certmagiclock: lock %s was lost by this process; try again when it is unlocked", key), lease.Unlock(ctx))
		}
	}
	return err
}

// Unlock releases the lock of key. The error matches quorum.ErrNotHeld if the lock was
// lost.
func (s *Storage) Unlock(ctx context.Context, key string) error {
	if lease, ok := s.leases.LoadAndDelete(key); ok {
		return lease.(*quorum.Lease).Unlock(ctx)
	}
	return fmt.Errorf("certmagiclock: unlock %s: %w", key, quorum.ErrNotHeld)
}

// RenewLockLease returns an error if the lock of key was lost. It asks no server, because
// leases are renewed automatically.
func (s *Storage) RenewLockLease(_ context.Context, key string, _ time.Duration) error {
	if lease, ok := s.leases.Load(key); ok {
		return context.Cause(lease.(*quorum.Lease).Context())
	}
	return fmt.Errorf("certmagiclock: renew %s: %w", key, quorum.ErrNotHeld)
}
