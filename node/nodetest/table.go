package nodetest

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redquorum/redquorum/node"
)

// A table writes a name as its holders, its fences and its queue: "r,r2@8: w10 x20?". A
// holder or waiter is named by the letter of its mode.

var letters = map[byte]node.Mode{'x': node.Exclusive, 'r': node.Read, 'w': node.Write}

// renewed is how long a place from a table's command is kept.
const renewed = 2000 * time.Second

func kept(ticket node.Token) time.Duration { return time.Duration(ticket) * 10 * time.Second }

// ticket is that of a waiter's word, or 0.
func ticket(word string) node.Token {
	n, _ := strconv.Atoi(strings.TrimRight(word[1:], "?"))
	return node.Token(n)
}

func commandOf(kind string, names []string, word string, token int, stays time.Duration) []string {
	words := append(append([]string{kind}, names...), "by", strings.TrimRight(word, "?"), fmt.Sprint("token=", token),
		"mode="+letters[word[0]].String())
	if ticket(word) > 0 {
		words = append(words, fmt.Sprint("ticket=", ticket(word)), "waiter="+word, "stays="+stays.String())
	}
	return words
}

func (p *player) given(words []string) (err error) {
	p.names = nil
	p.givens++
	for len(words) > 0 && err == nil {
		holding, ok := strings.CutSuffix(words[0], ":")
		if !ok {
			return fmt.Errorf("%q does not end in a colon", words[0])
		}
		end := slices.IndexFunc(words[1:], func(word string) bool { return strings.HasSuffix(word, ":") }) + 1
		if end == 0 {
			end = len(words)
		}
		name := fmt.Sprintf("given%d%c", p.givens, 'a'+len(p.names))
		p.names = append(p.names, name)
		err = errors.Join(p.enqueue(name, words[1:end]), p.hold(name, holding))
		words = words[end:]
	}
	return err
}

// enqueue adds waiters behind a lock that goes then.
func (p *player) enqueue(name string, words []string) error {
	err := p.Do("HSET", name, "before", "1")
	for _, word := range words {
		who := strings.TrimRight(word, "+-!")
		mark := word[len(who):]
		ask := commandOf("acquire", []string{name}, who, 5, kept(ticket(who)))
		if mark == "+" {
			ask = append(ask, "offer=5")
		}
		if !strings.HasSuffix(who, "?") {
			err = errors.Join(err, p.listen(who))
		}
		err = errors.Join(err, p.must(node.Refused, ask))
		key := node.PlaceKey(name, who+suffixes[letters[who[0]]])
		switch mark {
		case "-":
			err = errors.Join(err, p.Do("DEL", key))
		case "!":
			err = errors.Join(err, p.Do("SET", key, node.PlaceTold), p.Do("PEXPIRE", key,
				fmt.Sprint(kept(ticket(who)).Milliseconds())))
		}
	}
	return errors.Join(err, p.Do("DEL", name))
}

func (p *player) hold(name, holding string) (err error) {
	owners, fence, raised := strings.Cut(holding, "@")
	for owner := range strings.SplitSeq(owners, ",") {
		if owner != "" {
			ask := []string{"acquire", name, "by", owner, "token=6", "ttl=900s", "mode=" + letters[owner[0]].String(),
				"ticket=1", "waiter=0", "leaves"}
			err = errors.Join(err, p.must(node.Granted, ask))
		}
	}
	if raised {
		err = errors.Join(err, p.must(node.Absent, []string{"release", name, "by", "nobody", "token=" + fence}))
	}
	return err
}

// must sends a command that has to have a status.
func (p *player) must(status node.Status, words []string) error {
	r, err := p.reply(words)
	if err == nil && r.Status != status {
		err = fmt.Errorf("%s -> %s", join(words), join(replyText(r)))
	}
	return err
}

func (p *player) shorthand(verb string, args []string) (node.Reply, error) {
	words := commandOf("release", p.names, args[0], 6, renewed)
	switch verb {
	case "ask":
		words = commandOf("acquire", p.names, args[0], 9, renewed)
	case "leave":
		words = append(words, "leaves")
	}
	return p.reply(append(words, args[1:]...))
}

// then writes the names as given reads them, with what their waiters heard.
func (p *player) then(want []string) (a answer, err error) {
	marks := join(want)
	turns, err := p.hear(strings.Count(marks, "t") + strings.Count(marks, "h"))
	for i := 0; i < len(p.names) && err == nil; i++ {
		r, bad := p.reply([]string{"inspect", p.names[i]})
		if err = errors.Join(bad, r.Err); err != nil {
			break
		}
		first := len(a) + 1
		a, turns = nameText(a, p.names[i], *r.State, turns)
		if len(p.names) > 1 && len(a) > first && strings.HasPrefix(a[first], "x20?") {
			var reserved bool
			if reserved, err = p.reserved(p.names[i]); reserved {
				a[first] += "^"
			}
		}
	}
	for _, turn := range turns {
		a = append(a, fmt.Sprintf("%+v", turn))
	}
	return a, err
}

// reserved reports whether the first waiter has the name reserved, as the next to ask
// hears.
func (p *player) reserved(name string) (bool, error) {
	err := p.Do("DEL", name)
	r, bad := p.reply([]string{"acquire", name, "by", "last", "token=10", "ticket=90", "waiter=last", "leaves"})
	return r.Status == node.Refused && !r.Line.Free, errors.Join(err, bad)
}

// nameText adds the words of one name, and returns the turns that are not in them.
func nameText(a answer, name string, s node.State, turns []heard) (answer, []heard) {
	take := func(is func(heard) bool) bool {
		i := slices.IndexFunc(turns, func(turn heard) bool { return turn.Name == name && is(turn) })
		if i >= 0 {
			turns = slices.Delete(slices.Clone(turns), i, i+1)
		}
		return i >= 0
	}
	mode, owners := holders(s)
	longest := node.Token(0) // the highest ticket of those to which it was handed over
	for i, owner := range owners {
		who, handed := strings.CutSuffix(owner, node.OfferSuffix)
		if handed && take(func(turn heard) bool {
			return turn.by == who && turn.Owner == owner && turn.Token == max(s.Fence, s.Readers)
		}) {
			owners[i], longest = who+"h", max(longest, ticket(who))
		}
		if letters[owner[0]] != mode {
			owners[i] += "(" + mode.String() + ")"
		}
	}
	holding := strings.Join(owners, ",")
	if s.Fence+s.Readers > 0 {
		holding += fmt.Sprint("@", s.Fence)
	}
	if s.Readers > 0 {
		holding += fmt.Sprint(",", s.Readers)
	}
	a = append(a, holding+":")
	if longest > 0 && !near(s.TTL, kept(longest), patience) {
		a.add("ttl", s.TTL)
	}
	for _, place := range s.Queue {
		word := strings.TrimSuffix(place.Waiter, suffixes[letters[place.Waiter[0]]])
		switch {
		case near(place.TTL, renewed, patience):
			word += "*"
		case !near(place.TTL, kept(place.Ticket), patience):
			word += "(" + place.TTL.String() + ")"
		}
		if take(func(turn heard) bool { return turn.by == node.Process(turn.Waiter) && turn.Waiter == place.Waiter }) {
			word += "t"
		}
		a = append(a, word)
	}
	return a, turns
}
