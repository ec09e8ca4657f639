package main

import (
	"bytes"
	"io"
	"time"
)

// An impatient writer does not wait for long while a terminal is stopped by Ctrl-S, or a
// pipe is full: a process that holds a lock has more to do. Its text comes later, or
// never.
type impatient struct{ io.Writer }

func (w impatient) Unwrap() io.Writer { return w.Writer }

func (w impatient) Write(text []byte) (int, error) {
	written := make(chan error, 1)
	own := bytes.Clone(text)
	go func() {
		_, err := w.Writer.Write(own)
		written <- err
	}()
	select {
	case err := <-written:
		if err != nil {
			return 0, err
		}
	case <-time.After(100 * time.Millisecond):
	}
	return len(text), nil
}
