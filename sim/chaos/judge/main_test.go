package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/redquorum/redquorum/internal/assert"
)

func TestJudge(t *testing.T) {
	for what, c := range map[string]struct{ history, want, err string }{
		"one after the other": {history: `{"client":1,"op":"acquire","name":"x","owner":"a","token":1,"call":0,"return":10}
			{"client":2,"op":"acquire","name":"x","owner":"b","token":2,"call":1,"return":31}
			{"client":1,"op":"write","name":"x","owner":"a","token":1,"call":20,"return":20}
			{"client":1,"op":"release","name":"x","owner":"a","token":1,"call":30,"return":30}
			{"client":1,"op":"write","name":"x","owner":"a","token":1,"call":40,"return":40,"refused":true}`, want: "x: linearizable, 5 operations"},
		"two holders at once": {history: `{"client":1,"op":"acquire","name":"x","owner":"a","token":1,"call":0,"return":10}
			{"client":2,"op":"acquire","name":"x","owner":"b","token":2,"call":5,"return":20}
			{"client":1,"op":"release","name":"x","owner":"a","token":1,"call":30,"return":30}
			{"client":2,"op":"release","name":"x","owner":"b","token":2,"call":40,"return":40}`,
			want: `x: NOT linearizable, 4 operations; no order has
  {"client":2,"op":"acquire","name":"x","owner":"b","token":2,"call":5,"return":20}`},
		"two holders of two names": {history: `{"client":1,"op":"acquire","name":"x","owner":"a","token":1,"call":0,"return":10}
			{"client":2,"op":"acquire","name":"y","owner":"b","token":2,"call":5,"return":20}`, want: "y: linearizable, 1 operations"},
		"a token that falls": {history: `{"client":1,"op":"acquire","name":"x","owner":"a","token":5,"call":0,"return":10}
			{"client":1,"op":"release","name":"x","owner":"a","token":5,"call":30,"return":30}
			{"client":2,"op":"acquire","name":"x","owner":"b","token":5,"call":35,"return":40}`, want: "x: NOT"},
		"two readers": {history: `{"client":1,"op":"acquire","name":"x","mode":"read","owner":"a","token":2,"call":0,"return":10}
			{"client":2,"op":"acquire","name":"x","mode":"read","owner":"b","token":1,"call":5,"return":20}`, want: "x: linearizable"},
		"a reader and a writer": {history: `{"client":1,"op":"acquire","name":"x","mode":"read","owner":"a","token":1,"call":0,"return":10}
			{"client":2,"op":"acquire","name":"x","mode":"write","owner":"b","token":2,"call":15,"return":20}
			{"client":1,"op":"release","name":"x","mode":"read","owner":"a","token":1,"call":30,"return":30}`, want: "x: NOT"},
		"a reader between two writers": {history: `{"client":1,"op":"acquire","name":"x","mode":"read","owner":"a","token":3,"call":0,"return":10}
			{"client":1,"op":"release","name":"x","mode":"read","owner":"a","token":3,"call":11,"return":11}
			{"client":2,"op":"acquire","name":"x","mode":"write","owner":"b","token":3,"call":15,"return":20}`, want: "x: NOT"},
		"a late write that is taken": {history: `{"client":2,"op":"write","name":"x","owner":"b","token":2,"call":1,"return":1}
			{"client":1,"op":"write","name":"x","owner":"a","token":1,"call":2,"return":2}`, want: "x: NOT"},
		"a release of nobody":  {history: `{"client":1,"op":"release","name":"x","owner":"a","call":30,"return":30}`, want: "x: NOT"},
		"no operation":         {err: "has no operations"},
		"an unknown operation": {history: `{"op":"cas"}`, err: `operation 1: op is "cas"`},
		"another format":       {history: `{"f":"acquire"}`, err: `operation 1: json: unknown field "f"`},
	} {
		path := filepath.Join(t.TempDir(), "history")
		assert.Succeed(t, os.WriteFile(path, []byte(c.history), 0o666))
		var out strings.Builder
		page := filepath.Join(t.TempDir(), "page.html")
		sound, err := judge(path, page, &out)
		switch {
		case c.err != "":
			assert.That(t, err != nil && strings.Contains(err.Error(), c.err), "%s: %v", what, err)
			continue
		case err != nil || !strings.Contains(out.String(), c.want) || sound == strings.Contains(c.want, "NOT"):
			t.Errorf("%s: %v, %v, %s", what, sound, err, out.String())
		}
		_, err = os.Stat(page)
		assert.That(t, sound != (err == nil), "%s: the picture: %v", what, err)
	}
}
