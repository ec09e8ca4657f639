package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/redquorum/redquorum/internal/cli"
	"github.com/redquorum/redquorum/internal/neterr"
	"github.com/redquorum/redquorum/internal/terminal"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/node/redisnode"
	"github.com/redquorum/redquorum/quorum"
)

const listManual = `Lists the locks that are held: the mode, the time left without renewal, the
number of waiters, on how many nodes the owner has it, the label of its program,
or its owner name if it has none, and its note. PATTERN is as in Redis' SCAN: *
is any text, ? any character, [ab] one of these. Locks of Redisson are listed,
too.
On a terminal a long line is cut; 'redquorum status' and --json show all of it.

It changes nothing and does not block the servers: it reads the keys of each
node by SCAN, in small steps, for at most 10 s. A majority of the nodes has to
be read to find every lock; otherwise the verdict is unknown. A node that
restarted recently does not count: it may have lost locks (see --max-lease). The
list may be outdated when you read it. The user needs SCAN.

With --names-from it asks for the names in a file, one a line, without SCAN: 500
of them at a time. - is the standard input. It lists those that somebody has;
locks of other libraries have no owner.

It shows no age: nodes do not store when a lock was acquired. The fence of
status is no substitute, as attempts of other callers raise it while the lock is
held.

Exit status: 0, or 1 if the verdict is unknown, 2 usage.

example:
  redquorum list 'orders/*'
  redquorum list --json --names-from shards.txt`

const (
	scanTime = 10 * time.Second // for each node
	scanStep = 1000             // keys in one step
)

type lockJSON struct {
	Name    string   `json:"name"`
	State   string   `json:"state"` // held; partial: too few nodes for a lock; unknown: too few nodes are usable
	Mode    string   `json:"mode"`
	Owner   string   `json:"owner"`
	Label   string   `json:"label"`       // of the owner's program; "": not known
	Note    string   `json:"note"`        // of the owner; "": it has none
	Owners  []string `json:"owners"`      // with a majority: several only if they read, and some if over 60
	More    int      `json:"more_owners"` // that are not in owners; some may be dead
	Left    int64    `json:"left_ms"`     // without renewal; -1: it never expires
	Waiting int      `json:"waiting"`
	HeldBy  int      `json:"held_by"`
	Nodes   int      `json:"nodes"`
}

type listJSON struct {
	Verdict string       `json:"verdict"` // complete, or unknown: locks may be missing
	Locks   []lockJSON   `json:"locks"`
	Unread  []unreadJSON `json:"unread"` // nodes that were not read to the end, or may have lost locks
	Read    int          `json:"read"`   // the other nodes
	Needed  int          `json:"needed"` // of these, to find every lock

	hidden map[string]int // locks that are not listed, by state
}

type unreadJSON struct {
	Node  string `json:"node"`
	Error string `json:"error"`
}

func listVerb() *cobra.Command {
	cmd, fs := newVerb("list [PATTERN]", "list the locks that are held", listManual)
	var nodes nodeFlags
	nodes.register(fs)
	nodes.registerPrefix(fs)
	all := fs.Bool("all", false, "also list keys that are on too few nodes for a lock")
	asJSON := fs.Bool("json", false, "print one JSON object")
	from := fs.String("names-from", "", "a `file` with the names to list, one a line, instead of a pattern; - is the standard input")
	cmd.Args = func(_ *cobra.Command, args []string) error {
		switch given := fs.Changed("names-from"); {
		case given && len(args) > 0:
			return cli.Usage("a pattern and --names-from exclude each other")
		case given && *from == "":
			return cli.Usage("--names-from names no file")
		case len(args) == 0:
			return nil
		}
		return cli.One("the pattern")(cmd, args) // a variable that is not set does not stand for all locks
	}
	return doesUntilSignal(cmd, func(ctx context.Context, c *command) error {
		pattern := "*"
		if len(c.args) == 1 {
			pattern = c.args[0]
		}
		servers, err := nodes.clients()
		if err != nil {
			return err
		}
		l, done, err := nodes.locker(quorum.Options{Timeout: time.Second, Quorum: quorumMost})
		if err != nil {
			return err
		}
		defer done()
		names, errs := []string(nil), make([]error, len(servers))
		if *from != "" {
			names, err = readNames(*from)
		} else {
			names, errs = scanAll(ctx, servers, nodes.prefix, pattern)
			err = findForgetful(ctx, l, pattern, errs)
		}
		var locks []lockJSON
		if err == nil {
			locks, err = inspectAll(ctx, l, names, errs)
		}
		if err != nil {
			return err
		}
		unread := []unreadJSON{}
		for i, err := range errs {
			if err != nil {
				unread = append(unread, unreadJSON{address(servers[i]), neterr.Text(err)})
			}
		}
		found := newList(locks, *all, len(servers), unread)
		err = c.print(*asJSON, found, func(w io.Writer) string {
			warnUnread(c.stderr, unread)
			return found.text(w, *all)
		})
		if err == nil && found.Verdict != "complete" {
			err = cli.Exit(cli.Failed)
		}
		return err
	})
}

