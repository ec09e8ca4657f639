//go:build !unix

package redisserver

import "os"

var stop, cont os.Signal // there are none
