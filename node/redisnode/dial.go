package redisnode

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/auth"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/node/internal/courier"
)

// Options change how a node works. The zero value is sensible.
type Options struct {
	// Name is what Node.Name returns. By default it is made of the client's options:
	// host:port or the socket's path, with /db if that is not 0.
	Name string

	// Clock measures deadlines and lives; clock.System() by default. It has to be the
	// same as that of the node's user.
	Clock clock.Clock

	// Queue is how many commands may be open, waiting for a connection or for their
	// reply; 4096 by default. One more is answered with node.ErrOverloaded, unless it
	// extends or releases what was acquired.
	Queue int

	// Logger gets a line when a node goes down, comes up, or begins a new life; by
	// default nothing is logged. If its handler blocks, the node works on: 4096 lines
	// wait for it, and Close waits for a tenth of a second.
	Logger *slog.Logger

	// Replicas is how many replicas the server has, all of them counted. With it the node
	// is one primary with replicas, and may lead to another of these after a failover:
	// see the package's documentation. All programs must have the same.
	Replicas int
}

// Dial returns a node for each URL, in order. It checks all URLs, but does not connect:
// if a server is down, its node is down.
//
// A URL is redis://user:password@host:port/db, rediss:// for TLS, or
// unix://user:password@/path/to/socket?db=0; host:port alone is redis://host:port.
// valkey:// and valkeys:// are the same as redis:// and rediss://. [redis.ParseURL] says
// which settings can follow as a query. The setting sni is the name that TLS asks for, and
// that the server's certificate must have, if that is not the host.
//
// The setting replicas is [Options.Replicas]: redis://primary:6379?replicas=2. Then the
// address may be one that moves to the new primary when there is a failover. To ask
// Sentinels for the address, use
// sentinel://user:password@s1:26379,s2:26379/mymaster/db?replicas=2, where mymaster is
// the primary's name there; with TLS rediss+sentinel://. The node is called
// mymaster@s1:26379. User and password are those of Redis. The Sentinels' own, if they
// have any, are the settings sentinel_username and sentinel_password, or
// sentinel_password_file, which is read for each question. A Sentinel without a port has
// 26379. An error of all Sentinels that answer, such as a wrong password, is permanent
// ([node.Permanent]).
//
// The setting dial_timeout is for how long a connection may be made and greeted, a second
// by default: dial_timeout=5s for a server that is far away.
//
// An error says which URL is wrong and how, but shows nothing of it: a password may be in
// any part of a malformed one.
func Dial(urls ...string) ([]node.Node, error) {
	servers := make([]Server, len(urls))
	var wrong []error
	for i, u := range urls {
		var err error
		if servers[i], err = Parse(u); err != nil {
			wrong = append(wrong, numbered(i, urls, err))
		}
	}
	if err := errors.Join(wrong...); err != nil {
		return nil, err
	}
	return DialServers(servers...)
}

func numbered[T any](i int, of []T, err error) error {
	return fmt.Errorf("redisnode: server %d of %d: %w", i+1, len(of), err)
}

// DialOptions returns a node for each server, as [Dial] does. Use it for settings that a
// URL cannot have, such as a TLS configuration: take the options from [ParseURL], and add
// to them. A Dialer takes the node over any connection, such as an SSH tunnel or the
// dialer of another client of Redis. It then does TLS itself. OnConnect is refused, as
// the connections are not go-redis's.
func DialOptions(options ...*redis.Options) ([]node.Node, error) {
	servers := make([]Server, len(options))
	for i, o := range options {
		servers[i].Options = o
	}
	return DialServers(servers...)
}

// DialServers is [Dial] for parsed URLs.
func DialServers(servers ...Server) ([]node.Node, error) {
	nodes := make([]node.Node, len(servers))
	for i, s := range servers {
		var err error
		if nodes[i], err = s.dial(); err != nil {
			for _, n := range nodes[:i] {
				n.Close()
			}
			return nil, numbered(i, servers, err)
		}
	}
	return nodes, nil
}

// A Server says how to reach a server, and how many replicas it has. [Parse] takes it
// from a URL.
type Server struct {
	*redis.Options
	Replicas int // see Options.Replicas
}

