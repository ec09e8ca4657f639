// Package words holds the project's texts to plain English.
package words

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/redquorum/redquorum/internal/assert"
)

// banned are hard words and turns, each with a better one. Patterns ignore case, except
// in (?-i:...).
var banned = []struct{ pattern, instead string }{
	{`\bfor want of\b`, "because there is no"},
	{`\bheeds\b|\b(not|to) heed\b|\b(is|are|not) heeded\b`, "obeys, handles, is ignored"},
	{`\bmend(s|ed|ing)?\b`, "fix"},
	{`\banew\b`, "again"},
	{`\bso long( as\b|[^ a-z]|$)`, "as long as, or name the time"},
	{`\bas far as\b`, "if, where, or two sentences"},
	{`\b(is|are|was|were|be|been|being) told\b`, "learns, is notified, or what it gets"},
	{`\bof (which|whom)\b`, "two sentences"},
	{`\bnone of ours\b`, "not made by redquorum"},
	{`\bwhoever\b`, "a noun: the caller, any holder"},
	{`\bhardly (ever|any)\b`, "rarely"},
	{`\bbeside\b`, "next to, besides, or with"},
	{`\bfor ever\b`, "forever"},
	{`\b(has|have|had|having|with) no vote\b|\bwithout a vote\b`, "is ignored, does not count"},
	{`\bto be had\b`, "can be got, or a verb"},
	{`\bto and fro\b`, "back and forth"},
	{`\bshall\b`, "must, should, is to"},
	{`\bbatons?\b|\b(bury|buries|buried)\b`, "a detached lease; to remove what is dead"},
	{`\b(stand|stands|wait|waits) in (the )?line\b`, "is queued"},
	{`\b(?-i:an advice|advices)\b`, "a recommendation"},
	{`(^|[.;!*|-] )(?-i:Who) [a-z]+[^?:.;!]*[.;!]|; who [a-z]+`, "a noun as the subject: a caller, a waiter, the holder"},
	{`(^|[.;!*|-] )(?-i:What) [a-z]+[^?:.;!]*[.;!]`, "a noun as the subject, not a clause"},
	{`\b(behaviour|licence|neighbour|cancell(ed|ing))|\b(recogn|organ|initial|serial|synchron)is(e|ing)`, "American spelling"},
}

func TestPlainWords(t *testing.T) {
	root := filepath.Join("..", "..")
	var patterns []*regexp.Regexp
	for _, b := range banned {
		patterns = append(patterns, regexp.MustCompile("(?i)"+b.pattern))
	}
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := filepath.ToSlash(strings.TrimPrefix(path, root+string(filepath.Separator)))
		switch {
		case entry.IsDir() && (entry.Name() == "testdata" || entry.Name() == ".git"):
			return fs.SkipDir
		case entry.IsDir() || strings.HasPrefix(name, "internal/words/"):
			return nil
		}
		var texts []*text
		switch filepath.Ext(name) {
		case ".md", ".txt":
			texts, err = page(path)
		case ".go":
			texts, err = source(path)
		}
		for _, text := range texts {
			for i, p := range patterns {
				for _, at := range p.FindAllStringIndex(text.String(), -1) {
					t.Errorf("%s:%d: %q: better: %s", name, text.line(at[0]), text.String()[at[0]:at[1]], banned[i].instead)
				}
			}
		}
		return err
	})
	assert.Succeed(t, err)
}

type text struct {
	strings.Builder
	starts []int // of its lines, in the text
	first  int   // its first line, in the file
}

func (t *text) add(line string) {
	if t.Len() > 0 {
		t.WriteByte(' ')
	}
	t.starts = append(t.starts, t.Len())
	t.WriteString(strings.TrimSpace(line))
}

func (t *text) line(offset int) int {
	i, _ := slices.BinarySearch(t.starts, offset+1)
	return t.first + i - 1
}

// paragraphs splits lines, the first of which is at line first, at the empty ones.
func paragraphs(lines []string, first int) (texts []*text) {
	open := false
	for i, line := range lines {
		if strings.TrimSpace(line) == "" {
			open = false
			continue
		}
		if !open {
			texts = append(texts, &text{first: first + i})
			open = true
		}
		texts[len(texts)-1].add(line)
	}
	return texts
}

var target = regexp.MustCompile(`\]\([^)]*\)`)

func page(path string) ([]*text, error) {
	content, err := os.ReadFile(path)
	return paragraphs(strings.Split(target.ReplaceAllString(string(content), "]"), "\n"), 1), err
}

// source returns the comments of a Go file, and its string literals.
func source(path string) (texts []*text, err error) {
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, path, nil, parser.ParseComments)
	if err != nil {
		return nil, err
	}
	for _, group := range file.Comments {
		var lines []string
		for _, comment := range group.List {
			for line := range strings.Lines(comment.Text) {
				lines = append(lines, strings.Trim(line, "/* \t\n"))
			}
		}
		texts = append(texts, paragraphs(lines, files.Position(group.Pos()).Line)...)
	}
	ast.Inspect(file, func(n ast.Node) bool {
		if literal, ok := n.(*ast.BasicLit); ok && literal.Kind == token.STRING {
			lines := strings.Split(strings.Trim(literal.Value, "\"`"), "\n")
			texts = append(texts, paragraphs(lines, files.Position(literal.Pos()).Line)...)
		}
		return true
	})
	return texts, nil
}
