//go:build !race

package tests

// Race says that the race detector is on.
const Race = false
