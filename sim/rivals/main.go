// Rivals carries out the plans of package sim with locks as they are: redquorum's production stack,
// and locks that people use. It is a module of its own, so that nobody who imports redquorum gets them.
package main

import (
	"context"

	goredislib "github.com/redis/go-redis/v9"
)

func main() {}

func init() { goredislib.SetLogger(quiet{}) }

// quiet is for go-redis, which writes about each failed connection.
type quiet struct{}

func (quiet) Printf(context.Context, string, ...any) {}
