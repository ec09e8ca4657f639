package main

import (
	"testing"
	"time"

	"github.com/redquorum/redquorum/node/redisserver"
)

func TestCompare(t *testing.T) {
	if err := redisserver.Available(); err != nil {
		t.Skip(err)
	}
	if err := compare(500, time.Second); err != nil {
		t.Error(err)
	}
}
