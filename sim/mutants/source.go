package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// A source is the module on disk, each package read once.
type source struct {
	root     string
	files    map[string]string             // text by path from the root
	packages map[string]map[string][]place // declarations by folder and name
}

type place struct {
	file     string
	from, to int
}

type change struct {
	place
	new string
}

func newSource(root string) *source {
	return &source{root: root, files: make(map[string]string), packages: make(map[string]map[string][]place)}
}

// find requires that the edit's text is there exactly once.
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
			found = change{place{p.file, p.from + i, p.from + i + len(e.Old)}, e.New}
		}
	}
	if n != 1 {
		return change{}, fmt.Errorf("the text to change is %d times in %s, and must be there once:\n%s", n, e.In, e.Old)
	}
	return found, nil
}

// places returns where a declaration stands: perhaps once for each operating system. A
// script is a whole file.
func (s *source) places(in string) ([]place, error) {
	if filepath.Ext(in) == ".lua" {
		err := s.read(in)
		return []place{{in, 0, len(s.files[in])}}, err
	}
	folder, name, _ := strings.Cut(in, ".")
	if s.packages[folder] == nil {
		all, err := s.declarations(folder)
		if err != nil {
			return nil, err
		}
		s.packages[folder] = all
	}
	return s.packages[folder][name], nil
}

func (s *source) read(file string) error {
	b, err := os.ReadFile(filepath.Join(s.root, file))
	s.files[file] = string(b)
	return err
}

// heads is how declarations begin that are not in parentheses.
var heads = regexp.MustCompile(`(?m)^(?:func \((?:\w+ )?\*?(\w+)(?:\[\w+\])?\) |func |type |var |const )(\w+)`)

// declarations returns what a package declares, without its tests: "majority",
// "waiter.attempt". Each extends to the next.
func (s *source) declarations(folder string) (map[string][]place, error) {
	paths, err := filepath.Glob(filepath.Join(s.root, folder, "*.go"))
	if err != nil || len(paths) == 0 {
		return nil, fmt.Errorf("no package in %q: %w", folder, err)
	}
	all := make(map[string][]place)
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file := folder + "/" + filepath.Base(path)
		if err := s.read(file); err != nil {
			return nil, err
		}
		text, name, from := s.files[file], "", 0
		for _, head := range append(heads.FindAllStringSubmatchIndex(text, -1),
			[]int{len(text), len(text), -1, -1, 0, 0}) {
			all[name] = append(all[name], place{file, from, head[0]})
			name, from = text[head[4]:head[5]], head[0]
			if head[2] >= 0 {
				name = text[head[2]:head[3]] + "." + name
			}
		}
	}
	return all, nil
}
