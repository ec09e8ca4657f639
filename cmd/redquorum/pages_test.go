package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"
)

// tool skips the test where a program is missing.
func tool(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Skip(err)
	}
	return path
}

// outputOf writes what the program prints to a file.
func outputOf(t *testing.T, args ...string) (text, file string) {
	t.Helper()
	text = want(t, exitOK, "redquorum", args...)
	file = filepath.Join(t.TempDir(), "out")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return text, file
}

// Every verb has a page with flags, values and files, and all three scripts have them.
func TestHelpPages(t *testing.T) {
	pages := helpPages()
	known := make(map[string]helpFlag)
	for _, p := range pages {
		name := strings.Join(p.words, " ")
		if !strings.HasPrefix(p.text, "usage: redquorum "+p.words[0]) {
			t.Errorf("%s: %q", name, p.text)
		}
		for _, f := range p.flags {
			known[name+" "+f.name] = f
			if f.usage == "" || strings.Contains(f.usage, "\t") {
				t.Errorf("%s: %+v", name, f)
			}
		}
	}
	if len(pages) < len(verbs())+8 {
		t.Errorf("%d pages", len(pages))
	}
	for flag, value := range map[string]string{"run --fair": "", "run --lease": "duration", "run -c": "text", "status --cacert": "file",
		"bench --html": "file", "sim explore --out": "folder", "sim shrink -o": "file"} {
		if f, ok := known[flag]; !ok || f.value != value {
			t.Errorf("%s: %+v, want %q", flag, f, value)
		}
	}
	for shell, script := range shells {
		text := script(pages)
		for _, p := range pages {
			for _, f := range p.flags {
				if !strings.Contains(text, strings.TrimLeft(f.name, "-")) {
					t.Errorf("%s: %v has no %s", shell, p.words, f.name)
				}
			}
		}
	}
	want(t, exitUsage, `the shell is "sh"; it must be bash, zsh or fish`, "completion", "sh")
	want(t, exitUsage, "the shell, bash, zsh or fish, is missing", "completion")
	want(t, exitUsage, `unexpected argument "run"`, "man", "run")
}

// No page that is read on a terminal is wider than 80 columns.
func TestWidths(t *testing.T) {
	texts := map[string]string{"": want(t, exitOK, "usage: ", "help"), "sim manual": want(t, exitOK, "redquorum plan 1", "sim", "manual")}
	for _, p := range helpPages() {
		name := strings.Join(p.words, " ")
		texts[name+" --help"] = want(t, exitOK, "usage: ", append(p.words, "--help")...)
	}
	for name, text := range texts {
		for line := range strings.Lines(text) {
			if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > 80 || strings.Contains(line, "\t") {
				t.Errorf("%s: %d columns: %s", name, n, line)
			}
		}
	}
}

func TestCompletionSyntax(t *testing.T) {
	for shell := range shells {
		t.Run(shell, func(t *testing.T) {
			path := tool(t, shell)
			_, file := outputOf(t, "completion", shell)
			if out, err := exec.Command(path, "-n", file).CombinedOutput(); err != nil || len(out) > 0 {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
}

func TestBashCompletes(t *testing.T) {
	bash := tool(t, "bash")
	_, file := outputOf(t, "completion", "bash")
	for line, want := range map[string]string{
		"st":                    "status",
		"run --term":            "--term-grace",
		"run --name x -- no-su": "",
		"run --cacert ":         "",
		"run --lease ":          "",
		"sim m":                 "manual matrix",
		"sim scenario --cl":     "--client",
		"sim scenario l":        "list",
		"sim scenario S24":      "S24",
		"completion ":           "bash zsh fish",
		"help de":               "demo",
		"list --a":              "--all",
	} {
		words := append([]string{"-c", `source "$0"; COMP_WORDS=("$@"); COMP_CWORD=$(($#-1)); _redquorum; echo "${COMPREPLY[*]}"`, file, "redquorum"},
			strings.Split(line, " ")...)
		out, err := exec.Command(bash, words...).CombinedOutput()
		if got := strings.TrimSpace(string(out)); err != nil || got != want {
			t.Errorf("%q: %q, want %q (%v)", line, got, want, err)
		}
	}
}

func TestManPage(t *testing.T) {
	text, file := outputOf(t, "man")
	for _, part := range []string{"\n.SS redquorum run\n", "\n.SS redquorum sim scenario\n", "\n.B \\-\\-term\\-grace duration\n", `-c 'dump | gzip >dump.gz'`} {
		if !strings.Contains(text, part) && !strings.Contains(text, roff(part)) {
			t.Errorf("%q is missing", part)
		}
	}
	if roff(`.x \n`) != `\&.x \en` || roff("'x") != `\&'x` {
		t.Error("a line is taken for a command of roff")
	}
	t.Run("man", func(t *testing.T) {
		cmd := exec.Command(tool(t, "man"), "-P", "cat", "--warnings", "-l", file)
		cmd.Env = append(os.Environ(), "MANWIDTH=80", "LC_ALL=C.UTF-8")
		var errs strings.Builder
		cmd.Stderr = &errs
		out, err := cmd.Output()
		if err != nil && strings.Contains(errs.String(), "option") {
			t.Skip("this man takes other options: ", errs.String())
		}
		if err != nil || errs.Len() > 0 || !strings.Contains(string(out), "redquorum run nightly --wait 10s -- ./report.sh") {
			t.Errorf("%v: %s", err, errs.String())
		}
		for line := range strings.Lines(string(out)) {
			if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > 80 {
				t.Errorf("%d columns: %s", n, line)
			}
		}
	})
	t.Run("mandoc", func(t *testing.T) {
		if out, err := exec.Command(tool(t, "mandoc"), "-Tlint", "-W", "error", file).CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
	})
}
