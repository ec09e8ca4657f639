package quorum_test

import (
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/redquorum/redquorum/internal/tests"
)

const module = "github.com/redquorum/redquorum"

// deps lists what a package imports, directly and indirectly, outside the
// standard library.
func deps(t *testing.T, pkg string) []string {
	t.Helper()
	out, err := exec.Command("go", "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", module+pkg).Output()
	if err != nil {
		t.Skip("go list: ", err)
	}
	return strings.Fields(string(out))
}

// Importing quorum stays light: no client, no simulator, no command line.
func TestImportsRunOneWay(t *testing.T) {
	tests.NeedLong(t)
	for pkg, allowed := range map[string][]string{
		"/clock":      {"/clock"},
		"/node":       {"/clock", "/node"},
		"/node/model": {"/clock", "/node", "/node/model"},
		"/quorum":     {"/clock", "/node", "/quorum"},
		"/election":   {"/clock", "/node", "/quorum", "/election"},
		"/faults":     {"/faults"},
		"/spec":       {"/spec"},
		"/sim":        {"/clock", "/node", "/node/model", "/quorum", "/faults", "/spec", "/internal/terminal", "/sim", "/sim/internal/page", "/sim/internal/program", "/sim/internal/textbook", "github.com/anishathalye/porcupine"},
	} {
		for _, dep := range deps(t, pkg) {
			if strings.HasPrefix(dep, "golang.org/x/sys/") {
				continue // CLOCK_BOOTTIME
			}
			if !slices.Contains(allowed, strings.TrimPrefix(dep, module)) {
				t.Errorf("%s imports %s", pkg, dep)
			}
		}
	}
	// Nothing that others import imports the benchmark or the command line.
	for _, pkg := range []string{"/node/redisnode", "/node/redisconn", "/node/embedded", "/node/redisserver", "/sim", "/faults", "/quorum"} {
		for _, dep := range deps(t, pkg) {
			if strings.HasPrefix(dep, module+"/bench") || strings.HasPrefix(dep, module+"/cmd") || strings.HasPrefix(dep, "github.com/spf13/") {
				t.Errorf("%s imports %s", pkg, dep)
			}
		}
	}
	// And the benchmark takes no lock of others with it: bench/peers is a module of its own.
	for _, dep := range deps(t, "/bench") {
		for _, never := range []string{"redsync", "rueidis", "redislock", "etcd", module + "/cmd", module + "/bench/peers"} {
			if strings.Contains(dep, never) {
				t.Errorf("/bench imports %s", dep)
			}
		}
	}
	for _, dep := range deps(t, "/node/redisnode") {
		for _, never := range []string{"miniredis", "gopher-lua", "rapid", module + "/cmd", module + "/quorum", module + "/node/redisserver"} {
			if strings.Contains(dep, never) {
				t.Errorf("/node/redisnode imports %s", dep)
			}
		}
	}
}
