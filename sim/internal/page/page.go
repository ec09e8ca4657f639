// Package page writes HTML pages that show runs. A page needs no server and no network.
package page

import (
	_ "embed"
	"encoding/json"
	"html"
	"io"
	"strings"
)

//go:embed page.html
var skeleton string

//go:embed page.css
var style string

// The viewer is the body of a function in three parts: it reads the run, draws it, and
// reacts to the reader.

//go:embed run.js
var runJS string

//go:embed view.js
var viewJS string

//go:embed panel.js
var panelJS string

//go:embed controls.js
var controlsJS string

// A Page is what there is besides the viewers of runs.
type Page struct {
	Title  string
	Still  string // HTML, for readers without JavaScript
	Guide  string // HTML next to the viewers, or none
	Style  string // more CSS
	Data   any    // as JSON: the runs, and what Script wants
	Script string // more JavaScript, which starts the page: start() does so for the runs in the data
	Loads  string // the address of one more script, or none
}

// Write writes the page.
func (p *Page) Write(out io.Writer) error {
	data, err := json.Marshal(p.Data) // in which < is escaped
	if err != nil {
		return err
	}
	loads := ""
	if p.Loads != "" {
		loads = `<script async src="` + html.EscapeString(p.Loads) + `"></script>` + "\n"
	}
	viewer := "function viewer(root, run, shared) {\n" + runJS + viewJS + panelJS + "}\n"
	_, err = strings.NewReplacer("{{title}}", html.EscapeString(p.Title), "{{style}}", style+p.Style, "{{still}}",
		p.Still,
		"{{guide}}", p.Guide, "{{data}}", string(data), "{{script}}", viewer+controlsJS+p.Script, "{{loads}}", loads,
	).WriteString(out, skeleton)
	return err
}
