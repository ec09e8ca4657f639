package main

import "github.com/redquorum/redquorum/sim"

const pagePath = "../../docs/rivals.md"

// table runs every scenario with every lock.
func table(in bubble) (rows [][]*outcome) {
	for _, s := range sim.Scenarios() {
		var row []*outcome
		for _, c := range contestants {
			row = append(row, c.scenario(in, &s))
		}
		rows = append(rows, row)
	}
	return rows
}

func page(rows [][]*outcome) string { return "" }
