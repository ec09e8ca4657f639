package nodetest

import (
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redquorum/redquorum/node"
)

// testdata/README.md says what the words mean.

// Times longer than a test, for commands without their own.
const (
	life      = 100 * time.Second
	retention = 1000 * time.Second
)

// secret is that of all offers.
const secret = "secret"

var (
	kinds = map[string]node.Kind{
		"acquire": node.Acquire, "release": node.Release, "extend": node.Extend, "inspect": node.Inspect,
		"break":     node.Break,
		"downgrade": node.Downgrade, "rename": node.Rename,
	}
	modes = map[string]node.Mode{"exclusive": node.Exclusive, "read": node.Read, "write": node.Write}
	// suffixes end the names of waiters.
	suffixes = [...]string{node.Exclusive: "", node.Read: node.ReadSuffix, node.Write: node.WriteSuffix}
)

// rival is a mode that excludes another one.
func rival(mode node.Mode) node.Mode {
	if mode == node.Read {
		return node.Write
	}
	return mode
}

// split splits a line at spaces outside quotes, and removes the quotes.
func split(line string) (words []string, err error) {
	rest := strings.TrimLeft(line, " ")
	for rest != "" && rest[0] != '#' {
		word := ""
		for rest != "" && rest[0] != ' ' {
			part := rest[:1]
			if part == `"` {
				if part, err = strconv.QuotedPrefix(rest); err != nil {
					return nil, fmt.Errorf("%w: %s", err, rest)
				}
			}
			rest = rest[len(part):]
			if part[0] == '"' {
				part, _ = strconv.Unquote(part)
			}
			word += part
		}
		words = append(words, word)
		rest = strings.TrimLeft(rest, " ")
	}
	return words, nil
}

func join(words []string) string {
	quoted := slices.Clone(words)
	for i, word := range quoted {
		if plain := `"` + word + `"`; word == "" || word == "|" || strings.ContainsAny(word, " #$") ||
			strconv.Quote(word) != plain {
			quoted[i] = strconv.Quote(word)
		}
	}
	return strings.Join(quoted, " ")
}

var span = regexp.MustCompile(`^(.*?)(\d+)\.\.(\d+)(.*)$`)

// spread replaces a word such as x1..3 by x1, x2 and x3.
func spread(words []string) (all []string) {
	for _, word := range words {
		m := span.FindStringSubmatch(word)
		if m == nil {
			all = append(all, word)
			continue
		}
		first, _ := strconv.Atoi(m[2])
		last, _ := strconv.Atoi(m[3])
		for i := first; i <= last; i++ {
			all = append(all, m[1]+strconv.Itoa(i)+m[4])
		}
	}
	return all
}

type command struct {
	node.Command
	wait     node.Wait
	token    node.Token
	deadline time.Duration // from when it is sent
	leaves   bool
}

// A field is a word of a command: what it changes, and its default.
type field struct {
	key   string
	at    any
	usual any
}

func newCommand(kind node.Kind, mode node.Mode) (c *command, fields []field) {
	c = &command{deadline: patience, wait: node.Wait{PlaceTTL: life}}
	c.Command = node.Command{Kind: kind, Mode: mode, TTL: life, Retention: retention}
	return c, []field{
		{"token", &c.token, node.Token(0)}, {"mode", &c.Mode, mode}, {"ttl", &c.TTL, life},
		{"keep", &c.Retention, retention},
		{"ticket", &c.wait.Ticket, node.Token(0)}, {"waiter", &c.wait.Waiter, ""}, {"stays", &c.wait.PlaceTTL, life},
		{"leaves", &c.leaves, false}, {"barge", &c.wait.Barge, false}, {"reserve", &c.wait.Reserve, false},
		{"offer", &c.wait.Offer, node.Token(0)}, {"handover", &c.HandOver, node.Token(0)},
		{"deadline", &c.deadline, patience},
		{"from", &c.From, ""},
	}
}

