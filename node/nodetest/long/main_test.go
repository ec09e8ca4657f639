package main

import (
	"testing"
	"time"

	"github.com/redquorum/redquorum/internal/tests"
)

func TestCompare(t *testing.T) {
	tests.NeedServer(t)
	if err := compare(500, time.Second); err != nil {
		t.Error(err)
	}
}
