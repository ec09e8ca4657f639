package redisnode

import "github.com/redquorum/redquorum/node"

// Together has n send commands together from so few on; 0: none ever are.
func Together(n node.Node, least int) {
	s := n.(*server)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.least = least
}
