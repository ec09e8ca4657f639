package redisnode

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redquorum/redquorum/internal/resp"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/node/internal/courier"
)

// ofSentinel is the Network of options whose Dialer asks Sentinels for the address.
const ofSentinel = "sentinel"

// sentinels finds the primary that Sentinels know by a name.
type sentinels struct {
	name        string
	addrs       []string
	credentials func(context.Context) (user, password string, err error)
	renews      bool           // credentials may return others the next time
	primary     *redis.Options // of the primary, whose TLS is also that of the Sentinels
}

// parseSentinel reads a URL as Dial does, whose scheme is among those of Sentinel.
func parseSentinel(u string) (Server, error) {
	scheme, rest, _ := strings.Cut(u, "://")
	to, query, _ := strings.Cut(rest, "?")
	to, path, _ := strings.Cut(to, "/")
	at := strings.LastIndexByte(to, '@') + 1
	name, db, _ := strings.Cut(path, "/")
	settings, bad := url.ParseQuery(query)
	if strings.Contains(name, "@") { // a slash in the password
		name = ""
	}
	name, worse := url.PathUnescape(name)
	hosts, worst := url.PathUnescape(to[at:]) // commas, where URLs are separated by them
	if err := errors.Join(bad, worse, worst); err != nil || name == "" {
		return Server{}, errors.New("not a URL such as sentinel://host1:26379,host2:26379/NAME?replicas=2, where NAME is what Sentinel calls the primary")
	}
	if err := checkSettings(query); err != nil {
		return Server{}, err
	}
	s := &sentinels{name: name}
	for one := range strings.SplitSeq(hosts, ",") {
		if !isHostPort(one) {
			one = net.JoinHostPort(strings.Trim(one, "[]"), "26379")
		}
		switch {
		case !isHostPort(one):
			return Server{}, errors.New("a Sentinel in it is not host:port")
		case slices.Contains(s.addrs, one):
			return Server{}, fmt.Errorf("the Sentinel %s is in it twice", one)
		}
		s.addrs = append(s.addrs, one)
	}
	if err := s.takeCredentials(settings); err != nil {
		return Server{}, err
	}
	plain := "redis://"
	if strings.HasPrefix(scheme, "rediss") {
		plain = "rediss://"
	}
	server, err := Parse(plain + to[:at] + "primary/" + db + "?" + settings.Encode())
	if err != nil {
		return Server{}, err
	}
	if server.Replicas == 0 {
		return Server{}, errNoReplicas
	}
	o := server.Options
	if o.TLSConfig != nil {
		o.TLSConfig.ServerName = settings.Get("sni") // or that of each address
	}
	s.primary = o
	o.Network, o.Addr = ofSentinel, name+"@"+slices.Min(s.addrs) // as others may watch one of that name
	o.Dialer = func(ctx context.Context, _, _ string) (net.Conn, error) {
		addr, err := s.find(ctx)
		if err != nil {
			return nil, err
		}
		return s.dial(ctx, addr)
	}
	return server, nil
}

func (s *sentinels) takeCredentials(settings url.Values) error {
	take := func(setting string) string {
		defer settings.Del(setting)
		return settings.Get(setting)
	}
	user, password, file := take("sentinel_username"), take("sentinel_password"), take("sentinel_password_file")
	s.renews = file != ""
	s.credentials = func(context.Context) (string, string, error) {
		if file == "" {
			return user, password, nil
		}
		text, err := os.ReadFile(file)
		if password := strings.TrimRight(string(text), "\r\n"); password != "" || err != nil {
			return user, password, err
		}
		return "", "", errors.New("the file with its password is empty")
	}
	if password != "" && file != "" {
		return errors.New("it has both sentinel_password and sentinel_password_file")
	}
	return nil
}

