package courier

import (
	"crypto/sha1"
	"embed"
	"encoding/hex"
	"regexp"
	"slices"
	"strings"

	"github.com/redquorum/redquorum/node"
)

// This file is how a call becomes a Redis command: rows, the words of these, and scripts.
// Some are methods of call and words.

// A row says how commands of one sort go to a server: by which script, with which keys
// and arguments. The head of the script names them in the same order.
type row struct {
	kind   node.Kind
	modes  []node.Mode      // none: any, the command does not use it
	queued bool             // its waiter has a ticket
	names  func(n int) bool // whether it may have so many

	script *script
	keys   []word // of each claim
	args   []word // once, of the first claim
	each   []word // of each claim, behind args
	hands  bool   // may hand its locks over: then two more arguments follow
}

func one(n int) bool       { return n == 1 }
func several(n int) bool   { return n > 1 }
func oneOrMore(n int) bool { return n >= 1 }

var (
	exclusive = []node.Mode{node.Exclusive}
	reading   = []node.Mode{node.Read}
	writing   = []node.Mode{node.Write}
	readWrite = []node.Mode{node.Read, node.Write}

	queueKeys   = []word{lockKey, fenceKey, queueKey, placeKey}
	acquireArgs = []word{ownerArg, tokenArg, ttlArg, retentionArg, modeArg, ticketArg}
	waitArgs    = append(acquireArgs[:len(acquireArgs):len(acquireArgs)], waiterArg, placeTTLArg, bargeArg)
	releaseArgs = []word{ownerArg, tokenArg, retentionArg, modeArg, ticketArg, waiterArg, placeTTLArg}
	renameArgs  = []word{ownerArg, formerArg, tokenArg, ttlArg, retentionArg, modeArg}
)

var rows = [...]row{
	{kind: node.Acquire, modes: exclusive, names: one, script: acquireScript,
		keys: []word{lockKey, fenceKey},
		args: []word{ownerArg, tokenArg, ttlArg, retentionArg}},
	{kind: node.Acquire, modes: exclusive, names: several, script: acquireAllScript,
		keys: []word{lockKey, fenceKey}, args: acquireArgs},
	{kind: node.Acquire, modes: readWrite, names: one, script: acquireAllScript,
		keys: queueKeys, args: acquireArgs},
	{kind: node.Acquire, queued: true, names: one, script: acquireAllScript,
		keys: queueKeys, args: append(waitArgs[:len(waitArgs):len(waitArgs)], offerArg, secretArg)},
	{kind: node.Acquire, modes: exclusive, queued: true, names: several, script: acquireAllScript,
		keys: queueKeys, args: append(waitArgs[:len(waitArgs):len(waitArgs)], reserveArg)},

	{kind: node.Release, modes: exclusive, names: one, script: releaseScript,
		keys: []word{lockKey, fenceKey, queueKey},
		args: []word{ownerArg, tokenArg, retentionArg},
		each: []word{channelArg}, hands: true},
	{kind: node.Release, modes: exclusive, names: several, script: releaseAllScript,
		keys: queueKeys, args: releaseArgs, each: []word{channelArg}, hands: true},
	{kind: node.Release, modes: readWrite, names: one, script: releaseAllScript,
		keys: queueKeys, args: releaseArgs, each: []word{channelArg}, hands: true},
	{kind: node.Release, queued: true, names: one, script: releaseAllScript,
		keys: queueKeys, args: releaseArgs, each: []word{channelArg}, hands: true},
	{kind: node.Release, modes: exclusive, queued: true, names: several, script: releaseAllScript,
		keys: queueKeys, args: releaseArgs, each: []word{channelArg}, hands: true},

	{kind: node.Extend, modes: exclusive, names: oneOrMore, script: extendScript,
		keys: []word{lockKey},
		args: []word{ttlArg},
		each: []word{ownerArg}},
	{kind: node.Extend, modes: writing, names: oneOrMore, script: extendScript,
		keys: []word{lockKey},
		args: []word{ttlArg},
		each: []word{writerArg}},
	{kind: node.Extend, modes: reading, names: oneOrMore, script: extendReadScript,
		keys: []word{lockKey, holdKey},
		args: []word{ttlArg},
		each: []word{ownerArg}},

	{kind: node.Inspect, names: one, script: inspectScript,
		keys: []word{lockKey, fenceKey, readersKey, queueKey},
		args: []word{placesArg, holdsArg, ownerArg}},
	{kind: node.Break, names: one, script: breakScript,
		keys: []word{lockKey, fenceKey, queueKey, readersKey},
		args: []word{tokenArg, retentionArg, plainChannelArg, sharedChannelArg}},
	{kind: node.Downgrade, names: one, script: downgradeScript,
		keys: []word{lockKey, holdKey, queueKey},
		args: []word{ownerArg, sharedChannelArg}},
	{kind: node.Rename, modes: exclusive, names: oneOrMore, script: renameScript,
		keys: []word{lockKey, fenceKey}, args: renameArgs},
	{kind: node.Rename, modes: readWrite, names: one, script: renameScript,
		keys: []word{lockKey, fenceKey, readersKey, holdKey, formerHoldKey}, args: renameArgs},
}

