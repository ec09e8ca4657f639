package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/redquorum/redquorum/internal/cli"
	"github.com/redquorum/redquorum/internal/terminal"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/node/embedded"
	"github.com/redquorum/redquorum/node/redisnode"
	"github.com/redquorum/redquorum/quorum"
)

type nodeFlags struct {
	nodes    string
	given    int    // how often --nodes is there
	user     string // the file that has it
	password string // the file that has it
	cacert   string // files of TLS
	cert     string
	key      string
	embedded int
	maxLease time.Duration
	noGuard  bool
	prefix   string
	set      *pflag.FlagSet
	instead  string // what else there is but naming nodes, for an error
}

func (n *nodeFlags) register(fs *pflag.FlagSet) {
	n.set = fs
	// No default of the flag: the help would show the environment, passwords included.
	fs.Func("nodes", "`URLs` of the nodes, separated by commas: see 'redquorum help nodes' (default $REDQUORUM_NODES)", func(s string) error {
		n.given++
		if n.nodes = s; strings.TrimSpace(s) == "" { // a variable that is not set does not stand for other servers
			return errors.New("want the URLs of the nodes")
		}
		return nil
	})
	fs.StringVar(&n.password, "password-file", "",
		"the `file` with the password, for nodes whose URL has none; like the files of TLS it is read for each connection")
	fs.StringVar(&n.user, "user-file", "", "the `file` with the user's name, for nodes whose password is in --password-file")
	fs.StringVar(&n.cacert, "cacert", "", "a PEM `file` with the CA of nodes whose URL is rediss:// (default: the system's CAs)")
	fs.StringVar(&n.cert, "cert", "", "a PEM `file` with the certificate of this client, for rediss://; --key has its key")
	fs.StringVar(&n.key, "key", "", "a PEM `file` with the key of --cert")
	fs.DurationVar(&n.maxLease, "max-lease", 0,
		"the longest lease in use anywhere on these nodes; a node that is new or restarted is ignored for this long (default $REDQUORUM_MAX_LEASE, or 30s)")
	fs.BoolVar(&n.noGuard, "no-guard", false, "use nodes right after a restart: safe only with appendfsync always")
}

func (n *nodeFlags) registerPrefix(fs *pflag.FlagSet) {
	fs.StringVar(&n.prefix, "prefix", "", "a `text` before every lock's name on the nodes: the Options.Prefix of the application, if several share the servers")
}

func (n *nodeFlags) registerEmbedded(fs *pflag.FlagSet) {
	n.instead = "; or --embedded 3, to try the command"
	fs.Func("embedded", "instead of --nodes, start `N` nodes inside this process, to try the command: they exclude no other process", func(s string) (err error) {
		// as many as a lock can have
		if n.embedded, err = strconv.Atoi(s); err != nil || n.embedded < 1 || n.embedded > 63 {
			return errors.New("want an odd number, at most 63")
		}
		return nil
	})
}

func (n *nodeFlags) urls() ([]string, error) {
	if n.given > 1 { // the last one alone would be a lock on fewer servers
		return nil, cli.Usage("--nodes is there %d times: give all nodes in one, separated by commas", n.given)
	}
	urls := cli.List(cmp.Or(n.nodes, os.Getenv("REDQUORUM_NODES")))
	if len(urls) == 0 {
		return nil, cli.Usage("no nodes: give their URLs with --nodes, or in REDQUORUM_NODES%s", n.instead)
	}
	return urls, nil
}

