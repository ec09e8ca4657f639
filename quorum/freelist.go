package quorum

import "sync"

// A freelist keeps what one operation after the other needs, and goes when its Locker
// does. A sync.Pool that is a part of a Locker would be known to the garbage collector by
// itself, and keep all that the Locker reaches for another collection or two.
type freelist[T any] struct {
	mu    sync.Mutex
	spare []*T
}

// maxSpare is how much is kept: few programs have more operations under way at one time
// and then another as many.
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
