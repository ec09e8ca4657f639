//go:build js && wasm

// The program wasm is the simulator in a browser.
package main

import (
	"encoding/json"
	"syscall/js"
	"time"

	"github.com/redquorum/redquorum/sim/playground/play"
)

func main() {
	offer("run", func(a []js.Value) (any, error) { return play.Run(a[0].String(), a[1].String()) })
	offer("find", func(a []js.Value) (any, error) {
		return play.Find(a[0].String(), a[1].String(), uint64(a[2].Int()), uint64(a[3].Int()))
	})
	offer("shrink", func(a []js.Value) (any, error) {
		return play.Shrink(a[0].String(), a[1].String(), time.Duration(a[2].Int())*time.Millisecond)
	})
	select {}
}

// offer makes a function one of JavaScript. It returns JSON: the value, or {"error":
// "..."}.
func offer(name string, f func([]js.Value) (any, error)) {
	js.Global().Set(name, js.FuncOf(func(_ js.Value, a []js.Value) any {
		v, err := f(a)
		if err != nil {
			v = map[string]string{"error": err.Error()}
		}
		text, err := json.Marshal(v)
		if err != nil {
			panic(err)
		}
		return string(text)
	}))
}