func (n *nodeFlags) limit() (time.Duration, error) {
	text := os.Getenv("REDQUORUM_MAX_LEASE")
	given := n.set != nil && n.set.Changed("max-lease")
	if given || n.maxLease != 0 || text == "" {
		if given && n.maxLease <= 0 || n.maxLease > quorum.Defaults().FenceRetention {
			return 0, cli.Usage("--max-lease is %v; it must be more than 0, and at most %v", n.maxLease,
				quorum.Defaults().FenceRetention)
		}
		return n.maxLease, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 || d > quorum.Defaults().FenceRetention {
		return 0, cli.Usage("REDQUORUM_MAX_LEASE is %s; it must be a time such as 30s, at most %v", cli.Quoted(text),
			quorum.Defaults().FenceRetention)
	}
	return d, nil
}

// locker connects to the nodes. done also ends embedded ones.
func (n *nodeFlags) locker(o quorum.Options) (l *quorum.Locker, done func(), err error) {
	if o.MaxLease, err = n.limit(); err != nil {
		return nil, nil, err
	}
	o.NoRestartGuard, o.Prefix = n.noGuard, n.prefix
	nodes, end, err := n.connect()
	if err != nil {
		return nil, nil, err
	}
	l, err = lockOn(nodes, o)
	if err != nil {
		end()
		return nil, nil, err
	}
	return l, func() { _ = l.Close(); end() }, nil
}

// asksAbout makes a verb about the lock NAME, which takes no lock.
func asksAbout(cmd *cobra.Command, do func(ctx context.Context, c *command, nodes *nodeFlags, l *quorum.Locker, name string) error) *cobra.Command {
	var nodes nodeFlags
	nodes.register(cmd.Flags())
	nodes.registerPrefix(cmd.Flags())
	name := nameFlag(cmd)
	return doesUntilSignal(cmd, func(ctx context.Context, c *command) error {
		l, done, err := nodes.locker(quorum.Options{Timeout: 2 * time.Second, Quorum: quorumMost})
		if err != nil {
			return err
		}
		defer done()
		return do(ctx, c, &nodes, l, *name)
	})
}

// These stand for numbers of nodes until the nodes are known.
const (
	quorumAll  = -1 // all
	quorumMost = -2 // a majority, also of an even number: for verbs that take no lock
)

var asFlags = strings.NewReplacer("Options.Quorum", "--quorum", "Options.Lease", "--lease",
	"Options.MaxHold", "--max-hold", "Options.Timeout", "--timeout",
	"Options.MaxLease", "--max-lease", "Options.Prefix", "--prefix", "MaxLease", "--max-lease")

// A flagged error names flags instead of options.
type flagged struct{ error }

func (f flagged) Error() string { return inFlags(f.error) }
func (f flagged) Unwrap() error { return f.error }

func inFlags(err error) string {
	const longest = 2000 // names of locks are long, or many
	flags := strings.NewReplacer("see Options.MaxLease, Options.NoRestartGuard", "see --max-lease, --no-guard",
		"see Options.MaxLease", "see --max-lease")
	return terminal.Cut(flags.Replace(err.Error()), longest)
}

// lockOn is quorum.New with errors in the words of the command line. It closes the nodes
// if it fails.
func lockOn(nodes []node.Node, o quorum.Options) (l *quorum.Locker, err error) {
	switch o.Quorum {
	case quorumAll:
		o.Quorum = len(nodes)
	case quorumMost:
		o.Quorum = len(nodes)/2 + 1
	}
	l, err = quorum.New(nodes, o)
	switch n := len(nodes); {
	case err == nil:
	case n > 0 && n%2 == 0 && o.Quorum == 0 && !errors.Is(err, quorum.ErrSameServer):
		err = cli.Usage("%d nodes survive the loss of no more nodes than %d would: list an odd number", n, n-1)
	default:
		err = cli.Usage("%s", asFlags.Replace(strings.TrimPrefix(err.Error(), "quorum: ")))
	}
	if err != nil {
		for _, n := range nodes {
			_ = n.Close()
		}
	}
	return l, err
}

func (n *nodeFlags) connect() (nodes []node.Node, end func(), err error) {
	if n.embedded != 0 {
		if n.nodes != "" {
			return nil, nil, cli.Usage("--nodes and --embedded exclude each other")
		}
		set, err := embedded.Start(n.embedded)
		if err != nil {
			return nil, nil, err
		}
		return set.Nodes(), func() { _ = set.Close() }, nil
	}
	servers, err := n.servers()
	if err != nil {
		return nil, nil, err
	}
	nodes, err = redisnode.DialServers(servers...)
	return nodes, func() {}, err
}

func (n *nodeFlags) servers() ([]redisnode.Server, error) {
	urls, err := n.urls()
	if err != nil {
		return nil, err
	}
	if err := n.checkFiles(); err != nil {
		return nil, err
	}
	all, err := cli.Nodes(urls)
	if err != nil {
		return nil, err
	}
	secure, trusted := false, new(atomic.Bool)
	for _, o := range all {
		if n.noGuard && o.Replicas > 0 { // as quorum.New says it of a lock
			return nil, cli.Usage("node %s is a primary with replicas: it needs the restart guard after a failover, without --no-guard", address(o))
		}
		if n.password != "" && o.Password == "" {
			o.CredentialsProviderContext = func(context.Context) (user, password string, err error) {
				if user = o.Username; user == "" && n.user != "" {
					user, err = readLine("--user-file", n.user)
				}
				password, wrong := readLine("--password-file", n.password)
				return user, password, cmp.Or(err, wrong)
			}
		}
		if o.TLSConfig != nil {
			secure = true
			n.readFilesOfTLS(o.TLSConfig, trusted)
		}
	}
	if !secure && n.cacert+n.cert != "" {
		return nil, cli.Usage("--cacert, --cert and --key are for TLS, and no node's URL begins with rediss://")
	}
	return all, nil
}

// checkFiles reads the files once: an error in them is one of usage.
func (n *nodeFlags) checkFiles() error {
	switch {
	case (n.cert == "") != (n.key == ""):
		return cli.Usage("--cert and --key need each other")
	case n.user != "" && n.password == "":
		return cli.Usage("--user-file needs --password-file")
	}
	for _, file := range []struct {
		given string
		read  func() error
	}{
		{n.cacert, func() error { _, err := n.readCAs(); return err }},
		{n.cert, func() error { _, err := n.readCertificate(); return err }},
		{n.user, func() error { _, err := readLine("--user-file", n.user); return err }},
		{n.password, func() error { _, err := readLine("--password-file", n.password); return err }},
	} {
		if file.given == "" {
			continue
		}
		if err := file.read(); err != nil {
			return cli.Usage("%v", err)
		}
	}
	return nil
}

// readFilesOfTLS has each connection read the files, as they may be replaced. Once a
// server was trusted, one that is not may only be ahead of the file, so its error does
// not name certificates, which would look permanent.
func (n *nodeFlags) readFilesOfTLS(config *tls.Config, trusted *atomic.Bool) {
	if n.cert != "" {
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return n.readCertificate() }
	}
	if n.cacert == "" {
		return
	}
	host := config.ServerName        // "" of Sentinel: then each ConnectionState has it; otherwise that has no address
	config.InsecureSkipVerify = true // VerifyConnection does it
	config.VerifyConnection = func(c tls.ConnectionState) error {
		roots, err := n.readCAs()
		if err != nil {
			return err
		}
		others := x509.NewCertPool()
		for _, cert := range c.PeerCertificates[1:] {
			others.AddCert(cert)
		}
		as := x509.VerifyOptions{Roots: roots, Intermediates: others, DNSName: cmp.Or(host, c.ServerName)}
		_, err = c.PeerCertificates[0].Verify(as)
		switch {
		case err == nil:
			trusted.Store(true)
			return nil
		case trusted.Load():
			return fmt.Errorf("it has another certificate now: %v", err)
		}
		return &tls.CertificateVerificationError{UnverifiedCertificates: c.PeerCertificates, Err: err}
	}
}

func (n *nodeFlags) readCAs() (*x509.CertPool, error) {
	text, err := os.ReadFile(n.cacert)
	if err != nil {
		return nil, fmt.Errorf("--cacert: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("--cacert: %s has no certificate in PEM", n.cacert)
	}
	return roots, nil
}

func (n *nodeFlags) readCertificate() (*tls.Certificate, error) {
	pair, err := tls.LoadX509KeyPair(n.cert, n.key)
	if err != nil {
		return nil, fmt.Errorf("--cert and --key: %w", err)
	}
	return &pair, nil
}

// readLine returns what the file of a flag has, without the end of the line.
func readLine(flag, path string) (string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("%s: %w", flag, err)
	}
	line := strings.TrimRight(string(text), "\r\n")
	if line == "" {
		return "", fmt.Errorf("%s: %s is empty", flag, path)
	}
	return line, nil
}

func address(o redisnode.Server) string {
	if o.DB != 0 {
		return o.Addr + "/" + strconv.Itoa(o.DB)
	}
	return o.Addr
}
