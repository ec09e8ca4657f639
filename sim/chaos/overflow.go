package chaos

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// outputLimit is how many bytes the servers keep for a subscriber, and flood is more. Its
// messages are short, because Valkey does not count long ones that it need not copy.
const (
	outputLimit = 1 << 18
	flood       = `local message, heard = string.rep('-', 8192), 0
for i = 1, 64 do heard = heard + redis.call('PUBLISH', KEYS[1], message) end
return heard`
)

// overflowTime is how long a server may take to close a subscriber. A server that stands
// still closes none.
const overflowTime = 100 * time.Millisecond

// overflow has the server close a subscriber's connection, at its
// client-output-buffer-limit. The proxy subscribes to a channel of its own over this
// connection, and floods it. The client gets nothing of that, and sees the end when the
// server has made it.
func (c *conn) overflow() {
	defer c.reset()
	ctx, cancel := context.WithTimeout(c.l.ctx, overflowTime)
	defer cancel()
	channel := fmt.Sprintf("redquorum-chaos-%d", serials.Add(1))
	c.mu.Lock()
	_, err := fmt.Fprintf(c.server, "*2\r\n$9\r\nsubscribe\r\n$%d\r\n%s\r\n", len(channel), channel)
	c.mu.Unlock()
	publisher := redis.NewClient(&redis.Options{Addr: c.l.target(), MaxRetries: -1, DialerRetries: 1, PoolSize: 1,
		DisableIdentity: true, ContextTimeoutEnabled: true})
	defer publisher.Close()
	for heard := 0; err == nil; time.Sleep(time.Millisecond / 2) {
		var now int
		if now, err = publisher.Eval(ctx, flood, []string{channel}).Int(); now == 0 && heard > 0 { // it is closed
			return
		}
		heard += now
	}
}
