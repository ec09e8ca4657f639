package main

import (
	"context"

	"github.com/redquorum/redquorum/bench"
)

func benchVerb(ctx context.Context, c *command) int {
	return bench.Main(ctx, bench.Program{
		Name:        "redquorum bench",
		Args:        []string{"bench"},
		Contestants: []bench.Contestant{bench.Redquorum()},
	}, c.args, c.stdout, c.screen)
}
