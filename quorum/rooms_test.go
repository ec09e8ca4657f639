package quorum_test

import (
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/redquorum/redquorum/internal/assert"
)

// The rooms of the package. Each uses only what is in itself and in those below it.
var rooms = []struct {
	name  string
	files []string
}{
	{"words: what users read", []string{"doc", "errors", "event"}},
	{"what decides", []string{"options", "config", "claim", "ballot", "tally", "nextstep", "findings", "tokens", "voters", "report"}},
	{"the engine", []string{"engine", "timers", "request", "line", "limiter", "queue", "round", "waiter", "handover", "hold", "minhold", "readwrite", "renew", "release", "label", "settings", "asking", "steps"}},
	{"what users call", []string{"locker", "with", "prefix", "lease", "inspect", "ask", "watch", "handle", "resume", "multilease"}},
}

func TestRooms(t *testing.T) {
	floor := make(map[string]int)
	for i, room := range rooms {
		for _, f := range room.files {
			floor[f+".go"] = i
		}
	}
	fset, uses := readSource(t)
	file := func(p token.Pos) string { return filepath.Base(fset.Position(p).Filename) }
	for id, object := range uses {
		if object.Pkg() == nil || object.Pkg().Name() != "quorum" {
			continue
		}
		from, to := file(id.Pos()), file(object.Pos())
		for _, f := range []string{from, to} {
			if _, there := floor[f]; !there {
				t.Fatalf("%s is in no room", f)
			}
		}
		if floor[from] < floor[to] {
			t.Errorf("%v uses %s of %s, which is above it", fset.Position(id.Pos()), object.Name(), to)
		}
	}
}

// readSource returns the identifiers of the package's source, and what they mean.
func readSource(t *testing.T) (*token.FileSet, map[*ast.Ident]types.Object) {
	paths := make(map[string]string)
	out, err := exec.Command("go", "list", "-export", "-deps", "-f", "{{.ImportPath}} {{.Export}}", ".").Output()
	assert.Succeed(t, err)
	for line := range strings.Lines(string(out)) {
		path, file, _ := strings.Cut(strings.TrimSpace(line), " ")
		paths[path] = file
	}
	names, err := filepath.Glob("*.go")
	assert.Succeed(t, err)
	fset, info := token.NewFileSet(), &types.Info{Uses: make(map[*ast.Ident]types.Object)}
	var files []*ast.File
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(fset, name, nil, 0)
		assert.Succeed(t, err)
		files = append(files, f)
	}
	config := types.Config{Importer: importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) { return os.Open(paths[path]) })}
	succeed(t, errorOf(config.Check("quorum", fset, files, info)))
	return fset, info.Uses
}
