// Package browser looks at pages in a headless Chromium, for tests.
package browser

import (
	"bufio"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/redquorum/redquorum/internal/tests"
)

// A Browser is a Chromium that speaks the DevTools protocol over a pipe.
type Browser struct {
	t       *testing.T
	in, out *os.File
	answers *bufio.Reader // from out
	session string
	number  int
	console []string // what the page has complained about
}

// Start starts a browser for one test, or skips the test if there is none.
func Start(t *testing.T) *Browser {
	t.Helper()
	tests.NeedSeconds(t)
	path, err := exec.LookPath("chromium")
	if err != nil {
		t.Skip(err)
	}
	// The browser reads commands from descriptor 3, and writes answers to 4.
	theirIn, in := pipe(t)
	out, theirOut := pipe(t)
	profile, err := os.MkdirTemp("", "browser")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(path, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
		"--disable-background-networking", "--disable-component-update", "--disable-sync", "--hide-scrollbars",
		"--user-data-dir="+profile, "--remote-debugging-pipe")
	cmd.ExtraFiles = []*os.File{theirIn, theirOut}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_, _ = theirIn.Close(), theirOut.Close()
	b := &Browser{t: t, in: in, out: out, answers: bufio.NewReader(out)}
	t.Cleanup(func() {
		b.session = ""
		b.send("Browser.close", nil)
		hung := time.AfterFunc(10*time.Second, func() { _ = cmd.Process.Kill() })
		_ = cmd.Wait()
		hung.Stop()
		_ = os.RemoveAll(profile) // t.TempDir would fail the test if a process of the browser still wrote there
	})
	var target struct{ TargetID string }
	b.call("Target.createTarget", object{"url": "about:blank"}, &target)
	var attached struct{ SessionID string }
	b.call("Target.attachToTarget", object{"targetId": target.TargetID, "flatten": true}, &attached)
	b.session = attached.SessionID
	for _, domain := range []string{"Page", "Runtime", "Log"} {
		b.call(domain+".enable", nil, nil)
	}
	return b
}

func pipe(t *testing.T) (read, write *os.File) {
	t.Helper()
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = read.Close(), write.Close() })
	return read, write
}

type object map[string]any

type message struct {
	ID     int
	Method string
	Error  *struct{ Message string }
	Result json.RawMessage
	Params json.RawMessage
}

func (b *Browser) send(method string, params object) {
	b.number++
	text, err := json.Marshal(object{"id": b.number, "sessionId": b.session, "method": method, "params": params})
	if err != nil {
		panic(err)
	}
	_, _ = b.in.Write(append(text, 0))
}

func (b *Browser) call(method string, params object, result any) {
	b.t.Helper()
	b.send(method, params)
	for {
		m := b.read()
		if m.ID != b.number {
			continue
		}
		if m.Error != nil {
			b.t.Fatalf("%s: %s", method, m.Error.Message)
		}
		if result != nil {
			if err := json.Unmarshal(m.Result, result); err != nil {
				b.t.Fatalf("%s: %v", method, err)
			}
		}
		return
	}
}

func (b *Browser) read() (m message) {
	b.t.Helper()
	_ = b.out.SetReadDeadline(time.Now().Add(time.Minute))
	text, err := b.answers.ReadBytes(0)
	if err == nil {
		err = json.Unmarshal(text[:len(text)-1], &m)
	}
	if err != nil {
		b.t.Fatal(err)
	}
	switch m.Method {
	case "Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded":
		b.console = append(b.console, string(m.Params))
	}
	return m
}

// A Look is a window of so many pixels, in a light or a dark theme.
type Look struct {
	Width, Height int
	Theme         string
}

func (l Look) String() string { return fmt.Sprintf("%d-%s", l.Width, l.Theme) }

// Looks are a monitor and a telephone, by day and by night.
var Looks = []Look{{1400, 900, "light"}, {1400, 900, "dark"}, {400, 850, "light"}, {400, 850, "dark"}}

// Open shows a page. All methods fail the test if the page complains on the console.
func (b *Browser) Open(html string, look Look) {
	b.t.Helper()
	file := filepath.Join(b.t.TempDir(), "page.html")
	if err := os.WriteFile(file, []byte(html), 0o600); err != nil {
		b.t.Fatal(err)
	}
	b.OpenFile(file, look)
}

// OpenFile shows a file, whose path may have a fragment.
func (b *Browser) OpenFile(file string, look Look) {
	b.t.Helper()
	b.call("Emulation.setDeviceMetricsOverride", object{"width": look.Width, "height": look.Height,
		"deviceScaleFactor": 1, "mobile": false}, nil)
	b.call("Emulation.setEmulatedMedia", object{"features": []object{{"name": "prefers-color-scheme",
		"value": look.Theme}}}, nil)
	b.call("Page.navigate", object{"url": "file://" + file}, nil)
	b.Eval("new Promise(done => document.readyState === 'complete' ? done() : addEventListener('load', done))")
	b.Eval("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
}

// Eval returns an expression's value in the page, as JSON.
func (b *Browser) Eval(expression string) json.RawMessage {
	b.t.Helper()
	var answer struct {
		Result           struct{ Value json.RawMessage }
		ExceptionDetails *struct {
			Exception struct{ Description string }
		}
	}
	b.call("Runtime.evaluate", object{"expression": expression, "returnByValue": true, "awaitPromise": true}, &answer)
	if e := answer.ExceptionDetails; e != nil {
		b.t.Fatalf("%.200s: %s", expression, e.Exception.Description)
	}
	for _, c := range b.console {
		b.t.Errorf("on the console: %.400s", c)
	}
	b.console = nil
	return answer.Result.Value
}

func (b *Browser) Holds(conditions ...string) {
	b.t.Helper()
	for _, c := range conditions {
		if string(b.Eval(c)) != "true" {
			b.t.Errorf("not so: %s", c)
		}
	}
}

// Shot writes a picture of the whole page to the folder of the environment variable
// SHOTS, if it is set.
func (b *Browser) Shot(name string) {
	b.t.Helper()
	dir := os.Getenv("SHOTS")
	if dir == "" {
		return
	}
	var shot struct{ Data string }
	b.call("Page.captureScreenshot", object{"captureBeyondViewport": true}, &shot)
	png, err := base64.StdEncoding.DecodeString(shot.Data)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, name+".png"), png, 0o600)
	}
	if err != nil {
		b.t.Fatal(err)
	}
}

//go:embed fits.js
var fits string

// Fits fails the test if the page is wider than the window, or if an element cuts off
// what it has.
func (b *Browser) Fits() {
	b.t.Helper()
	if bad := b.Eval("(() => {" + fits + "})()"); string(bad) != "[]" {
		b.t.Errorf("cut off: %.1000s", bad)
	}
}