// readNames reads names from a file, one a line.
func readNames(file string) (names []string, err error) {
	var text []byte
	if file == "-" {
		text, err = io.ReadAll(os.Stdin)
	} else {
		text, err = os.ReadFile(file)
	}
	for i, line := range strings.Split(string(text), "\n") {
		name := strings.TrimSuffix(line, "\r")
		if name == "" {
			continue
		}
		if bad := node.CheckName(name); bad != nil {
			return nil, cli.Usage("%s: line %d: %w", file, i+1, bad)
		}
		names = append(names, name)
	}
	return names, err
}

// warnUnread names nodes with the same reason together.
func warnUnread(w io.Writer, unread []unreadJSON) {
	var reasons []string
	nodes := make(map[string][]string)
	for _, u := range unread {
		if nodes[u.Error] == nil {
			reasons = append(reasons, u.Error)
		}
		nodes[u.Error] = append(nodes[u.Error], u.Node)
	}
	for _, reason := range reasons {
		line := fmt.Sprintf("redquorum list: not usable: %s: %s", strings.Join(nodes[reason], ", "), reason)
		if terminal.Is(w) {
			line = terminal.Wrap(terminal.Columns(w), line, "  ")
		}
		fmt.Fprintln(w, line)
	}
}

func newList(locks []lockJSON, all bool, nodes int, unread []unreadJSON) listJSON {
	f := listJSON{Verdict: "complete", Locks: []lockJSON{}, Unread: unread, Read: nodes - len(unread),
		Needed: nodes/2 + 1, hidden: make(map[string]int)}
	if f.Read < f.Needed {
		f.Verdict = "unknown"
	}
	for _, lock := range locks {
		if lock.State == "held" || all {
			f.Locks = append(f.Locks, lock)
		} else {
			f.hidden[lock.State]++
		}
	}
	return f
}

// scanAll returns names sorted, and an error for each node, nil if it was read.
func scanAll(ctx context.Context, servers []redisnode.Server, prefix, pattern string) (names []string, errs []error) {
	found, errs := make([][]string, len(servers)), make([]error, len(servers))
	var g errgroup.Group
	for i, o := range servers {
		g.Go(func() error {
			found[i], errs[i] = scan(ctx, o, prefix, pattern)
			return nil
		})
	}
	_ = g.Wait() // what fails is in errs
	names = slices.Concat(found...)
	slices.Sort(names)
	return slices.Compact(names), errs
}

