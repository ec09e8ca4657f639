package quorum_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/redquorum/redquorum/internal/assert"
	"github.com/redquorum/redquorum/internal/tests"
)

const module = "github.com/redquorum/redquorum"

// deps are a package's direct and indirect imports outside the standard library.
func deps(t *testing.T, pkg string) []string {
	t.Helper()
	out, err := exec.Command("go", "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}",
		module+pkg).Output()
	if err != nil {
		t.Skip("go list: ", err)
	}
	return strings.Fields(string(out))
}

// Importing quorum brings no client, no simulator and no command line.
func TestImportsRunOneWay(t *testing.T) {
	tests.NeedLong(t)
	engine := []string{"/clock", "/internal/claim", "/node", "/quorum/internal/vote", "/quorum/internal/line",
		"/quorum/internal/limit", "/quorum/internal/retry", "/quorum/internal/machine", "/quorum/internal/queue",
		"/quorum/internal/core"}
	for pkg, allowed := range map[string][]string{
		"/clock":                   {"/clock"},
		"/node":                    {"/clock", "/node"},
		"/node/model":              {"/clock", "/node", "/node/model"},
		"/internal/claim":          {"/clock", "/node", "/internal/claim"},
		"/quorum/internal/vote":    {"/clock", "/node", "/quorum/internal/vote"},
		"/quorum/internal/line":    {"/quorum/internal/line"},
		"/quorum/internal/limit":   {"/clock", "/quorum/internal/line", "/quorum/internal/limit"},
		"/quorum/internal/retry":   {"/clock", "/node", "/quorum/internal/vote", "/quorum/internal/retry"},
		"/quorum/internal/machine": {"/clock", "/node", "/quorum/internal/vote", "/quorum/internal/machine"},
		"/quorum/internal/queue": {"/clock", "/internal/claim", "/node", "/quorum/internal/vote", "/quorum/internal/line",
			"/quorum/internal/retry", "/quorum/internal/queue"},
		"/quorum/internal/core": engine,
		"/quorum":               slices.Concat(engine, []string{"/internal/backlog", "/quorum"}),
		"/election":             slices.Concat(engine, []string{"/internal/backlog", "/quorum", "/election"}),
		"/faults":               {"/faults"},
		"/spec":                 {"/spec"},
		"/sim": slices.Concat(engine, []string{"/node/model", "/quorum", "/faults", "/spec", "/internal/backlog",
			"/internal/lives", "/internal/replicas", "/internal/terminal", "/sim", "/sim/internal/page",
			"/sim/internal/program", "/sim/internal/textbook", "github.com/anishathalye/porcupine"}),
	} {
		for _, dep := range deps(t, pkg) {
			if strings.HasPrefix(dep, "golang.org/x/sys/") {
				continue // CLOCK_BOOTTIME
			}
			assert.That(t, slices.Contains(allowed, strings.TrimPrefix(dep, module)), "%s imports %s", pkg, dep)
		}
	}
	// Nothing that others import imports the benchmark or the command line.
	for _, pkg := range []string{"/node/redisnode", "/node/redisconn", "/node/embedded", "/node/redisserver", "/sim",
		"/faults", "/quorum"} {
		for _, dep := range deps(t, pkg) {
			assert.That(t, !strings.HasPrefix(dep, module+"/bench") && !strings.HasPrefix(dep, module+"/cmd") &&
				!strings.HasPrefix(dep, "github.com/spf13/"),
				"%s imports %s", pkg, dep)
		}
	}
	// The benchmark imports no other locks: bench/peers is a module of its own.
	for _, dep := range deps(t, "/bench") {
		for _, never := range []string{"redsync", "rueidis", "redislock", "etcd", module + "/cmd",
			module + "/bench/peers"} {
			assert.That(t, !strings.Contains(dep, never), "/bench imports %s", dep)
		}
	}
	for _, dep := range deps(t, "/node/redisnode") {
		for _, never := range []string{"miniredis", "gopher-lua", "rapid", module + "/cmd", module + "/quorum",
			module + "/node/redisserver"} {
			assert.That(t, !strings.Contains(dep, never), "/node/redisnode imports %s", dep)
		}
	}
}

// This is all that package quorum and its parts may do to a machine: they open no file
// and no connection and start no program. Other listed packages may be used freely: they
// only compute, or draw random bits.
func TestMayDo(t *testing.T) {
	const inside = "quorum/internal/core quorum/internal/limit quorum/internal/line quorum/internal/machine " +
		"quorum/internal/queue quorum/internal/retry quorum/internal/vote"
	computes := strings.Fields(`bytes cmp container/heap context crypto/rand crypto/sha1 encoding/base64 encoding/binary
		encoding/hex encoding/json errors fmt
		iter log/slog maps math math/bits slices strconv strings sync sync/atomic time unicode unicode/utf8
		`)
	for _, own := range strings.Fields("clock internal/backlog internal/claim node " + inside) {
		computes = append(computes, module+"/"+own)
	}
	uses := map[string][]string{
		"os":                    {"Executable", "Getpid", "Hostname"},
		"path/filepath":         {"Base"},
		"runtime/debug":         {"Stack"},
		"golang.org/x/sys/unix": {"CLOCK_BOOTTIME", "CLOCK_MONOTONIC", "ClockGettime", "Timespec"},
	}
	files := 0
	for _, dir := range strings.Fields("quorum node clock internal/backlog internal/claim " + inside) {
		all, err := filepath.Glob("../" + dir + "/*.go")
		assert.Succeed(t, err)
		for _, name := range all {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			files++
			file := assert.Got(parser.ParseFile(token.NewFileSet(), name, nil, 0))(t)
			allowed := make(map[string][]string) // by the name of the package in this file
			for _, i := range file.Imports {
				path, _ := strconv.Unquote(i.Path.Value)
				switch {
				case i.Name == nil && uses[path] != nil:
					allowed[filepath.Base(path)] = uses[path]
				case i.Name != nil || !slices.Contains(computes, path):
					t.Errorf("%s imports %s", name, path)
				}
			}
			ast.Inspect(file, func(n ast.Node) bool {
				if s, ok := n.(*ast.SelectorExpr); ok {
					if pkg, ok := s.X.(*ast.Ident); ok && allowed[pkg.Name] != nil &&
						!slices.Contains(allowed[pkg.Name], s.Sel.Name) {
						t.Errorf("%s uses %s.%s", name, pkg.Name, s.Sel.Name)
					}
				}
				return true
			})
		}
	}
	assert.That(t, files >= 30, "%d files", files)
}
