package nodetest

import (
	"time"

	"github.com/redquorum/redquorum/node"
)

func (f fixture) read(owner string, token node.Token) node.Command {
	return in(node.Read, f.acquire(name, owner, token))
}

func (f fixture) write(owner string, token node.Token) node.Command {
	return in(node.Write, f.acquire(name, owner, token))
}

// rival is of another owner, whose locks exclude those of the test.
func (f fixture) rival() fixture {
	if f.mode == node.Read {
		f.mode = node.Write
	}
	return f
}

// end ends what an owner has in whichever mode.
func (f fixture) end(owner string, token node.Token) node.Command {
	return in(node.Write, f.release(name, owner, token))
}

// wantShared requires a hash of these fields and a life of about ttl. No field is no key.
func (f fixture) wantShared(ttl time.Duration, fields ...string) {
	f.Helper()
	f.wantHash(f.state(name), ttl, fields...)
}

// wantFences requires the fence and the highest token of a reader.
func (f fixture) wantFences(fence, readers node.Token) {
	f.Helper()
	if got := f.state(name); got.Fence != fence || got.Readers != readers {
		f.Errorf("fence %d and readers' %d, want %d and %d", got.Fence, got.Readers, fence, readers)
	}
}

// lasting gives a command another TTL.
func lasting(ttl time.Duration, cmd node.Command) node.Command {
	cmd.TTL = ttl
	return cmd
}

// pass lets a hold of one life expire.
func (f fixture) pass() { f.Helper(); f.must(f.Advance(life + time.Second)) }

// silent requires that there is no call of wake.
func (f fixture) silent(b goBell) {
	f.Helper()
	select {
	case <-b.rings:
		f.Error("woken for nothing")
	case <-time.After(brevity / 10):
	}
}
