// Judge reads a history that redquorum chaos plan --history has written, and has porcupine
// look for an order of its operations that one correct lock could have shown. It knows
// the format of the file, and nothing of redquorum, of the plan, or of the judge of
// package live.
//
//	redquorum chaos plan S13 --client plain --history run.jsonl
//	go run ./sim/chaos/judge run.jsonl
//	go run ./sim/chaos/judge -html run.html run.jsonl
//
// With -html the first name that has no such order gets a picture. If each has one, no
// file is written.
//
// The exit status is 0 if there is such an order for each name, 1 if there is none for
// one, 2 if the file cannot be read.
package main

import (
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/sim/live"
)

func main() {
	html := flag.String("html", "", "if a history has no order, write porcupine's picture of the first such name to this `file`")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "usage: judge [-html FILE] HISTORY")
		flag.PrintDefaults()
	}
	flag.Parse()
	if flag.NArg() != 1 {
		flag.Usage()
		os.Exit(2)
	}
	sound, err := judge(flag.Arg(0), *html, os.Stdout)
	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, "judge:", err)
		os.Exit(2)
	case !sound:
		os.Exit(1)
	}
}

// A lock is one name, as every history of it has to show it.
type lock struct {
	owners  []string // that hold it now
	reading bool     // all of them

	granted, read, written node.Token // the highest so far: alone, to readers, of a write
	last                   string     // the owner of granted
}

// take returns the lock after an operation, and whether the operation is possible.
func (l lock) take(o *live.Operation) (lock, bool) {
	reads := o.Mode == "read"
	at := slices.Index(l.owners, o.Owner)
	switch o.Op {
	case "acquire":
		excluded := len(l.owners) > 0 && !(l.reading && reads)
		late := o.Token != 0 && o.Owner != l.last && (o.Token <= l.granted || !reads && o.Token <= l.read)
		if excluded || late {
			return l, false
		}
		l.owners, l.reading = append(slices.Clip(l.owners), o.Owner), reads
		if reads {
			l.read = max(l.read, o.Token)
		} else {
			l.granted, l.last = max(l.granted, o.Token), o.Owner
		}
	case "release":
		if at < 0 {
			return l, false
		}
		l.owners = slices.Delete(slices.Clone(l.owners), at, at+1)
	case "write":
		if !o.Refused {
			if o.Token < l.written {
				return l, false
			}
			l.written = o.Token
		}
	}
	return l, true
}

func (l lock) equal(m lock) bool {
	a, b := slices.Sorted(slices.Values(l.owners)), slices.Sorted(slices.Values(m.owners))
	return slices.Equal(a, b) && l.reading == m.reading && l.granted == m.granted && l.read == m.read &&
		l.written == m.written && l.last == m.last
}

var model = porcupine.Model{
	Init: func() any { return lock{} },
	Step: func(state, input, _ any) (bool, any) {
		next, possible := state.(lock).take(input.(*live.Operation))
		return possible, next
	},
	Equal: func(a, b any) bool { return a.(lock).equal(b.(lock)) },
	DescribeOperation: func(input, _ any) string {
		o := input.(*live.Operation)
		return fmt.Sprintf("c%d %s %s %s, token %d", o.Client, o.Op, o.Name, o.Mode, o.Token)
	},
	DescribeState: func(state any) string { return fmt.Sprint(state.(lock).owners) },
}

// maxSearch is how long the search for an order may take, for each name.
const maxSearch = time.Minute

// judge says of each name in a history whether its operations have an order.
func judge(path, page string, out io.Writer) (sound bool, err error) {
	names, err := read(path)
	if err != nil {
		return false, err
	}
	sound = true
	for _, n := range names {
		result, info := porcupine.CheckOperationsVerbose(model, n.operations, maxSearch)
		switch result {
		case porcupine.Ok:
			fmt.Fprintf(out, "%s: linearizable, %d operations\n", n.name, len(n.operations))
			continue
		case porcupine.Unknown:
			return false, fmt.Errorf("%s: the search took longer than %v", n.name, maxSearch)
		}
		fmt.Fprintf(out, "%s: NOT linearizable, %d operations; no order has\n  %s\n", n.name, len(n.operations),
			stuck(n.operations, info))
		if sound && page != "" {
			err = porcupine.VisualizePath(model, info, page)
		}
		sound = false
	}
	return sound, err
}

// stuck is the operation at which the search for an order came furthest: of those that an
// order lacks the first to return, and of these the last.
func stuck(all []porcupine.Operation, info porcupine.LinearizationInfo) string {
	before := func(i, j int) bool { return cmp.Or(cmp.Compare(all[i].Return, all[j].Return), cmp.Compare(i, j)) < 0 }
	last := -1
	for _, order := range append(info.PartialLinearizations()[0], nil) { // there may be no other
		first := -1
		for i := range all {
			if !slices.Contains(order, i) && (first < 0 || before(i, first)) {
				first = i
			}
		}
		if first >= 0 && (last < 0 || before(last, first)) {
			last = first
		}
	}
	line, _ := json.Marshal(all[last].Input)
	return string(line)
}

// A history is what happened to one name.
type history struct {
	name       string
	operations []porcupine.Operation
}

func read(path string) (names []*history, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	from := json.NewDecoder(f)
	from.DisallowUnknownFields()
	for n := 1; ; n++ {
		o := new(live.Operation)
		if err := from.Decode(o); err == io.EOF {
			break
		} else if err != nil {
			return nil, fmt.Errorf("%s: operation %d: %w", path, n, err)
		}
		if !slices.Contains([]string{"acquire", "release", "read", "write"}, o.Op) {
			return nil, fmt.Errorf("%s: operation %d: op is %q; it must be acquire, release, read or write", path, n,
				o.Op)
		}
		at := slices.IndexFunc(names, func(h *history) bool { return h.name == o.Name })
		if at < 0 {
			at, names = len(names), append(names, &history{name: o.Name})
		}
		names[at].operations = append(names[at].operations, porcupine.Operation{ClientId: o.Client, Input: o,
			Call: int64(o.Call), Return: int64(o.Return)})
	}
	if names == nil {
		return nil, fmt.Errorf("%s has no operations", path)
	}
	return names, nil
}
