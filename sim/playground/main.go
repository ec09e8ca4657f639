// The program playground writes the simulator as a page: textbook Redlock and redquorum,
// side by side, under the same plan.
//
//	go run ./sim/playground build [FOLDER]
//	go run ./sim/playground picture [FOLDER]
//
// The page works from a file, without a network. FOLDER is docs/playground by default.
// The second command writes the picture of README.md, light and dark, to docs/pictures.
package main

import (
	"bytes"
	"compress/gzip"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/redquorum/redquorum/sim/internal/page"
	"github.com/redquorum/redquorum/sim/playground/play"
)

//go:embed guide.html
var guide string

//go:embed play.css
var style string

//go:embed play.js
var script string

func main() {
	args := os.Args[1:]
	verbs := map[string]struct {
		dir, file string
		write     func(string) error
	}{
		"build":   {filepath.Join("docs", "playground"), "index.html", build},
		"picture": {filepath.Join("docs", "pictures"), "restart-light.svg", pictures},
	}
	if len(args) == 0 || len(args) > 2 || verbs[args[0]].write == nil || strings.HasPrefix(args[len(args)-1], "-") {
		fmt.Fprintln(os.Stderr, "usage: go run ./sim/playground build|picture [FOLDER]")
		os.Exit(2)
	}
	verb := verbs[args[0]]
	if len(args) == 2 {
		verb.dir = args[1]
	}
	if err := verb.write(verb.dir); err != nil {
		fmt.Fprintln(os.Stderr, "playground:", err)
		os.Exit(1)
	}
	fmt.Println(filepath.Join(verb.dir, verb.file))
}

// build writes the page with the runs of its first chapter, and the simulator as a second
// file.
func build(dir string) error {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	simulator, err := compile()
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "simulator.js"), simulator, 0o666); err != nil {
		return err
	}
	f, err := os.Create(filepath.Join(dir, "index.html"))
	if err != nil {
		return err
	}
	defer f.Close()
	if err := write(f); err != nil {
		return err
	}
	return f.Close()
}

func write(f *os.File) error {
	chapters := play.Chapters()
	var runs []json.RawMessage
	for _, lock := range []string{chapters[0].Left, "redquorum"} {
		run, err := play.Run(chapters[0].Plan, lock)
		if err != nil {
			return err
		}
		runs = append(runs, run)
	}
	p := page.Page{Title: "redquorum playground", Guide: guide, Style: style, Script: script, Loads: "simulator.js",
		Still: "<p>The playground needs JavaScript.</p>", Data: map[string]any{"runs": runs, "chapters": chapters}}
	return p.Write(f)
}

// compile returns a script that calls simulator() with the compressed program: a page
// that is a file may not read other files.
func compile() ([]byte, error) {
	tmp, err := os.MkdirTemp("", "playground")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(tmp)
	wasm := filepath.Join(tmp, "wasm")
	// Without inlining the program is a tenth smaller.
	cmd := exec.Command("go", "build", "-trimpath", "-gcflags=all=-l", "-ldflags=-s -w", "-o", wasm,
		"github.com/redquorum/redquorum/sim/playground/wasm")
	cmd.Env = append(os.Environ(), "GOOS=js", "GOARCH=wasm")
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("go build: %w\n%s", err, out)
	}
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return nil, err
	}
	support, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(root)), "lib", "wasm", "wasm_exec.js"))
	if err != nil {
		return nil, err
	}
	program, err := os.ReadFile(wasm)
	if err != nil {
		return nil, err
	}
	packed, err := pack(program)
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(string(support))
	if err != nil {
		return nil, err
	}
	return fmt.Appendf(nil, "simulator(%s,\n%q);\n", text, base64.StdEncoding.EncodeToString(packed)), nil
}

func pack(data []byte) ([]byte, error) {
	var packed bytes.Buffer
	z, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	if _, err := z.Write(data); err != nil {
		return nil, err
	}
	err = z.Close()
	return packed.Bytes(), err
}
