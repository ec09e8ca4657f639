package main

import (
	"github.com/spf13/cobra"

	"github.com/redquorum/redquorum/bench"
)

func benchVerb() *cobra.Command {
	return bench.Command(bench.Program{Name: "redquorum bench", Args: []string{"bench"},
		Contestants: []bench.Contestant{bench.Redquorum()}})
}
