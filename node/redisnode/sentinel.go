package redisnode

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// ofSentinel is the Network of options whose Dialer asks Sentinels for the address.
const ofSentinel = "sentinel"

// sentinels finds the primary that Sentinels know by a name.
type sentinels struct {
	name  string
	addrs []string
	asks  redis.Options // for each of them, but for its address
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
	s.asks.Username, s.asks.Password = settings.Get("sentinel_username"), settings.Get("sentinel_password")
	settings.Del("sentinel_username")
	settings.Del("sentinel_password")
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
		o.TLSConfig.ServerName = "" // that of each address
	}
	s.asks.TLSConfig = o.TLSConfig
	o.Network, o.Addr = ofSentinel, name+"@"+slices.Min(s.addrs) // as others may watch one of that name
	o.Dialer = func(ctx context.Context, _, _ string) (net.Conn, error) {
		addr, err := s.primary(ctx)
		if err != nil {
			return nil, err
		}
		return dialer(o.TLSConfig)(ctx, "tcp", addr)
	}
	return server, nil
}

// primary returns the address that most of the Sentinels say.
func (s *sentinels) primary(ctx context.Context) (addr string, err error) {
	ctx, cancel := context.WithTimeout(ctx, askFor)
	defer cancel()
	type answer struct {
		addr string
		err  error
	}
	answers := make(chan answer, len(s.addrs))
	for _, at := range s.addrs {
		go func() {
			addr, err := s.ask(ctx, at)
			answers <- answer{addr, err}
		}()
	}
	said := make(map[string]int)
	var errs []error
	for range s.addrs {
		one := <-answers
		if one.err != nil {
			errs = append(errs, one.err)
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
		return "", fmt.Errorf("no Sentinel knows the primary %s: %w", s.name, errors.Join(errs...))
	}
	return addr, nil
}

// askFor is how long the Sentinels have, of the second in which a connection is to be made.
const askFor = 500 * time.Millisecond

// ask asks one Sentinel.
func (s *sentinels) ask(ctx context.Context, at string) (addr string, err error) {
	o := s.asks
	o.Addr, o.Dialer = at, dialer(o.TLSConfig)
	o.ContextTimeoutEnabled, o.MaxRetries, o.DialerRetries = true, -1, 1
	o.Protocol, o.DisableIdentity = 2, true
	c := redis.NewSentinelClient(&o)
	defer c.Close()
	said, err := c.GetMasterAddrByName(ctx, s.name).Result()
	switch {
	case errors.Is(err, redis.Nil), err == nil && len(said) != 2:
		return "", fmt.Errorf("%s does not watch it", at)
	case err != nil:
		return "", fmt.Errorf("%s: %v", at, err) // it is not an answer of the primary
	}
	return net.JoinHostPort(said[0], said[1]), nil
}