func (s Server) dial() (node.Node, error) {
	if s.Options == nil {
		return nil, errors.New("no options")
	}
	o := *s.Options
	switch {
	case s.Replicas < 0:
		return nil, fmt.Errorf("its Replicas are %d; they must not be below 0", s.Replicas)
	case o.DB < 0:
		return nil, noDB(o.DB)
	case o.OnConnect != nil:
		return nil, errOnConnect
	case o.Network == ofSentinel && s.Replicas == 0:
		return nil, errNoReplicas
	case o.Network == "":
		o.Network = "tcp"
	}
	if o.Dialer == nil {
		o.Dialer = dialer(o.TLSConfig)
	}
	var err error
	if o.DialTimeout, err = dialTimeout(o.DialTimeout); err != nil {
		return nil, err
	}
	return courier.ToServer(directly(&o), courier.Options{Name: nameOf(&o), Replicas: s.Replicas}), nil
}

func noDB(db int) error { return fmt.Errorf("DB is %d; it must not be below 0", db) }

var errOnConnect = errors.New("OnConnect needs a connection of go-redis, and a node's are its own: leave it out, or do the same in the Dialer")

func directly(o *redis.Options) courier.Target {
	return courier.Target{
		Dial:        func(ctx context.Context) (net.Conn, error) { return o.Dialer(ctx, o.Network, o.Addr) },
		Credentials: credentials(o),
		DB:          o.DB,
		ClientName:  o.ClientName,
		Renews: renews(o.StreamingCredentialsProvider, o.CredentialsProviderContext, o.CredentialsProvider,
			o.TLSConfig),
		Timeout: o.DialTimeout,
	}
}

// DefaultDialTimeout is for how long a connection may be made and greeted if DialTimeout
// does not say it.
const DefaultDialTimeout = time.Second

// ofGoRedis is the DialTimeout of each client of go-redis that was given none.
const ofGoRedis = 5 * time.Second

// dialTimeout is for how long a connection may be made and greeted where options say d.
func dialTimeout(d time.Duration) (time.Duration, error) {
	if d < 0 {
		return 0, errors.New("its DialTimeout is without a bound: give it one, such as dial_timeout=5s in a URL")
	}
	return cmp.Or(d, DefaultDialTimeout), nil
}

// timeoutOf is the same for a client, or for what is built around one.
func timeoutOf(client redis.UniversalClient) (d time.Duration, err error) {
	switch c := client.(type) {
	case interface{ Options() *redis.Options }:
		d = c.Options().DialTimeout
	case interface{ Options() *redis.ClusterOptions }:
		d = c.Options().DialTimeout
	}
	if d == ofGoRedis {
		d = 0
	}
	if d, err = dialTimeout(d); err != nil {
		return 0, fmt.Errorf("redisnode: %w", err)
	}
	return d, nil
}

// renews reports whether the next connection may have other credentials, or another
// certificate.
func renews(streaming auth.StreamingCredentialsProvider, withContext func(context.Context) (string, string, error),
	plain func() (string, string), config *tls.Config) bool {
	return streaming != nil || withContext != nil || plain != nil || config != nil && config.GetClientCertificate != nil
}

// credentials returns what the options say about user and password, in go-redis's order.
func credentials(o *redis.Options) func(context.Context) (user, password string, err error) {
	switch {
	case o.StreamingCredentialsProvider != nil:
		return func(context.Context) (user, password string, err error) {
			now, unsubscribe, err := o.StreamingCredentialsProvider.Subscribe(new(deaf))
			if err != nil {
				return "", "", err
			}
			defer unsubscribe()
			user, password = now.BasicAuth()
			return user, password, nil
		}
	case o.CredentialsProviderContext != nil:
		return o.CredentialsProviderContext
	case o.CredentialsProvider != nil:
		return func(context.Context) (user, password string, err error) {
			user, password = o.CredentialsProvider()
			return user, password, nil
		}
	}
	return func(context.Context) (user, password string, err error) { return o.Username, o.Password, nil }
}

// deaf listens to new credentials and does nothing: the next connection asks for them. It
// has a size, so that no two are one listener.
type deaf struct{ _ byte }

func (*deaf) OnNext(auth.Credentials) {}
func (*deaf) OnError(error)           {}

// dialer dials as go-redis does, but respects the context also with TLS.
func dialer(config *tls.Config) func(context.Context, string, string) (net.Conn, error) {
	plain := &net.Dialer{KeepAliveConfig: net.KeepAliveConfig{
		Enable: true, Idle: 15 * time.Second, Interval: 5 * time.Second, Count: 3,
	}}
	if config == nil {
		return plain.DialContext
	}
	return (&tls.Dialer{NetDialer: plain, Config: config}).DialContext
}