func parse(words []string, mode node.Mode) (c *command, err error) {
	c, fields := newCommand(kinds[words[0]], mode)
	owned := 0 // claims that have their owner
	for i := 1; i < len(words) && err == nil; i++ {
		key, value, _ := strings.Cut(words[i], "=")
		known := slices.IndexFunc(fields, func(f field) bool { return f.key == key })
		switch {
		case key == "by" && i+1 < len(words):
			i++
			for ; owned < len(c.Claims); owned++ {
				c.Claims[owned].Owner = words[i]
			}
		case known < 0 && value != "":
			err = fmt.Errorf("there is no word %s", words[i])
		case known < 0:
			c.Claims = append(c.Claims, node.Claim{Name: words[i]})
		default:
			err = fields[known].set(value, mode)
		}
	}
	for i := range c.Claims {
		c.Claims[i].Token = c.token
	}
	if c.wait.Queued() {
		c.wait.Waiter += suffixes[c.Mode]
		if c.leaves {
			c.wait.PlaceTTL = 0
		}
		if c.wait.Offer != 0 {
			c.wait.Secret = secret
		}
		c.Wait = &c.wait
	}
	return c, err
}

func (f field) set(value string, mode node.Mode) (err error) {
	switch at := f.at.(type) {
	case *node.Token:
		var n int64
		n, err = strconv.ParseInt(value, 10, 64)
		*at = node.Token(n)
	case *time.Duration:
		*at, err = time.ParseDuration(value)
	case *string:
		*at = value
	case *bool:
		*at = true
	case *node.Mode:
		if *at = modes[value]; value == "rival" {
			*at = rival(mode)
		}
	}
	return err
}

// commandText is the line of a command without its deadline, in mode Exclusive.
func commandText(cmd node.Command) string {
	c, fields := newCommand(cmd.Kind, node.Exclusive)
	words := answer{cmd.Kind.String()}
	for i, claim := range cmd.Claims {
		words = append(words, claim.Name)
		if last := i == len(cmd.Claims)-1; claim.Owner != "" && (last || cmd.Claims[i+1].Owner != claim.Owner) {
			words = append(words, "by", claim.Owner)
		}
	}
	c.token, c.Mode, c.HandOver, c.From = cmd.Claims[0].Token, cmd.Mode, cmd.HandOver, cmd.From
	if cmd.Kind == node.Acquire || cmd.Kind == node.Extend || cmd.Kind == node.Rename {
		c.TTL = cmd.TTL
	}
	if cmd.Kind != node.Extend && cmd.Kind != node.Inspect && cmd.Kind != node.Downgrade {
		c.Retention = cmd.Retention
	}
	if cmd.Waiting().Queued() {
		c.wait, c.leaves = cmd.Waiting(), !cmd.Waiting().Stays()
		c.wait.Waiter = strings.TrimSuffix(c.wait.Waiter, suffixes[cmd.Mode])
	}
	for _, f := range fields {
		if value := reflect.ValueOf(f.at).Elem().Interface(); value != f.usual {
			words.add(f.key, value)
		}
	}
	return join(words)
}

type answer []string

// add adds words for what is not zero.
func (a *answer) add(pairs ...any) {
	for i := 0; i < len(pairs); i += 2 {
		value := fmt.Sprint(pairs[i+1])
		switch v := pairs[i+1].(type) {
		case bool:
			if v {
				*a = append(*a, pairs[i].(string))
			}
			continue
		case time.Duration:
			if value = v.String(); v%time.Second == 0 {
				value = fmt.Sprint(int64(v/time.Second), "s")
			}
			if v == node.NoExpiry {
				value = "never"
			}
		}
		if value != "0" && value != "0s" && value != "" {
			*a = append(*a, fmt.Sprint(pairs[i], "=", value))
		}
	}
}

