package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"unicode"

	"github.com/redis/go-redis/v9"

	"github.com/redquorum/redquorum/node/redisnode"
)

// List returns what stands between the commas of a text, nothing if it is blank. The
// Sentinels of one URL stay together.
func List(text string) (list []string) {
	if strings.TrimSpace(text) == "" {
		return nil
	}
	for one := range strings.SplitSeq(text, ",") {
		last := len(list) - 1
		switch one = strings.TrimSpace(one); {
		case last >= 0 && endsInSentinels(list[last]):
			list[last] += "," + one
		default:
			list = append(list, one)
		}
	}
	return list
}

func endsInSentinels(u string) bool {
	scheme, rest, ok := strings.Cut(u, "://")
	return ok && strings.HasSuffix(scheme, "sentinel") && !strings.Contains(rest, "/")
}

// Servers returns how to reach single servers, given as URLs, host or host:port. Its
// error shows no password.
func Servers(urls []string) ([]*redis.Options, error) {
	return each(urls, func(u string) (*redis.Options, error) {
		s, err := redisnode.Parse(u)
		if err == nil && s.Replicas > 0 {
			err = errors.New("it is a primary with replicas, and here only single servers can be used")
		}
		return s.Options, err
	})
}

// Nodes is Servers for nodes that may have replicas.
func Nodes(urls []string) ([]redisnode.Server, error) { return each(urls, redisnode.Parse) }

// Info returns the fields of INFO, of some of its sections or the usual ones.
func Info(ctx context.Context, c *redis.Client, sections ...string) (map[string]string, error) {
	text, err := c.Info(ctx, sections...).Result()
	if err != nil {
		return nil, err
	}
	fields := make(map[string]string)
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			fields[name] = value
		}
	}
	return fields, nil
}

// Product returns the name and version of a server by the fields of INFO server.
// redis_version is 7.2.4 in all versions of Valkey.
func Product(fields map[string]string) (name, version string) {
	if version, ok := fields["valkey_version"]; ok {
		return "Valkey", version
	}
	return "Redis", fields["redis_version"]
}

func each[T any](urls []string, parse func(string) (T, error)) (all []T, err error) {
	for i, u := range urls {
		o, err := parse(withPort(u))
		if odd := stray(u); odd != "" && (err != nil || !strings.HasPrefix(u, "unix://")) {
			err = errors.New(odd)
		}
		if u == "" {
			err = errors.New("nothing is between its commas")
		}
		if err != nil {
			return nil, Usage("server %d of %d%s: %w", i+1, len(urls), masked(urls, u), err)
		}
		all = append(all, o)
	}
	return all, nil
}

func withPort(host string) string {
	const port = "6379"
	bare := host
	if strings.HasPrefix(host, "[") && strings.HasSuffix(host, "]") {
		bare = host[1 : len(host)-1]
	}
	if ip, err := netip.ParseAddr(bare); err == nil {
		return net.JoinHostPort(ip.String(), port)
	}
	if host == "" || strings.ContainsFunc(host, func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("-._", r)
	}) {
		return host
	}
	return net.JoinHostPort(host, port)
}

// stray names a character that does not belong in a node's URL, such as quotation marks,
// white space, or a separator. It ignores user and password, which may have any.
func stray(u string) string {
	after := u[strings.LastIndex(u, "@")+1:]
	for _, r := range string([]rune(u)[:1]) + after {
		switch {
		case unicode.IsSpace(r) || unicode.IsControl(r) || r == ';' || r == '|':
			return fmt.Sprintf("it has a %q: separate servers by commas alone", r)
		case strings.ContainsRune("\"'`“”„‘’«»\ufeff", r):
			return fmt.Sprintf("it has a %+q: leave out quotation marks that belong to a shell or a file", r)
		}
	}
	return ""
}

// masked is what an error can show of a node: its host, and its port if that is a number.
// An @ without a scheme before it shows that a comma in a password has cut a URL in two:
// then any text in the list may be part of the password, and nothing is shown.
func masked(urls []string, u string) string {
	for _, other := range urls {
		before, _, at := strings.Cut(other, "@")
		if at && !strings.Contains(before, "://") {
			return ""
		}
	}
	scheme, rest, ok := strings.Cut(u, "://")
	if !ok {
		scheme, rest = "", u
	} else {
		scheme += "://"
	}
	if at := strings.LastIndex(rest, "@"); at >= 0 {
		if strings.Contains(rest, "?") { // the @ may be on either side of it
			return ""
		}
		scheme, rest = scheme+"***@", rest[at+1:]
	}
	end := ""
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		rest, end = rest[:i], "..."
	}
	if i := strings.LastIndex(rest, ":"); i >= 0 {
		if _, err := strconv.Atoi(rest[i+1:]); err != nil {
			rest, end = rest[:i+1], "..."
		}
	}
	return ", " + strconv.Quote(scheme+rest+end)
}
