// Package packetstest runs tests in a network namespace.
package packetstest

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/redquorum/redquorum/internal/tests"
	"github.com/redquorum/redquorum/sim/chaos/packets"
)

// lacking comes before what this machine lacks, in the output of a test in a namespace.
const lacking = "not here: "

// Open runs the calling test once more, as a process in a namespace of its own, and returns nil.
// There it opens the namespace's relay instead, which it closes after the test. The test is skipped if that
// is not possible here.
func Open(t *testing.T) *packets.Relay {
	t.Helper()
	const variable = "PACKETSTEST_INSIDE"
	if os.Getenv(variable) == "" {
		tests.NeedSeconds(t)
		cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
		cmd.Env = append(os.Environ(), variable+"=1")
		again(t, cmd)
		return nil
	}
	r, err := packets.Open()
	if errors.Is(err, errors.ErrUnsupported) {
		t.Skip(lacking + err.Error())
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r
}

// again runs the test in a namespace, and reports its result.
func again(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	p, err := packets.Start(cmd)
	if errors.Is(err, errors.ErrUnsupported) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer p.Kill()
	<-p.Exited()
	if p.ExitCode() != 0 {
		t.Errorf("%s", &out)
	} else if _, why, skipped := strings.Cut(out.String(), lacking); skipped {
		why, _, _ = strings.Cut(why, "\n")
		t.Skip(why)
	}
}

// SentAgain returns how many segments TCP has sent again in this namespace.
func SentAgain(t *testing.T) (segments int) {
	t.Helper()
	text, err := os.ReadFile("/proc/self/net/snmp")
	if err != nil {
		t.Fatal(err)
	}
	var rows [][]string
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "Tcp:") {
			rows = append(rows, strings.Fields(line))
		}
	}
	column := slices.Index(rows[0], "RetransSegs")
	if _, err := fmt.Sscan(rows[1][column], &segments); err != nil {
		t.Fatal(err)
	}
	return segments
}