// findForgetful adds nodes that may have lost locks in a restart to errs. It asks for a
// name that begins as the pattern does: the user may have no right to others.
func findForgetful(ctx context.Context, l *quorum.Locker, pattern string, errs []error) error {
	begin, name := pattern, "redquorum-list:"+rand.Text()
	if i := strings.IndexAny(pattern, `*?[\`); i >= 0 {
		begin = pattern[:i]
	}
	if node.CheckName(begin+name) == nil {
		name = begin + name
	}
	r, err := l.Inspect(ctx, name)
	if err == nil {
		noteUnusable(r, errs)
	}
	return err
}

// noteUnusable adds nodes that may have lost locks, or did not answer, to errs. A key of
// another type is an answer.
func noteUnusable(r *quorum.Report, errs []error) {
	for i, n := range r.Nodes {
		switch {
		case errs[i] != nil:
		case n.Abstains > 0:
			errs[i] = fmt.Errorf("it restarted recently, or was a replica, and may have lost locks: it is ignored for %v",
				n.Abstains.Round(time.Second))
		case !errors.Is(n.Err, node.ErrWrongType):
			errs[i] = n.Err
		}
	}
}

// scan returns names of one node in no order, perhaps twice.
func scan(ctx context.Context, o redisnode.Server, prefix, pattern string) (names []string, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, scanTime, fmt.Errorf("it has more keys than can be read in %v",
		scanTime))
	defer cancel()
	client := newClient(o.Options)
	defer client.Close()
	for cursor := uint64(0); ; {
		var found, keys []string
		found, cursor, err = client.ScanType(ctx, cursor, globEscape.Replace(prefix)+pattern, scanStep, "hash").Result()
		if err == nil { // else empty strings may be in found
			keys, err = onlyLocks(ctx, client, found)
		}
		for _, key := range keys {
			names = append(names, strings.TrimPrefix(key, prefix))
		}
		if err != nil && ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		if err != nil || cursor == 0 {
			return names, err
		}
	}
}

var globEscape = strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`, "]", `\]`)

// onlyLocks looks at a few fields of each hash: those of other programs may be large.
func onlyLocks(ctx context.Context, client *redis.Client, keys []string) (locks []string, err error) {
	if len(keys) == 0 {
		return nil, nil
	}
	replies, err := client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for _, key := range keys {
			p.HScan(ctx, key, 0, "*", 10)
		}
		return nil
	})
	if redisError := redis.Error(nil); err != nil && !errors.As(err, &redisError) {
		return nil, err
	}
	err = nil
	for i, reply := range replies {
		fields, _, failed := reply.(*redis.ScanCmd).Result()
		switch {
		case failed != nil && strings.HasPrefix(failed.Error(), "NOPERM"):
			err = failed
		case failed == nil && node.CheckName(keys[i]) == nil && isLock(fields):
			locks = append(locks, keys[i])
		}
	}
	return locks, err
}

// isLock reports whether fields, each with its value, may be a lock's: an owner is a UUID
// and a number, the value says how often.
func isLock(fields []string) bool {
	owners := 0
	for pair := range slices.Chunk(fields, 2) {
		field, value := pair[0], pair[1]
		if field == node.ModeField && (value == node.Read.String() || value == node.Write.String()) {
			continue
		}
		process, number, _ := strings.Cut(strings.TrimSuffix(strings.TrimSuffix(field, node.WriteSuffix),
			node.OfferSuffix), ":")
		_, err := strconv.ParseUint(number, 10, 64)
		_, counts := strconv.ParseUint(value, 10, 64)
		if err != nil || counts != nil || len(process) != len("xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx") ||
			strings.Count(process, "-") != 4 {
			return false
		}
		owners++
	}
	return owners > 0
}

// inspectAll returns the locks that somebody has, and adds to errs why a node is unusable.
func inspectAll(ctx context.Context, l *quorum.Locker, names []string, errs []error) (locks []lockJSON, err error) {
	reports, err := l.Holders(ctx, names...)
	for _, r := range reports {
		if r.Owner != "" || r.Verdict == quorum.VerdictHeld { // another library's lock has no owner
			locks = append(locks, *newLock(r))
		}
		noteUnusable(r, errs)
	}
	return locks, err
}

