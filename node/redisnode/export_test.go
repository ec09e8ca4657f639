package redisnode

import "github.com/redquorum/redquorum/node/internal/courier"

// Together is from how many commands on a node sends them together; 0: never.
var Together = courier.Together
