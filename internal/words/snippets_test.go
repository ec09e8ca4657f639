package words

import (
	"bytes"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/redquorum/redquorum/internal/assert"
)

const contrib = "github.com/redquorum/redquorum/contrib/"

var (
	snippet = regexp.MustCompile("(?ms)^```go\n(.*?)^```$")
	leftOut = regexp.MustCompile(`(?m)(^\s*|\{ )\.\.\.`) // what stands for statements
	listed  = regexp.MustCompile(`(?m)^(\w+) (\S+) (\S+)$`)
)

// A world has the packages that snippets use: of this module, of contrib, and the
// examples' imports.
type world struct {
	*testing.T
	set     *token.FileSet
	exports map[string]string // files that the compiler has written, by the packages' paths
	types.Importer
	prologue string
	named    map[string]bool // the packages that prologue imports
}

// The Go code of the pages fits the packages that it uses. Undeclared names may be
// anything.
func TestSnippets(t *testing.T) {
	if _, err := exec.LookPath("go"); err != nil {
		t.Skip(err)
	}
	w := newWorld(t)
	found := 0
	for _, page := range slices.Concat(w.files("docs/*.md"), w.files("*.md"), w.files("llms.txt")) {
		text := assert.Got(os.ReadFile(page))(t)
		for _, at := range snippet.FindAllSubmatchIndex(text, -1) {
			found++
			code := leftOut.ReplaceAllString(string(text[at[2]:at[3]]), "${1}panic(0);")
			w.check(fmt.Sprintf("//line %s:%d\n", page, bytes.Count(text[:at[2]], []byte("\n"))+1) + code)
		}
	}
	assert.That(t, found > 15, "%d snippets", found)
}

func newWorld(t *testing.T) *world {
	w := &world{t, token.NewFileSet(), make(map[string]string), nil, "package p\n", make(map[string]bool)}
	w.Importer = importer.ForCompiler(w.set, "gc",
		func(path string) (io.ReadCloser, error) { return os.Open(w.exports[path]) })
	list := exec.Command("go", "list", "-export", "-deps", "-f",
		"{{if or .Standard .Module.Main (eq .ImportPath .Module.Path)}}{{.Name}} {{.ImportPath}} {{.Export}}{{end}}",
		"database/sql", "./quorum", "./election", "./semaphore", "./node/...", "./examples/...")
	list.Dir, list.Stderr = root, os.Stderr
	out := assert.Got(list.Output())(t)
	for _, mod := range w.files("contrib/*/go.mod") {
		name := filepath.Base(filepath.Dir(mod))
		out = fmt.Appendf(out, "%s %s source\n", name, contrib+name)
	}
	for _, m := range listed.FindAllStringSubmatch(string(out), -1) {
		name, path := m[1], m[2]
		w.exports[path] = m[3]
		if name != "main" && !w.named[name] && !strings.Contains("/"+path, "/internal/") &&
			!strings.HasPrefix(path, "vendor/") {
			w.named[name] = true
			w.prologue += fmt.Sprintf("import %q\n", path)
		}
	}
	// everywhere the same
	w.prologue += "var (ctx context.Context; nodes []node.Node; locker *quorum.Locker; lease *quorum.Lease)\n"
	return w
}

func (w *world) files(pattern string) []string {
	return assert.Got(filepath.Glob(filepath.Join(root, pattern)))(w.T)
}

// Import reads packages of contrib, which are other modules, from their source, without
// their own imports.
func (w *world) Import(path string) (*types.Package, error) {
	dir, ok := strings.CutPrefix(path, contrib)
	if !ok {
		return w.Importer.Import(path)
	}
	var source []*ast.File
	for _, name := range w.files("contrib/" + dir + "/*.go") {
		if !strings.HasSuffix(name, "_test.go") {
			source = append(source, assert.Got(parser.ParseFile(w.set, name, nil, 0))(w.T))
		}
	}
	config := types.Config{Importer: w, IgnoreFuncBodies: true, Error: func(error) {}}
	p, _ := config.Check(path, w.set, source, nil)
	return p, nil
}

// check type-checks declarations or statements. Those with imports import all that they
// use.
func (w *world) check(code string) {
	imports := strings.Contains(code, "\nimport ")
	prologue := w.prologue
	if imports {
		prologue = "package p\n"
	}
	file, err := parser.ParseFile(w.set, "", prologue+code, 0)
	if err != nil && !imports {
		file, err = parser.ParseFile(w.set, "", prologue+"func _() error {\n"+code+"\npanic(0) }", 0)
	}
	if err != nil {
		w.Error(err)
		return
	}
	config := types.Config{Importer: w, Error: func(err error) {
		e, _ := errors.AsType[types.Error](err)
		name, undefined := strings.CutPrefix(e.Msg, "undefined: ")
		if (!e.Soft || imports) && (!undefined || strings.Contains(name, ".") || w.named[name]) {
			w.Error(err)
		}
	}}
	_, _ = config.Check("p", w.set, []*ast.File{file}, nil)
}