func newLock(r *quorum.Report) *lockJSON {
	lock := &lockJSON{Name: r.Name, State: "partial", Mode: r.Mode.String(), Owner: r.Owner, Label: r.Label(r.Owner),
		Note: r.Note(r.Owner), Owners: list(r.Owners), More: r.MoreOwners, Left: left(r).Milliseconds(),
		Waiting: len(r.Waiting) + r.MoreWaiting, HeldBy: r.HeldBy, Nodes: len(r.Nodes)}
	switch r.Verdict {
	case "held":
		lock.State = "held"
	case "no-quorum":
		lock.State = "unknown"
	}
	if left(r) == node.NoExpiry {
		lock.Left = -1
	}
	return lock
}

// left is how long the owner has a majority of the nodes without renewal, or else the
// nodes that it has; node.NoExpiry if forever.
func left(r *quorum.Report) time.Duration {
	var ends []time.Duration
	never := 0
	for _, n := range r.Nodes {
		switch {
		case !slices.Contains(n.Owners, r.Owner) && (r.Owner != "" || n.Value == ""):
		case n.TTL == node.NoExpiry:
			never++
		default:
			ends = append(ends, n.TTL)
		}
	}
	last := min(r.Quorum, never+len(ends)) - never // of those that end, from the longest
	if last <= 0 {
		return node.NoExpiry
	}
	slices.Sort(ends)
	return ends[len(ends)-last]
}

// text is for people, with the state of each lock if states is true.
func (f listJSON) text(w io.Writer, states bool) string {
	rows := [][]string{{"STATE", "NAME", "MODE", "LEFT", "WAITING", "NODES", "OWNER"}}
	for _, l := range f.Locks {
		left, owner := "no end", printable(cmp.Or(l.Label, l.Owner, "another library's lock"))
		if l.Left >= 0 {
			left = (time.Duration(l.Left) * time.Millisecond).Round(100 * time.Millisecond).String()
		}
		if l.Note != "" {
			owner += ": " + printable(l.Note)
		}
		if all := len(l.Owners) + l.More; all > 1 && l.Owner != "" {
			owner = fmt.Sprintf("%d, such as %s", all, owner)
		}
		rows = append(rows, []string{l.State, printable(l.Name), l.Mode, left, fmt.Sprint(l.Waiting),
			fmt.Sprintf("%d/%d", l.HeldBy, l.Nodes), owner})
	}
	if !states {
		for i := range rows {
			rows[i] = rows[i][1:]
		}
	}
	var b strings.Builder
	p := newPainter(w)
	for i, line := range table(rows) {
		color := ""
		if i > 0 {
			color = lockColors[f.Locks[i-1].State]
		}
		if len(f.Locks) > 0 {
			b.WriteString(p.paint(color, fitted(w, line)) + "\n")
		}
	}
	color := green
	if f.Verdict != "complete" {
		color = red
	}
	b.WriteString(p.paint(color, wrapped(f.verdict(states), "")) + "\n")
	return b.String()
}

var lockColors = map[string]string{"partial": yellow, "unknown": yellow}

// verdict is the last line.
func (f listJSON) verdict(states bool) string {
	counts := maps.Clone(f.hidden)
	for _, l := range f.Locks {
		counts[l.State]++
	}
	var parts []string
	if f.Verdict != "complete" {
		parts = append(parts, fmt.Sprintf("unknown: %d of %d nodes are usable, %d needed", f.Read, f.Read+len(f.Unread),
			f.Needed))
	}
	switch n := counts["held"]; {
	case n == 1:
		parts = append(parts, "1 lock is held")
	case n > 1:
		parts = append(parts, fmt.Sprintf("%d locks are held", n))
	case f.Verdict == "complete":
		parts = append(parts, "no lock is held")
	}
	if n := counts["partial"]; n > 0 {
		parts = append(parts, fmt.Sprintf("%d more on too few nodes", n))
	}
	if n := counts["unknown"]; n > 0 {
		parts = append(parts, fmt.Sprintf("%d may be held: too few nodes are usable", n))
	}
	text := strings.Join(parts, "; ")
	if len(f.hidden) > 0 && !states {
		text += ": --all lists them"
	}
	return text
}

func fitted(w io.Writer, line string) string {
	if !terminal.Is(w) {
		return line
	}
	return terminal.Cut(line, terminal.Columns(w))
}