// New returns a node for the server, or the servers, that client leads to. The client
// stays the caller's: New does not close it, and sends nothing over a [redis.Client] or a
// [redis.ClusterClient]. The package documentation says which options are copied.
//
// A client of [redis.NewFailoverClient], for Sentinel, needs Options.Replicas, and must
// stay open. If there are several, give each an Options.Name.
//
// New refuses a [redis.Ring], as it would forget the locks of a server that is down, and
// Options.Replicas with anything but a [redis.Client].
func New(client redis.UniversalClient, opts Options) (node.Node, error) {
	if v := reflect.ValueOf(client); !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
		return nil, errors.New("redisnode: no client")
	}
	if _, single := client.(*redis.Client); opts.Replicas < 0 || opts.Replicas > 0 && !single {
		return nil, fmt.Errorf("redisnode: Options.Replicas is %d, of a %T: it is 0 or more, and for a redis.Client only", opts.Replicas, client)
	}
	timeout, err := timeoutOf(client)
	if err != nil {
		return nil, err
	}
	switch c := client.(type) {
	case *redis.Client:
		o := *c.Options()
		o.DialTimeout = timeout
		if err := usable(&o, opts.Replicas); err != nil {
			return nil, fmt.Errorf("redisnode: %w", err)
		}
		opts.Name = cmp.Or(opts.Name, nameOf(&o))
		return courier.ToServer(directly(&o), courier.Options(opts)), nil
	case *redis.ClusterClient:
		o := *c.Options()
		if o.ClusterSlots != nil { // of NewFailoverClusterClient, or the caller's
			return nil, errSentinel
		}
		opts.Name = cmp.Or(opts.Name, strings.Join(o.Addrs, ","))
		cluster := newCluster(o, timeout)
		renews := renews(o.StreamingCredentialsProvider, o.CredentialsProviderContext, o.CredentialsProvider,
			o.TLSConfig)
		return courier.Through(cluster, timeout, renews, courier.Options(opts)), nil
	}
	_, cluster := client.(masters)
	if _, ring := client.(shards); ring && !cluster {
		return nil, fmt.Errorf("redisnode: a %T moves names to other servers when one is down, and these do not have the locks: make each server a node", client)
	}
	if opts.Name == "" {
		return nil, fmt.Errorf("redisnode: a %T has no address: Options.Name is needed", client)
	}
	other := &shared{client: client, timeout: timeout}
	return courier.Through(other, timeout, false, courier.Options(opts)), nil
}

// usable returns why a client of one server, with so many replicas, leads to no node.
func usable(o *redis.Options, replicas int) error {
	switch {
	case replicas == 0 && (o.Addr == "FailoverClient" || o.Network == ofSentinel): // of NewFailoverClient, or Parse
		return errNoReplicas
	case o.OnConnect != nil:
		return errOnConnect
	case o.DB < 0:
		return noDB(o.DB)
	}
	return nil
}

var (
	errNoReplicas = errors.New("after a failover Sentinel leads to another server, while the old one may still grant locks: " +
		"say how many replicas there are, in Options.Replicas or by ?replicas=2 in the URL, or make each master a node, by its own address")
	errSentinel = errors.New("redisnode: a cluster client for Sentinel, or with ClusterSlots of its own, leads to another server after a failover, " +
		"while the old one may still grant locks: use NewFailoverClient and Options.Replicas, or make each master a node, by its own address")
)

func nameOf(o *redis.Options) string {
	if o.DB == 0 {
		return o.Addr
	}
	return o.Addr + "/" + strconv.Itoa(o.DB)
}

// asRedis returns a URL with the scheme of Redis in place of Valkey's.
func asRedis(u string) string {
	if rest, ok := strings.CutPrefix(u, "valkey"); ok && strings.Contains(rest, "://") {
		return "redis" + rest
	}
	return u
}

// Parse reads a URL, or host:port, as [Dial] does.
func Parse(u string) (Server, error) {
	u = asRedis(u)
	switch scheme, _, _ := strings.Cut(u, "://"); scheme {
	case "sentinel", "redis+sentinel", "rediss+sentinel":
		return parseSentinel(u)
	}
	plain, query, _ := strings.Cut(u, "?")
	settings, err := url.ParseQuery(query)
	if err != nil || !settings.Has("replicas") {
		o, err := ParseURL(u)
		return Server{o, 0}, err
	}
	if err := checkSettings(query); err != nil {
		return Server{}, err
	}
	replicas, err := strconv.Atoi(settings.Get("replicas"))
	if err != nil || replicas < 0 {
		return Server{}, errors.New("its setting replicas is no number of replicas")
	}
	settings.Del("replicas")
	o, err := ParseURL(strings.TrimSuffix(plain+"?"+settings.Encode(), "?"))
	return Server{o, replicas}, err
}

