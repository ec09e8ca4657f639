//go:build race

package tests

// Race says that the race detector is on: everything takes several times as long.
const Race = true
