package cli

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
)

// A bounded flag is a number or a time from least to most. The help names no default of
// 0.
type bounded[T int | time.Duration] struct {
	to          *T
	least, most T
	parse       func(string) (T, error)
}

// Int adds a flag for a number from least to most; most may be 0, for no bound. usual is
// what it is without the flag, and may be 0.
func Int(fs *pflag.FlagSet, to *int, name string, usual, least, most int, usage string) {
	*to = usual
	fs.Var(bounded[int]{to, least, most, func(s string) (int, error) {
		n, err := strconv.ParseInt(s, 0, 0)
		return int(n), err
	}}, name, usage)
}

// Duration is Int for a time.
func Duration(fs *pflag.FlagSet, to *time.Duration, name string, usual, least, most time.Duration, usage string) {
	*to = usual
	fs.Var(bounded[time.Duration]{to, least, most, time.ParseDuration}, name, usage)
}

// Set implements pflag.Value.
func (b bounded[T]) Set(text string) error {
	v, err := b.parse(text)
	switch {
	case err != nil:
		return err
	case v < b.least && b.most == 0:
		return fmt.Errorf("want at least %v", b.least)
	case v < b.least || v > b.most && b.most > 0:
		return fmt.Errorf("want %v to %v", b.least, b.most)
	}
	*b.to = v
	return nil
}

func (b bounded[T]) String() string {
	if b.to == nil || *b.to == 0 {
		return ""
	}
	return fmt.Sprint(*b.to)
}

// Type implements pflag.Value.
func (b bounded[T]) Type() string {
	if _, ok := any(*b.to).(int); ok {
		return "int"
	}
	return "duration"
}

// A choice is a flag that is one of some words.
type choice[S ~string] struct {
	to    *S
	words []S
}

// Word adds a flag for one of some words. Its default is what it is to change.
func Word[S ~string](fs *pflag.FlagSet, to *S, name, usage string, words ...S) {
	fs.Var(choice[S]{to, words}, name, usage)
}

// Set implements pflag.Value.
func (c choice[S]) Set(text string) error {
	if *c.to = S(text); !slices.Contains(c.words, S(text)) {
		return fmt.Errorf("want %s", strings.Trim(strings.ReplaceAll(fmt.Sprint(c.words), " ", ", "), "[]"))
	}
	return nil
}

func (c choice[S]) String() string {
	if c.to == nil {
		return ""
	}
	return string(*c.to)
}

// Type implements pflag.Value.
func (choice[S]) Type() string { return "string" }
