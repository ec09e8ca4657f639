package main

import (
	"bufio"
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"sync"
)

// readCommand reads one command of a client.
func readCommand(r *bufio.Reader) (words []string, err error) {
	n, err := readLength(r, '*')
	if err != nil {
		return nil, err
	}
	for range n {
		size, err := readLength(r, '$')
		if err != nil {
			return nil, err
		}
		b := make([]byte, size+2)
		if _, err := io.ReadFull(r, b); err != nil {
			return nil, err
		}
		words = append(words, string(b[:size]))
	}
	return words, nil
}

func readLength(r *bufio.Reader, kind byte) (int, error) {
	line, err := r.ReadString('\n')
	if err != nil {
		return 0, err
	}
	if line[0] != kind {
		return 0, fmt.Errorf("want %q, have %q", kind, line)
	}
	return strconv.Atoi(strings.TrimSpace(line[1:]))
}

// A dictionary knows the scripts that any client has sent.
type dictionary struct {
	mu    sync.Mutex
	texts map[string]string // by SHA
}

var (
	ourScript = regexp.MustCompile(`(?m)^-- (acquire|release|extend|break|downgrade)(_\w+)?:`)
	aCall     = regexp.MustCompile(`(?i)redis\.call\("(set|del|pexpire|pexpireat)"`)
)

// kind says what a command does to a lock: acquire, release, extend or downgrade; "" if nothing.
func (d *dictionary) kind(words []string) string {
	switch verb := strings.ToUpper(words[0]); {
	case verb == "SET" || verb == "SETNX":
		return "acquire"
	case verb == "EVAL" && len(words) > 2:
		sum := sha1.Sum([]byte(words[1]))
		d.mu.Lock()
		defer d.mu.Unlock()
		d.texts[hex.EncodeToString(sum[:])] = words[1]
		return scriptKind(words[1])
	case verb == "EVALSHA" && len(words) > 2:
		d.mu.Lock()
		defer d.mu.Unlock()
		return scriptKind(d.texts[strings.ToLower(words[1])])
	}
	return ""
}

// scriptKind is of redquorum's scripts what their heads say, and of others by what they call.
func scriptKind(text string) string {
	if m := ourScript.FindStringSubmatch(text); m != nil {
		return m[1]
	}
	calls := make(map[string]bool)
	for _, m := range aCall.FindAllStringSubmatch(text, -1) {
		calls[strings.ToLower(m[1])] = true
	}
	switch {
	case calls["del"]:
		return "release"
	case calls["pexpire"] || calls["pexpireat"]:
		return "extend"
	case calls["set"]:
		return "acquire"
	}
	return ""
}