// replyText is a reply without its State.
func replyText(r node.Reply) (a answer) {
	if r.Status == node.Unknown {
		a = answer{"error", reasonText(r.Err)}
		a.add("unsent", r.Unsent)
		return a
	}
	a, l := answer{r.Status.String()}, r.Line
	a.add("ttl", r.TTL, "fence", r.Fence, "ahead", l.Ahead, "last", l.Last, "free", l.Free, "foreign", l.Foreign,
		"awaited", l.Awaited, "others", l.Others, "kept", keptText(r.Kept))
	return a
}

// keptText writes y for kept and n for not kept; of more than nine in a row, their number
// and one.
func keptText(kept []bool) (text string) {
	for len(kept) > 0 {
		n := slices.Index(kept, !kept[0])
		if n < 0 {
			n = len(kept)
		}
		letter := map[bool]string{true: "y", false: "n"}[kept[0]]
		if kept = kept[n:]; n > 9 {
			text += fmt.Sprint(n, letter)
			continue
		}
		text += strings.Repeat(letter, n)
	}
	return text
}

// lookText is the answer of a verb that looks at a name, by an owner or "": the lock and
// the higher of its fences, or both fences, or the queue.
func lookText(verb string, r node.Reply, mode node.Mode, by string) (a answer) {
	switch {
	case r.State == nil:
		return replyText(r)
	case verb == "inspect":
		return lockText(*r.State, mode, by)
	case verb == "fences":
		a.add("fence", r.State.Fence, "readers", r.State.Readers)
		return a
	}
	a.add("empty", len(r.State.Queue) == 0)
	for _, place := range r.State.Queue {
		a = append(a, strings.TrimSuffix(place.Waiter, suffixes[mode]))
		a.add("ticket", place.Ticket, "ttl", place.TTL)
	}
	a.add("behind", r.State.Behind)
	return a
}

// lockText is the lock in a State and its fence. If some fields are left out, only those
// of the owner by are certain.
func lockText(s node.State, mode node.Mode, by string) (a answer) {
	a = answer{s.Type}
	switch s.Type {
	case "hash":
		is, owners := holders(s)
		if s.More > 0 {
			owners = slices.DeleteFunc(owners, func(owner string) bool { return owner != by })
		}
		a = answer{"held"}
		if is != mode {
			a = append(a, "mode="+is.String())
		}
		if len(owners) > 0 {
			a = append(append(a, "by"), owners...)
		}
	case "string":
		a = append(a, s.Value)
	}
	a.add("more", s.More, "ttl", s.TTL, "fence", max(s.Fence, s.Readers))
	return a
}

// holders returns the lock's mode and owners, each with the value of its field if that is
// not 1. In mode Write a reader has its suffix, and the writer has not.
func holders(s node.State) (mode node.Mode, owners []string) {
	for _, f := range s.Fields {
		if f.Name == node.ModeField {
			mode = modes[f.Value]
		}
	}
	for _, f := range s.Fields {
		owner := f.Name
		switch writer, is := strings.CutSuffix(f.Name, node.WriteSuffix); {
		case mode != node.Exclusive && f.Name == node.ModeField:
			continue
		case mode == node.Write && is:
			owner = writer
		case mode == node.Write:
			owner += node.ReadSuffix
		}
		if f.Value != "1" {
			owner += "=" + f.Value
		}
		owners = append(owners, owner)
	}
	return mode, owners
}

// fits allows a TTL to be less than wanted by early, or more by late.
func fits(got, want []string, early, late time.Duration) bool {
	return slices.EqualFunc(got, want, func(got, want string) bool {
		least, most, ranges := strings.Cut(strings.TrimPrefix(want, "ttl="), "..")
		if !ranges {
			most = least
		}
		g, err := time.ParseDuration(strings.TrimPrefix(got, "ttl="))
		low, bad := time.ParseDuration(least)
		high, worse := time.ParseDuration(most)
		if errors.Join(err, bad, worse) != nil || strings.HasPrefix(got, "ttl=") != strings.HasPrefix(want, "ttl=") {
			return got == want
		}
		return g <= high+late && g+early >= low
	})
}
