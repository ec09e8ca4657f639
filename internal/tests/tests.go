// Package tests decides which tests run: by default the quick ones, with REDQUORUM_LONG=1
// all, and with -short those that take no seconds and start no server.
package tests

import (
	"flag"
	"os"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"github.com/redquorum/redquorum/node/redisserver"
)

// go-redis reports each failed connection on stderr. Tests kill servers all the time.
func init() { redis.SetLogger(&logging.VoidLogger{}) }

// Long reports whether REDQUORUM_LONG=1 is set. -short overrides it.
func Long() bool { return os.Getenv("REDQUORUM_LONG") == "1" && !testing.Short() }

func NeedLong(t testing.TB) {
	t.Helper()
	if !Long() {
		t.Skip("it takes long: set REDQUORUM_LONG=1")
	}
}

func NeedSeconds(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("it takes seconds: run without -short")
	}
}

// NeedServer skips a test with -short, and if there is no redis-server.
func NeedServer(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("it starts servers: run without -short")
	}
	if err := redisserver.Available(); err != nil {
		t.Skip(err)
	}
}

// Servers starts n redis-servers, and ends them with the test.
func Servers(t testing.TB, n int, config redisserver.Config) []*redisserver.Server {
	t.Helper()
	NeedServer(t)
	all, err := redisserver.StartN(n, config)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range all {
		t.Cleanup(func() { _ = s.Close() })
	}
	return all
}

// Server starts one with these arguments.
func Server(t testing.TB, args ...string) *redisserver.Server {
	t.Helper()
	return Servers(t, 1, redisserver.Config{Args: args})[0]
}

// Times is quick, or long with REDQUORUM_LONG=1.
func Times(quick, long int) int {
	if Long() {
		return long
	}
	return quick
}

// Parallel, called by TestMain, lets n tests run at a time in a package whose tests
// mostly wait. The flag -parallel overrides it.
func Parallel(n int) {
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if !given {
		_ = flag.Set("test.parallel", strconv.Itoa(n))
	}
}

// Says fails the test unless text has each part, and none of those that begin with "!".
func Says(t testing.TB, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		switch unwanted, absent := strings.CutPrefix(part, "!"); {
		case absent && strings.Contains(text, unwanted):
			t.Errorf("%q should not be in:\n%.4000s", unwanted, text)
		case !absent && !strings.Contains(text, part):
			t.Errorf("%q is missing in:\n%.4000s", part, text)
		}
	}
}

// Narrow fails the test for each line of a text with more columns.
func Narrow(t testing.TB, text string, columns int) {
	t.Helper()
	for line := range strings.Lines(text) {
		if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > columns {
			t.Errorf("%d columns, and not %d: %s", n, columns, line)
		}
	}
}