// ParseURL is [redis.ParseURL], also for host:port, with errors that quote nothing of the
// URL: in a malformed one any part may belong to a password that was not percent-encoded.
// The setting replicas, and Sentinel, are for [Parse].
func ParseURL(u string) (*redis.Options, error) {
	if !strings.Contains(u, "://") { // redis.ParseURL would take some of these for localhost
		if !isHostPort(u) {
			return nil, errors.New("not a URL, such as redis://host:6379, nor host:port")
		}
		u = "redis://" + strings.ReplaceAll(u, "%", "%25") // before a zone
	}
	parsed, err := url.Parse(asRedis(u))
	if err != nil || strings.Contains(u, "#") { // nothing has a fragment, but a password may have the sign
		return nil, errors.New("malformed: its port must be a number, and special characters in its user or password " +
			"must be percent-encoded, also a comma (%2C) where URLs are separated by commas")
	}
	if err := checkSettings(parsed.RawQuery); err != nil {
		return nil, err
	}
	query, settings := parsed.RawQuery, parsed.Query()
	sni := settings.Get("sni")
	settings.Del("sni") // which redis.ParseURL does not know
	parsed.RawQuery = settings.Encode()
	o, err := redis.ParseURL(parsed.String())
	if err == nil && o.DB < 0 {
		return nil, errors.New("the number of its database is negative")
	}
	if db, e := strconv.Atoi(strings.Trim(parsed.Path, "/")); e == nil && err == nil && o.Network == "tcp" &&
		db != o.DB {
		return nil, errors.New("its path and its setting db have different databases")
	}
	if err == nil {
		if o.TLSConfig != nil && sni != "" {
			o.TLSConfig.ServerName = sni
		} else if sni != "" {
			return nil, errors.New("its setting sni is for TLS, so its scheme must be rediss, valkeys or rediss+sentinel")
		}
		_, err := dialTimeout(o.DialTimeout)
		return o, err
	}
	switch parsed.Scheme {
	case "redis", "rediss", "unix":
	default:
		return nil, errors.New("its scheme is not redis, rediss, valkey, valkeys or unix, nor sentinel or rediss+sentinel with ?replicas=2")
	}
	parsed.RawQuery = ""
	switch _, err := redis.ParseURL(parsed.String()); {
	case err == nil:
		return nil, fmt.Errorf("%s after its ? is unknown, or has an invalid value", wrongSetting(*parsed, query))
	case parsed.Scheme == "unix":
		return nil, errors.New("it has no socket path")
	}
	return nil, errors.New("its path is not a database number")
}

// checkSettings refuses a malformed or repeated setting: redis.ParseURL drops the first,
// and takes one of the others.
func checkSettings(query string) error {
	settings, err := url.ParseQuery(query)
	if err != nil {
		return errors.New("a setting after its ? is malformed: each is name=value, with & between them")
	}
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		if len(settings[name]) > 1 {
			return fmt.Errorf("%s after its ? is there more than once", settingCalled(name, query))
		}
	}
	return nil
}

// wrongSetting names the first setting of a query that makes the URL wrong.
func wrongSetting(u url.URL, query string) string {
	for setting := range strings.SplitSeq(query, "&") {
		u.RawQuery = setting
		name, _, assigned := strings.Cut(setting, "=")
		if _, err := redis.ParseURL(u.String()); err != nil && assigned && name != "sni" {
			return settingCalled(name, query)
		}
	}
	return "a setting"
}

// settingCalled names a setting of a query, but not if it may be a part of a password.
func settingCalled(name, query string) string {
	if strings.Contains(query, "@") || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz_") != "" {
		return "a setting"
	}
	return fmt.Sprintf("the setting %q", name)
}

func isHostPort(text string) bool {
	host, port, err := net.SplitHostPort(text)
	if ip, bad := netip.ParseAddr(host); err == nil && bad == nil {
		host = strings.Replace(host, "%"+ip.Zone(), ip.Zone(), 1)
	}
	if err != nil || host == "" || strings.ContainsAny(host, "@/?#%") {
		return false
	}
	n, err := strconv.ParseUint(port, 10, 16)
	return err == nil && n > 0
}
