package words

import (
	"bytes"
	"fmt"
	"go/scanner"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/redquorum/redquorum/internal/assert"
)

const root = "../.."

var link = regexp.MustCompile(`\]\(([^)#\s]+)[^)]*\)`)

func TestLinks(t *testing.T) {
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(path) != ".md" && d.Name() != "llms.txt" {
			return err
		}
		text, err := os.ReadFile(path)
		for _, m := range link.FindAllSubmatch(text, -1) {
			to := string(m[1])
			if strings.Contains(to, ":") || !strings.ContainsAny(to, "./") ||
				path == filepath.Join(root, "sim/rivals/head.md") {
				continue // elsewhere, Go code, or a part of a page in another directory
			}
			_, err := os.Stat(filepath.Join(filepath.Dir(path), to))
			assert.That(t, err == nil, "%s links to %s: %v", path, to, err)
		}
		return err
	})
	assert.Succeed(t, err)
}

// A token may be Timeout behind its clock: all texts about clocks that differ have to say
// so.
func TestClocksOfTokens(t *testing.T) {
	plain, found := strings.NewReplacer("`", "", "[", "", "//", ""), 0
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(path) != ".md" && filepath.Ext(path) != ".go" {
			return err
		}
		text, err := os.ReadFile(path)
		parts := strings.Split(strings.Join(strings.Fields(plain.Replace(string(text))), " "),
			"agree to within "+"MaxLease")
		for _, after := range parts[1:] {
			found++
			right := strings.HasPrefix(after, " less Timeout")
			assert.That(t, right, "%s: how far clocks may differ is MaxLease%.20s", path, after)
		}
		return err
	})
	assert.Succeed(t, err)
	assert.That(t, found >= 5, "%d places", found)
}

// logged are calls of quorum's log, and the texts of its nodes' failures.
var logged = regexp.MustCompile(`(?:\.(?:log|Log|warn)\((?:slog\.Level\w+, |level, )?|\btext = |known\[i\], )"([^":]*)`)

func TestLogMessages(t *testing.T) {
	page := string(assert.Got(os.ReadFile(filepath.Join(root, "docs/operations.md")))(t))
	found := 0
	files := assert.Got(filepath.Glob(filepath.Join(root, "quorum/*.go")))(t)
	files = append(files, assert.Got(filepath.Glob(filepath.Join(root, "quorum/internal/*/*.go")))(t)...)
	for _, path := range files {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		for _, m := range logged.FindAllSubmatch(assert.Got(os.ReadFile(path))(t), -1) {
			found++
			assert.That(t, strings.Contains(page, "`"+string(m[1])),
				"%s logs %q, which docs/operations.md does not list", path, m[1])
		}
	}
	assert.That(t, found >= 8, "%d messages", found)
}

var inEngine = regexp.MustCompile("`(\\w+)\\.(\\w+)`")

// The specification's page says what each of its actions and variables is in the engine.
func TestNamesInTheSpecification(t *testing.T) {
	var code []byte
	for _, of := range []string{"quorum/*.go", "quorum/internal/*/*.go", "node/*.go"} {
		for _, path := range assert.Got(filepath.Glob(filepath.Join(root, of)))(t) {
			code = append(code, assert.Got(os.ReadFile(path))(t)...)
		}
	}
	page := string(assert.Got(os.ReadFile(filepath.Join(root, "spec/README.md")))(t))
	found := 0
	for _, m := range inEngine.FindAllStringSubmatch(page, -1) {
		of, member := m[1], m[2]
		if of == "faults" || member == "lua" || member == "go" || member == "tla" || member == "dfy" {
			continue
		}
		found++
		declared := regexp.MustCompile(fmt.Sprintf(`(?m)^(?:type %[1]s|package %[1]s)\b(?s:.*)^(?:func |\t).*\b%[2]s\b`,
			of, member))
		assert.That(t, declared.Match(code), "spec/README.md names %s.%s", of, member)
	}
	assert.That(t, found >= 15, "%d names", found)
}

var (
	rowToRead = regexp.MustCompile(`(?m)^\| (.*) \| ([0-9,]+) \| [^|]*\|$`)
	quoted    = regexp.MustCompile("`([^`]*)`")
	sums      = regexp.MustCompile(`rows above the last: ([0-9,]+) lines[^|]* runs all ([0-9,]+)\.`)
)

// ARCHITECTURE.md says how many lines of code there are to read, to a tenth, and their
// sums. The last row is the rest.
func TestLinesToRead(t *testing.T) {
	text := string(assert.Got(os.ReadFile(filepath.Join(root, "ARCHITECTURE.md")))(t))
	rows := rowToRead.FindAllStringSubmatch(text, -1)
	assert.Must(t, len(rows) >= 6, "%d rows", len(rows))
	left, sum := 0, 0
	for _, of := range []string{"clock/clock.go", "quorum", "node/*.go", "node/internal/courier", "internal/claim", "internal/resp",
		"internal/replicas", "node/redisnode/*.go"} {
		for _, path := range assert.Got(filepath.Glob(filepath.Join(root, of)))(t) {
			left += code(t, path)
		}
	}
	for i, row := range rows {
		lines, dir := 0, ""
		files, _, _ := strings.Cut(row[1], ": ")
		for _, m := range quoted.FindAllStringSubmatch(files, -1) {
			if strings.Contains(m[1], "/") {
				dir = filepath.Dir(m[1])
				lines += code(t, filepath.Join(root, m[1]))
			} else {
				lines += code(t, filepath.Join(root, dir, m[1]))
			}
		}
		if i == len(rows)-1 {
			lines = left
		}
		t.Logf("%d: %s", lines, row[1])
		said := number(t, row[2])
		assert.That(t, lines >= said*9/10 && lines <= said*11/10, "%.60s...: %d lines, and the page says %d", row[1],
			lines, said)
		left, sum = left-lines, sum+said
	}
	said := sums.FindStringSubmatch(text)
	assert.Must(t, said != nil, "the sums are not there")
	assert.Equal(t, number(t, said[2]), sum)
	assert.Equal(t, number(t, said[1]), sum-number(t, rows[len(rows)-1][2]))
}

func number(t *testing.T, text string) int {
	return assert.Got(strconv.Atoi(strings.ReplaceAll(text, ",", "")))(t)
}

// code counts the lines of code of a file, or below a directory, without comments and
// tests.
func code(t *testing.T, path string) (lines int) {
	err := filepath.WalkDir(path, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		switch filepath.Ext(path) {
		case ".go":
			lines += goLines(text)
		case ".lua":
			for line := range bytes.Lines(text) {
				if line = bytes.TrimSpace(line); len(line) > 0 && !bytes.HasPrefix(line, []byte("--")) {
					lines++
				}
			}
		}
		return err
	})
	assert.Succeed(t, err)
	return lines
}

func goLines(text []byte) int {
	file := token.NewFileSet().AddFile("", -1, len(text))
	var s scanner.Scanner
	s.Init(file, text, nil, 0)
	var with []int
	for {
		at, tok, lit := s.Scan()
		if tok == token.EOF {
			return len(slices.Compact(with))
		}
		if tok == token.SEMICOLON && lit == "\n" {
			continue
		}
		for i := range 1 + strings.Count(lit, "\n") {
			with = append(with, file.Line(at)+i)
		}
	}
}
