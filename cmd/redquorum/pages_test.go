package main

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/redquorum/redquorum/internal/assert"
	"github.com/redquorum/redquorum/internal/tests"
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
	return text, fileOf(t, text)
}

func TestCompletion(t *testing.T) {
	for line, words := range map[string]string{
		"st":                    "status",
		"run --term":            "--term-grace",
		"run --lease ":          ":4",
		"run --name x -- no-su": ":0", // files
		"run --cacert ":         ":0",
		"sim explore --out ":    ":16", // folders
		"sim m":                 "manual matrix",
		"sim scenario --cl":     "--client",
		"sim scenario S24":      "S24",
		"completion ":           "bash zsh fish powershell",
		"help de":               "demo",
		"list --a":              "--all",
	} {
		_, stdout, _ := redquorum(t, append([]string{"__completeNoDesc"}, strings.Split(line, " ")...)...)
		got, directive, _ := strings.Cut("\n"+stdout, "\n:")
		if got = strings.Join(strings.Fields(got), " "); got == "" {
			got = ":" + strings.TrimSpace(directive)
		}
		assert.That(t, got == words, "%q: %q, want %q", line, got, words)
	}
	want(t, exitUsage, `the shell is "sh"; it must be bash, zsh, fish or powershell`, "completion", "sh")
	want(t, exitUsage, "the shell is missing", "completion")
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		want(t, exitOK, "__complete", "completion", shell)
	}
}

func TestManPage(t *testing.T) {
	text, file := outputOf(t, "man")
	tests.Says(t, text, "\n.SH REDQUORUM SIM SCENARIO\n")
	assert.That(t, roff(`.x \n`) == `\&.x \en` && roff("'x") == `\&'x`, "a line is taken for a command of roff")
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
		tests.Narrow(t, string(out), 80)
	})
	t.Run("mandoc", func(t *testing.T) {
		out, err := exec.Command(tool(t, "mandoc"), "-Tlint", "-W", "error", file).CombinedOutput()
		assert.That(t, err == nil, "%v: %s", err, out)
	})
}
