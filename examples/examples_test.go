package examples

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/redquorum/redquorum/internal/assert"
	"github.com/redquorum/redquorum/internal/tests"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/quorum"
)

// The code on the page is the example's.
func TestServicePage(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "docs", "service.md"))
	assert.Succeed(t, err)
	code, err := os.ReadFile(filepath.Join("service", "main.go"))
	assert.Succeed(t, err)
	blocks := regexp.MustCompile("(?s)```go\n(.*?)(?:\t\\.\\.\\.\n}\n)?```").FindAllSubmatch(page, -1)
	assert.Must(t, len(blocks) >= 2, "%d blocks of code", len(blocks))
	others := regexp.MustCompile("mayRunTwice|takes no lock")
	for _, block := range blocks {
		assert.That(t, bytes.Contains(code, block[1]) || others.Match(block[1]), "not in the example:\n%s", block[1])
	}
}

func TestExamples(t *testing.T) {
	tests.NeedSeconds(t)
	dir := t.TempDir()
	for name, says := range map[string]string{
		"jobrunner": `(?m)^interval \d: \w+ (runs the job|has nothing to do)$`,
		"leader":    `^(?:(\w+) leads, and the others see \w+\n\w+ resigns\n){3}$`,
		"cache":     `to JPY\nreaders at the same time: (true|false); readers that saw half of a change: 0\n$`,
		"bank":      `^after 50 transfers there are 400 in all accounts together\n$`,
		"fenced":    `(?s)the first holder's lease is over: true\n.*a newer holder was here\nthe order is shipped\n$`,
		"payment":   `^5 orders are paid; the provider got 6 calls, and charged 5\n$`,
		"service": `(?s)free: 200 OK: paid\n.*at it: 409 Conflict: .*down: 503 Service Unavailable: not paid: try again\n` +
			`the service has ended: <nil>\n$`,
		"owners": `(?s)reached the owners of 12 keys\nterminated: the \d+ keys of an owner have others after .*former owner: a newer owner was here\n` +
			`killed: the \d+ keys .*former owner: a newer owner was here\n$`,
		"once":      `^1 refresh for 8 callers: \[access-1( access-1){7}\]\nbusy: true down: false\nbusy: false down: true\n$`,
		"simulated": `(?s)token: true\n  100 runs are sound\n.*token: false\n  seed \d+: .*after its lease had ended`,
	} {
		t.Run(name, func(t *testing.T) {
			if name != "service" { // to link each takes a second
				tests.NeedLong(t)
			}
			t.Parallel()
			program := filepath.Join(dir, name)
			out, err := exec.Command("go", "build", "-ldflags=-s -w", "-o", program, "./"+name).CombinedOutput()
			assert.Must(t, err == nil, "%v: %s", err, out)
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
			defer cancel()
			for tries := 0; ; tries++ {
				out, err := exec.CommandContext(ctx, program).CombinedOutput()
				if err == nil && regexp.MustCompile(says).Match(out) {
					break
				}
				late := bytes.Contains(out, []byte(quorum.ErrNoQuorum.Error())) || bytes.Contains(out, []byte(node.ErrTimeout.Error()))
				if tries == 3 || !late { // its nodes may be late on a busy machine
					t.Fatalf("%v: %s", err, out)
				}
			}
		})
	}
}