// dial connects to a Sentinel or to a server that one has named. Its certificate is for
// the host of addr, also where a caller's function verifies it.
func (s *sentinels) dial(ctx context.Context, addr string) (net.Conn, error) {
	config := s.primary.TLSConfig
	if config != nil && config.ServerName == "" {
		host, _, _ := net.SplitHostPort(addr)
		verify := config.VerifyConnection
		config = config.Clone()
		config.ServerName = host
		if verify != nil {
			config.VerifyConnection = func(c tls.ConnectionState) error {
				c.ServerName = host // that of package tls is no address
				return verify(c)
			}
		}
	}
	return dialer(config)(ctx, "tcp", addr)
}

// find returns the address that most of the Sentinels say. They have half of the time in
// which a connection is to be made.
func (s *sentinels) find(ctx context.Context) (addr string, err error) {
	limit := DefaultDialTimeout / 2
	if end, ok := ctx.Deadline(); ok {
		limit = time.Until(end) / 2
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type answer struct {
		from int
		addr string
		err  error
	}
	answers := make(chan answer, len(s.addrs))
	for i, at := range s.addrs {
		go func() {
			addr, err := s.ask(ctx, at, limit)
			answers <- answer{i, addr, err}
		}()
	}
	said := make(map[string]int)
	errs := make([]error, len(s.addrs))
	for range s.addrs {
		one := <-answers
		if errs[one.from] = one.err; one.err != nil {
			continue
		}
		if said[one.addr]++; said[one.addr] > said[addr] || addr == "" {
			addr = one.addr
		}
		if said[addr] > len(s.addrs)/2 {
			break
		}
	}
	if addr == "" {
		return "", s.nobody(errs)
	}
	return addr, nil
}

func (s *sentinels) ask(ctx context.Context, at string, limit time.Duration) (addr string, err error) {
	said, err := courier.Ask(ctx, courier.Target{
		Dial:        func(ctx context.Context) (net.Conn, error) { return s.dial(ctx, at) },
		Credentials: s.credentials,
		Renews:      s.renews || renews(nil, nil, nil, s.primary.TLSConfig),
		Timeout:     limit,
	}, "sentinel", "get-master-addr-by-name", s.name)
	if err != nil {
		return "", err
	}
	if said == nil {
		return "", errNotWatched
	}
	list, _ := said.([]any)
	if len(list) != 2 {
		return "", fmt.Errorf("%w: %w", node.ErrUnreachable, resp.ErrProtocol)
	}
	host, _ := list[0].(string)
	port, _ := list[1].(string)
	if addr = net.JoinHostPort(host, port); !isHostPort(addr) || strconv.Quote(addr) != `"`+addr+`"` {
		return "", fmt.Errorf("%w: it names no address", node.ErrUnreachable)
	}
	return addr, nil
}

var errNotWatched = errors.New("does not watch it")

var refusals = []error{node.ErrAuth, node.ErrCertificate, node.ErrUnsupported}

// nobody is the error where no Sentinel has named the primary, with what each has said,
// in their order. It is as permanent as the refusals of all that have answered.
func (s *sentinels) nobody(errs []error) error {
	var texts, sayers []string // the same is said once
	var refusal error          // of the first that refuses
	passes, changes := false, false
	for i, err := range errs {
		text := err.Error()
		for _, class := range append([]error{node.ErrUnreachable}, refusals...) {
			text = strings.TrimPrefix(text, class.Error()+": ")
		}
		if at := slices.Index(texts, text); at >= 0 {
			sayers[at] += ", " + s.addrs[i]
		} else {
			texts, sayers = append(texts, text), append(sayers, s.addrs[i])
		}
		away := errors.Is(err, node.ErrUnreachable)
		if at := slices.IndexFunc(refusals, func(class error) bool { return errors.Is(err, class) }); at >= 0 {
			refusal = cmp.Or(refusal, refusals[at])
			changes = changes || away // the next time it may have other credentials
		} else {
			passes = passes || !away
		}
	}
	for i := range texts {
		texts[i] = sayers[i] + ": " + texts[i]
	}
	all := fmt.Errorf("no Sentinel knows the primary %s: %s", s.name, strings.Join(texts, "; "))
	switch {
	case refusal == nil || passes:
		return all
	case changes:
		return fmt.Errorf("%w: %w", refusal, all)
	}
	return courier.InPlace(fmt.Errorf("%w: %w", refusal, all))
}
