// Package daprlock is a lock component for Dapr on a quorum of Redis servers. Dapr's own
// component has one server, or one with a failover, which can lose a lock.
//
// The component is compiled into daprd, because pluggable components cannot be locks. Add
// a file to cmd/daprd/components that makes a Locker, and registers a component of type
// lock.redquorum:
//
//	lockLoader.DefaultRegistry.RegisterComponent(func(logger.Logger) lock.Store {
//		return daprlock.New(locker)
//	}, "redquorum")
//
// A lock ends after expiryInSeconds, as Dapr defines it: it is not renewed.
// Options.MaxLease must be at least the longest expiry of any application, and the same
// in all programs that use the servers. TryLock returns an error if the expiry is longer.
// A server that restarted is ignored for MaxLease.
//
// The lease of a resource and owner is in the memory of the sidecar, so only the sidecar
// that locked can unlock. Another one, or the same one after a restart, answers
// LockBelongsToOthers until the lock expires. A sidecar that ends leaves its locks to
// expire as well, since the application may still work. [quorum.Locker.Close] would
// unlock them, so leave the Locker open.
//
// Names on the servers are Dapr's: by default lock||, the application's ID, || and the
// resource. Dapr does not pass a fencing token to the application.
package daprlock

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/dapr/components-contrib/lock"

	"github.com/redquorum/redquorum/quorum"
)

// A Store is a lock.Store. Make it with New.
type Store struct {
	locker *quorum.Locker
	opts   []quorum.Option
	leases sync.Map // the *quorum.Lease of each resource and owner
}

// New returns a Store. The options apply to each lock, but its length is the request's.
// TryLock waits for 100 ms, unless there is another [quorum.WithWait]: of several
// sidecars that ask at the same instant, one then gets the lock.
func New(l *quorum.Locker, opts ...quorum.Option) *Store {
	return &Store{locker: l, opts: opts}
}

// InitLockStore does nothing: the Locker has the settings.
func (s *Store) InitLockStore(context.Context, lock.Metadata) error { return nil }

// TryLock locks the resource until its expiry, or says that it is held.
func (s *Store) TryLock(ctx context.Context, req *lock.TryLockRequest) (*lock.TryLockResponse, error) {
	key, expiry := [2]string{req.ResourceID, req.LockOwner}, time.Duration(req.ExpiryInSeconds)*time.Second
	opts := append([]quorum.Option{quorum.WithWait(100 * time.Millisecond)}, s.opts...)
	lease, err := s.locker.Lock(ctx, req.ResourceID, append(opts, quorum.WithFixedLease(expiry))...)
	if err == nil {
		s.leases.Store(key, lease)
		time.AfterFunc(expiry, func() { s.leases.CompareAndDelete(key, lease) })
	} else if errors.Is(err, quorum.ErrHeld) {
		err = nil
	}
	return &lock.TryLockResponse{Success: lease != nil}, err
}

// Unlock releases the owner's lock. If this Store does not have it, the servers say
// whether anybody else does.
func (s *Store) Unlock(ctx context.Context, req *lock.UnlockRequest) (*lock.UnlockResponse, error) {
	err := quorum.ErrNotHeld
	if lease, ok := s.leases.LoadAndDelete([2]string{req.ResourceID, req.LockOwner}); ok {
		err = lease.(*quorum.Lease).Unlock(ctx)
	}
	if err == nil {
		return &lock.UnlockResponse{Status: lock.Success}, nil
	}
	switch report, failed := s.locker.Inspect(ctx, req.ResourceID); {
	case !errors.Is(err, quorum.ErrNotHeld):
		return &lock.UnlockResponse{Status: lock.InternalError}, err
	case failed != nil || report.Verdict == "no-quorum":
		return &lock.UnlockResponse{Status: lock.InternalError}, cmp.Or(failed, quorum.ErrNoQuorum)
	case report.Verdict == "held":
		return &lock.UnlockResponse{Status: lock.LockBelongsToOthers}, nil
	}
	return &lock.UnlockResponse{Status: lock.LockDoesNotExist}, nil
}

// Close leaves the locks to expire, and the Locker open.
func (s *Store) Close() error { return nil }
