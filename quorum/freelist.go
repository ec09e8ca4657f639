package quorum

import "sync"

// A freelist recycles objects, and is collected with its Locker. A sync.Pool inside a
// Locker would be registered with the garbage collector, and would keep everything
// reachable from the Locker alive for a collection or two more.
type freelist[T any] struct {
	mu    sync.Mutex
	spare []*T
}

// maxSpare is how many are kept. Few programs have more operations under way at a time,
// again and again.
const maxSpare = 1024

// take returns one that was put back, or nil.
func (f *freelist[T]) take() *T {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := len(f.spare)
	if n == 0 {
		return nil
	}
	x := f.spare[n-1]
	f.spare = f.spare[:n-1]
	return x
}

func (f *freelist[T]) put(x *T) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.spare) < maxSpare {
		f.spare = append(f.spare, x)
	}
}