// rowOf returns the row of a command, nil if there is none.
func rowOf(cmd *node.Command) *row {
	queued := cmd.Waiting().Queued()
	for i := range rows {
		r := &rows[i]
		if r.kind == cmd.Kind && r.queued == queued && r.names(len(cmd.Claims)) &&
			(slices.Contains(r.modes, cmd.Mode) || r.modes == nil && cmd.Mode <= node.Write) {
			return r
		}
	}
	return nil
}

// takes reports whether an argument goes to the server.
func (r *row) takes(arg word) bool {
	return slices.Contains(r.args, arg) || slices.Contains(r.each, arg)
}

// A word is one key or argument of a script.
type word uint8

const (
	lockKey word = iota
	fenceKey
	readersKey
	queueKey
	placeKey
	holdKey
	formerHoldKey // of the owner that a Rename takes the locks from

	ownerArg
	formerArg
	writerArg // the writer's field
	tokenArg
	ttlArg
	retentionArg
	ticketArg
	waiterArg
	placeTTLArg
	modeArg // "" for Exclusive
	bargeArg
	offerArg
	secretArg
	reserveArg
	channelArg // of the command's mode
	plainChannelArg
	sharedChannelArg
	placesArg // what the keys of all places begin with
	holdsArg  // what the keys of all holds begin with
)

// write appends one word about a claim to w.
func (c *call) write(w *words, what word, of *node.Claim) {
	var room [128]byte
	b := room[:0]
	switch what {
	case lockKey:
		w.text(of.Name)
	case fenceKey:
		w.bytes(node.AppendFenceKey(b, of.Name))
	case readersKey:
		w.bytes(node.AppendReadersKey(b, of.Name))
	case queueKey:
		w.bytes(node.AppendQueueKey(b, of.Name))
	case placeKey:
		w.bytes(append(node.AppendPlacePrefix(b, of.Name), c.wait.Waiter...))
	case holdKey:
		w.bytes(node.AppendHoldKey(b, of.Name, of.Owner))
	case formerHoldKey:
		w.bytes(node.AppendHoldKey(b, of.Name, c.from))
	case ownerArg:
		w.text(of.Owner)
	case formerArg:
		w.text(c.from)
	case writerArg:
		w.bytes(append(append(b, of.Owner...), node.WriteSuffix...))
	case tokenArg:
		w.number(int64(of.Token))
	case ttlArg:
		w.number(c.ttl)
	case retentionArg:
		w.number(c.retention)
	case ticketArg:
		w.number(int64(c.wait.Ticket))
	case waiterArg:
		w.text(c.wait.Waiter)
	case placeTTLArg:
		w.number(c.placeTTL)
	case modeArg:
		w.text([...]string{node.Exclusive: "", node.Read: "read", node.Write: "write"}[c.mode])
	case bargeArg:
		w.flag(c.wait.Barge)
	case offerArg:
		w.number(int64(c.wait.Offer))
	case secretArg:
		w.text(c.wait.Secret)
	case reserveArg:
		w.flag(c.wait.Reserve)
	case channelArg:
		if c.mode != node.Exclusive {
			w.bytes(node.AppendReadWriteChannel(b, of.Name))
		} else {
			w.bytes(node.AppendChannel(b, of.Name))
		}
	case plainChannelArg:
		w.bytes(node.AppendChannel(b, of.Name))
	case sharedChannelArg:
		w.bytes(node.AppendReadWriteChannel(b, of.Name))
	case placesArg:
		w.bytes(node.AppendPlacePrefix(b, of.Name))
	case holdsArg:
		w.bytes(node.AppendHoldPrefix(b, of.Name))
	}
}

