package quorum_test

import (
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The mutexes that may be taken while another is held: what the comment of Locker says.
var lockOrder = []string{
	"queues hold", "renewal hold", "hold agenda",
}

// TestLockOrder reads the source. Whatever may be called while a mutex is held takes no other
// than lockOrder allows, asks no node, and does not call Options.Observe.
func TestLockOrder(t *testing.T) {
	s := readSource(t)
	used := make(map[string]bool)
	for _, f := range s.funcs {
		for _, under := range f.under {
			all := make(map[string]bool)
			s.collect(under.callee, all, make(map[string]bool))
			for what := range all {
				pair := under.held + " " + what
				used[pair] = true
				if !slices.Contains(lockOrder, pair) {
					t.Errorf("%v: under the mutex of a %s: %s of %s", s.fset.Position(under.pos), under.held, what, under.callee)
				}
			}
		}
	}
	for _, pair := range lockOrder {
		if !used[pair] {
			t.Errorf("it is allowed and nowhere used: %s", pair)
		}
	}
}

// TestTypesStaySmall holds a Locker to being its parts, and a waiter to being its own.
func TestTypesStaySmall(t *testing.T) {
	scope := readSource(t).pkg.Scope()
	for _, row := range []struct {
		of              string
		fields, methods int // at most
	}{{"Locker", 12, 20}, {"waiter", 12, 30}} {
		named := scope.Lookup(row.of).Type().(*types.Named)
		if n := named.Underlying().(*types.Struct).NumFields(); n > row.fields {
			t.Errorf("%s has %d fields, at most %d are wanted", row.of, n, row.fields)
		}
		if n := named.NumMethods(); n > row.methods {
			t.Errorf("%s has %d methods, at most %d are wanted", row.of, n, row.methods)
		}
	}
}

// A source is package quorum, function by function.
type source struct {
	fset  *token.FileSet
	info  *types.Info
	pkg   *types.Package
	funcs map[string]*function
}

// A function is what one does itself: the mutexes it takes, by the name of the type that they
// guard, or "a call" to a node or an observer; whom it calls; and whom it calls under a mutex.
type function struct {
	does  map[string]bool
	calls map[string]bool
	under []call
}

type call struct {
	held, callee string
	pos          token.Pos
}

func readSource(t *testing.T) *source {
	paths := make(map[string]string)
	out, err := exec.Command("go", "list", "-export", "-deps", "-f", "{{.ImportPath}} {{.Export}}", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(out)) {
		path, file, _ := strings.Cut(strings.TrimSpace(line), " ")
		paths[path] = file
	}
	s := &source{fset: token.NewFileSet(), funcs: make(map[string]*function),
		info: &types.Info{Uses: make(map[*ast.Ident]types.Object), Defs: make(map[*ast.Ident]types.Object),
			Types: make(map[ast.Expr]types.TypeAndValue), Selections: make(map[*ast.SelectorExpr]*types.Selection)}}
	names, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	var files []*ast.File
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(s.fset, name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	config := types.Config{Importer: importer.ForCompiler(s.fset, "gc", func(path string) (io.ReadCloser, error) {
		return os.Open(paths[path])
	})}
	if s.pkg, err = config.Check("quorum", s.fset, files, s.info); err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		for _, decl := range file.Decls {
			if d, ok := decl.(*ast.FuncDecl); ok && d.Body != nil {
				f := &function{does: make(map[string]bool), calls: make(map[string]bool)}
				s.funcs[s.info.Defs[d.Name].(*types.Func).FullName()] = f
				s.statements(f, d.Body.List, nil)
			}
		}
	}
	return s
}

// statements goes through some while mutexes are held, and returns which are at their end. A
// function literal counts as called where it stands.
func (s *source) statements(f *function, list []ast.Stmt, held []string) []string {
	for _, one := range list {
		switch one := one.(type) {
		case *ast.DeferStmt:
			if _, unlock := s.mutex(one.Call); unlock == "" {
				held = s.expressions(f, one, held)
			}
		case *ast.BlockStmt:
			held = s.statements(f, one.List, held)
		case *ast.IfStmt:
			if one.Init != nil {
				held = s.statements(f, []ast.Stmt{one.Init}, held)
			}
			held = s.expressions(f, one.Cond, held)
			after := s.branch(f, one.Body.List, held)
			if one.Else != nil {
				after = append(after, s.branch(f, []ast.Stmt{one.Else}, held)...)
			} else {
				after = append(after, held...)
			}
			held = slices.Compact(slices.Sorted(slices.Values(after)))
		case *ast.ForStmt:
			held = s.statements(f, one.Body.List, s.expressions(f, one.Cond, held))
		case *ast.RangeStmt:
			held = s.statements(f, one.Body.List, s.expressions(f, one.X, held))
		case *ast.SwitchStmt:
			if one.Init != nil {
				held = s.statements(f, []ast.Stmt{one.Init}, held)
			}
			for _, clause := range one.Body.List {
				c := clause.(*ast.CaseClause)
				for _, e := range c.List {
					held = s.expressions(f, e, held)
				}
				s.branch(f, c.Body, held)
			}
		default:
			held = s.expressions(f, one, held)
		}
	}
	return held
}

// branch is statements of a branch, which holds nothing at its end if it returns.
func (s *source) branch(f *function, list []ast.Stmt, held []string) []string {
	held = s.statements(f, list, slices.Clone(held))
	if len(list) > 0 {
		switch list[len(list)-1].(type) {
		case *ast.ReturnStmt, *ast.BranchStmt:
			return nil
		}
	}
	return held
}

// expressions finds the calls in a part of a function.
func (s *source) expressions(f *function, in ast.Node, held []string) []string {
	if in == nil {
		return held
	}
	ast.Inspect(in, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncLit:
			s.statements(f, n.Body.List, slices.Clone(held))
			return false
		case *ast.CallExpr:
			if lock, unlock := s.mutex(n); lock != "" {
				f.does[lock] = true
				for _, h := range held {
					f.under = append(f.under, call{h, "lock " + lock, n.Pos()})
				}
				held = append(held, lock)
			} else if unlock != "" {
				held = slices.DeleteFunc(slices.Clone(held), func(h string) bool { return h == unlock })
			} else if callee := s.callee(n); callee != "" {
				f.calls[callee] = true
				for _, h := range held {
					f.under = append(f.under, call{h, callee, n.Pos()})
				}
			}
		}
		return true
	})
	return held
}

