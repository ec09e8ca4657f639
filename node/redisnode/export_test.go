package redisnode

import "github.com/redquorum/redquorum/node/internal/courier"

// Together has a node send commands together from so few on; 0: none ever are.
var Together = courier.Together
