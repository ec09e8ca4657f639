package quorum

import (
	"context"
	"sync"

	"github.com/redquorum/redquorum/clock"
)

// A lifecycle counts the operations of a Locker, so that Close can wait for them.
type lifecycle struct {
	clock clock.Clock
	idle  clock.Signal // set when a closed Locker has no operation left

	mu     sync.Mutex
	active int  // operations under way
	closed bool // no more of them may begin
}

// enter notes that an operation begins. It returns false if the Locker is closed.
func (c *lifecycle) enter() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	c.active++
	return true
}

// leave notes that an operation is over.
func (c *lifecycle) leave() {
	c.mu.Lock()
	c.active--
	wake := c.closed && c.active == 0
	c.mu.Unlock()
	if wake {
		c.idle.Set()
	}
}

// inTask does something in a goroutine that Close waits for, unless the Locker is closed.
func (c *lifecycle) inTask(do func()) {
	if c.enter() {
		c.clock.Go(func() {
			defer c.leave()
			do()
		})
	}
}

// close lets no more operations begin. It returns false if that was so already.
func (c *lifecycle) close() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	was := c.closed
	c.closed = true
	return !was
}

func (c *lifecycle) isClosed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.closed
}

// awaitIdle returns when no operation is under way any more.
func (c *lifecycle) awaitIdle() {
	c.mu.Lock()
	active := c.active > 0
	c.mu.Unlock()
	if active { // the last operation sets it, and no other begins
		c.idle.Wait(context.Background(), clock.Never)
	}
}