// append appends the Redis command of c to w. The script goes as text to a server that
// may not know it, otherwise as its SHA.
//
// life is the ID of the server's, if it is known.
func (c *call) append(w *words, asText bool, life string) {
	switch c.kind {
	case asksRole:
		w.command("info", "replication")
		return
	case awaitsReplicas:
		c.round(w)
		return
	}
	args := len(c.row.args) + len(c.claims)*len(c.row.each)
	hands := c.handsOver(life)
	if hands {
		args += 2
	}
	w.run(c.row.script, asText, len(c.claims)*len(c.row.keys), args)
	c.writeEach(w, c.row.keys)
	for _, arg := range c.row.args {
		c.write(w, arg, &c.claims[0])
	}
	c.writeEach(w, c.row.each)
	if hands {
		w.number(int64(c.handover))
		w.text(life)
	}
}

// writeEach appends these words about each claim to w.
func (c *call) writeEach(w *words, what []word) {
	for i := range c.claims {
		for _, one := range what {
			c.write(w, one, &c.claims[i])
		}
	}
}

// handsOver reports whether a release may hand its locks over. It needs the server's
// life: without it the new holder could not tell whether the server has a vote.
func (c *call) handsOver(life string) bool { return c.handover != 0 && life != "" }

// run begins a command that runs a script, whose keys and arguments follow.
func (w *words) run(s *script, asText bool, keys, args int) {
	w.begin(3 + keys + args)
	if asText {
		w.text("eval")
		w.text(s.text)
	} else {
		w.text("evalsha")
		w.text(s.sha)
	}
	w.number(int64(keys))
}

// A script is what a server executes, in the two forms in which it takes it.
type script struct{ text, sha string }

var (
	acquireScript     = newScript("of_lock", "acquire")
	acquireEachScript = newScript("acquire_each")
	acquireAllScript  = newScript("constants", "of_lock", "readers", "create", "acquire_all",
		"notify_next", "keep_place", "acquire_queued")
	releaseScript     = newScript("notify_next", "raise_fences", "release")
	releaseAllScript  = newScript("constants", "readers", "notify_next", "keep_place", "raise_fences", "release_all")
	releaseEachScript = newScript("notify_next", "release_each")
	extendScript      = newScript("extend")
	extendReadScript  = newScript("extend_read")
	inspectScript     = newScript("constants", "readers", "inspect")
	breakScript       = newScript("notify_next", "break")
	downgradeScript   = newScript("constants", "notify_next", "downgrade")
	renameScript      = newScript("constants", "rename")
)

//go:embed scripts/*.lua
var sources embed.FS

// undeclared tells Dragonfly that a script uses keys that are not among its KEYS: those
// of readers' holds and of others' places. It has to be the first line.
const undeclared = "--!df flags=allow-undeclared-keys\n"

// newScript makes a script of the files of these names, the functions that it uses first.
func newScript(files ...string) *script {
	text := undeclared
	for _, name := range files {
		text += source(name)
	}
	sum := sha1.Sum([]byte(text))
	return &script{text: text, sha: hex.EncodeToString(sum[:])}
}

// source returns a file, with others in it where it has a line "--include NAME". The
// constants are what scripts share with Go code. A function that most runs of a script do
// not call includes them itself: it costs each run to give it those of the script.
func source(name string) string {
	if name == "constants" {
		return node.LuaConstants()
	}
	text, err := sources.ReadFile("scripts/" + name + ".lua")
	if err != nil {
		panic(err)
	}
	return include.ReplaceAllStringFunc(string(text), func(line string) string {
		return source(strings.TrimPrefix(line, "--include "))
	})
}

var include = regexp.MustCompile(`(?m)^--include .*$`)
