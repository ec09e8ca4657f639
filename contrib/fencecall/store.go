package fencecall

import (
	"context"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/redquorum/redquorum/node"
)

// A Store keeps the highest token of each name. fencesql.Store is one in PostgreSQL.
type Store interface {
	// Raise raises the highest token of name to token, if it is lower, in one step, and
	// returns it.
	Raise(ctx context.Context, name string, token node.Token) (highest node.Token, err error)
}

// Memory is a store for a service of one process. It keeps every name until the process
// ends; afterwards the first call of each name is let in, also a late one.
func Memory() Store { return &memory{highest: make(map[string]node.Token)} }

type memory struct {
	mu      sync.Mutex
	highest map[string]node.Token
}

func (m *memory) Raise(_ context.Context, name string, token node.Token) (node.Token, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.highest[name] = max(m.highest[name], token)
	return m.highest[name], nil
}

// Redis is a store for a service of several processes, on one Redis server of its own. It
// keeps each name in a key that begins with prefix, without expiry. After a failover that
// loses the last writes, a late call may be let in.
func Redis(client redis.Scripter, prefix string) Store { return server{client, prefix} }

type server struct {
	redis.Scripter
	prefix string
}

var raise = redis.NewScript(`
local highest = tonumber(redis.call('GET', KEYS[1]) or 0)
if tonumber(ARGV[1]) > highest then
  redis.call('SET', KEYS[1], ARGV[1])
  return tonumber(ARGV[1])
end
return highest`)

func (s server) Raise(ctx context.Context, name string, token node.Token) (node.Token, error) {
	highest, err := raise.Run(ctx, s, []string{s.prefix + name}, int64(token)).Int64()
	return node.Token(highest), err
}
