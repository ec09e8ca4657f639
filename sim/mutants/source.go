package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// A source is the module as it is on disk. It reads each package once.
type source struct {
	root     string
	files    map[string]string  // text by path from the root
	packages map[string][]place // by folder
}

// A place is where a declaration stands, with its comment.
type place struct {
	name     string // "majority", "waiter.attempt"
	file     string
	from, to int
}

// A change is an edit that was found.
type change struct {
	place
	new string
}

func newSource(root string) *source {
	return &source{root: root, files: make(map[string]string), packages: make(map[string][]place)}
}

// find returns the place of an edit's text, which must be there exactly once.
func (s *source) find(e Edit) (change, error) {
	places, err := s.places(e.In)
	if err != nil {
		return change{}, err
	}
	if e.Old == e.New {
		return change{}, fmt.Errorf("nothing changes in %s", e.In)
	}
	n := 0
	var found change
	for _, p := range places {
		text := s.files[p.file][p.from:p.to]
		if i := strings.Index(text, e.Old); i >= 0 {
			n += strings.Count(text, e.Old)
			found = change{place{p.name, p.file, p.from + i, p.from + i + len(e.Old)}, e.New}
		}
	}
	if n != 1 {
		return change{}, fmt.Errorf("the text to change is %d times in %s, and must be there once:\n%s", n, e.In, e.Old)
	}
	return found, nil
}

// places returns where a declaration stands; it may do so once for each operating system.
// A name with a slash at its last dot is a file, as a whole.
func (s *source) places(in string) ([]place, error) {
	if filepath.Ext(in) == ".lua" {
		err := s.read(in)
		return []place{{in, in, 0, len(s.files[in])}}, err
	}
	folder, name, _ := strings.Cut(in, ".")
	all, ok := s.packages[folder]
	if !ok {
		var err error
		if all, err = s.declarations(folder); err != nil {
			return nil, err
		}
		s.packages[folder] = all
	}
	return slices.DeleteFunc(slices.Clone(all), func(p place) bool { return p.name != name }), nil
}

func (s *source) read(file string) error {
	b, err := os.ReadFile(filepath.Join(s.root, file))
	s.files[file] = string(b)
	return err
}

// declarations lists what a package declares, without its tests.
func (s *source) declarations(folder string) (all []place, err error) {
	paths, err := filepath.Glob(filepath.Join(s.root, folder, "*.go"))
	if err != nil || len(paths) == 0 {
		return nil, fmt.Errorf("no package in %q: %w", folder, err)
	}
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file := folder + "/" + filepath.Base(path)
		if err := s.read(file); err != nil {
			return nil, err
		}
		set := token.NewFileSet()
		tree, err := parser.ParseFile(set, path, s.files[file], parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		for _, d := range tree.Decls {
			for _, one := range declared(d) {
				from, to := set.Position(one.from).Offset, set.Position(one.to).Offset
				to = min(to+1, len(s.files[file])) // with the end of the line
				all = append(all, place{one.name, file, from, to})
			}
		}
	}
	return all, nil
}

// A declaration is where a name is declared.
type declaration struct {
	name     string
	from, to token.Pos
}

// declared lists what one declaration declares: a group has several.
func declared(d ast.Decl) (all []declaration) {
	add := func(name string, doc *ast.CommentGroup, n ast.Node) {
		from := n.Pos()
		if doc != nil {
			from = doc.Pos()
		}
		all = append(all, declaration{name, from, n.End()})
	}
	switch d := d.(type) {
	case *ast.FuncDecl:
		add(functionName(d), d.Doc, d)
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			switch spec := spec.(type) {
			case *ast.TypeSpec:
				add(spec.Name.Name, spec.Doc, spec)
			case *ast.ValueSpec:
				add(spec.Names[0].Name, spec.Doc, spec)
			}
		}
	}
	return all
}

// functionName is a function's name, with its receiver's type before it.
func functionName(d *ast.FuncDecl) string {
	if d.Recv == nil {
		return d.Name.Name
	}
	t := d.Recv.List[0].Type
	if star, ok := t.(*ast.StarExpr); ok {
		t = star.X
	}
	if generic, ok := t.(*ast.IndexExpr); ok {
		t = generic.X
	}
	return t.(*ast.Ident).Name + "." + d.Name.Name
}