// mutex returns the type whose field mu a call locks or unlocks.
func (s *source) mutex(c *ast.CallExpr) (lock, unlock string) {
	method, ok := c.Fun.(*ast.SelectorExpr)
	if !ok {
		return "", ""
	}
	of, ok := method.X.(*ast.SelectorExpr)
	if !ok || s.info.Types[of].Type.String() != "sync.Mutex" {
		return "", ""
	}
	guarded := s.info.Types[of.X].Type
	if p, ok := guarded.(*types.Pointer); ok {
		guarded = p.Elem()
	}
	name := guarded.(*types.Named).Obj().Name()
	if method.Sel.Name == "Lock" {
		return name, ""
	}
	return "", name
}

// callee returns whom a call calls, "" if that is of no interest.
func (s *source) callee(c *ast.CallExpr) string {
	fun := ast.Unparen(c.Fun)
	if generic, ok := fun.(*ast.IndexExpr); ok {
		fun = generic.X
	}
	var name *ast.Ident
	switch fun := fun.(type) {
	case *ast.Ident:
		name = fun
	case *ast.SelectorExpr:
		name = fun.Sel
	default:
		return ""
	}
	switch of := s.info.Uses[name].(type) {
	case *types.Func:
		return of.Origin().FullName()
	case *types.Var:
		if of.Name() == "Observe" {
			return "Observe"
		}
	}
	return ""
}

// collect adds to all what a function does, itself or through others. seen are those that it has
// looked at.
func (s *source) collect(callee string, all, seen map[string]bool) {
	if lock, ok := strings.CutPrefix(callee, "lock "); ok {
		all[lock] = true
	}
	if callee == "Observe" || strings.HasPrefix(callee, "(github.com/redquorum/redquorum/node.Node).") && !strings.HasSuffix(callee, ".Name") {
		all["a call"] = true
	}
	for _, name := range s.implementations(callee) {
		if f := s.funcs[name]; f != nil && !seen[name] {
			seen[name] = true
			maps.Copy(all, f.does)
			for other := range f.calls {
				s.collect(other, all, seen)
			}
		}
	}
}

// implementations returns the functions that a call of callee may be of: several for a
// method of an interface of the package.
func (s *source) implementations(callee string) (all []string) {
	all = []string{callee}
	typ, method, ok := strings.Cut(strings.TrimPrefix(callee, "(quorum."), ").")
	if !ok {
		return all
	}
	of, ok := s.pkg.Scope().Lookup(typ).(*types.TypeName)
	if !ok {
		return all
	}
	if iface, ok := of.Type().Underlying().(*types.Interface); ok {
		for _, name := range s.pkg.Scope().Names() {
			if impl, ok := s.pkg.Scope().Lookup(name).(*types.TypeName); ok && types.Implements(types.NewPointer(impl.Type()), iface) {
				all = append(all, fmt.Sprintf("(*quorum.%s).%s", name, method), fmt.Sprintf("(quorum.%s).%s", name, method))
			}
		}
	}
	return all
}
