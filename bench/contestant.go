// Package bench measures locks by number of nodes: how long one takes, how many there are
// a second, how fast one goes from holder to holder, what bad nodes do to it, and what
// all that costs. [Command] is the command line; [Run] is the rest.
//
// # What is measured
//
// Contestants are measured through one small interface, [Client], on the same servers, in
// one run. Each case is measured in rounds; a round visits the cases in a new random
// order, and the contestants of a case, too, but right after one another, so that their
// ratios stand even where the machine changes its speed. Every measurement has a client,
// connections and names of its own, and warms up first. Figures are medians of the
// rounds; a quantile is given if there were samples enough for it in each: 100 for p99,
// 1000 for p99.9.
//
// Clients run in the process that measures: its CPU, allocations, memory and goroutines
// are theirs, and next to nothing else. Embedded servers, the proxies that delay links,
// and holders that are processes of their own are in child processes. The CPU of servers
// is what they say themselves.
//
// # The workloads
//
//   - latency: one caller, one free name.
//   - throughput: many callers, distinct names.
//   - handover: eight callers compete for one name; each holds it for 1 ms and thinks for
//     2 ms. A gap is from the call of Unlock to the return of the next owner's Lock; when
//     an owner follows itself there is none. The longest wait may be one that was not
//     over at the end. Instants are of the system's clock, which all processes share.
//     Overlaps are holders that held before the one before them had begun to unlock:
//     there must be none.
//   - fairness: processes of several callers each want one name always, and hold it for 5
//     ms; the last of them may be 1 ms farther from the servers. It is measured only if
//     it is named. The turns of a process count together, and readers are compared with
//     readers.
//   - bad: one or two nodes hang (their connections stay, and nothing answers, as of a
//     stopped process), answer 50 ms late, or break and refuse connections. Proxies
//     before these do it, on whatever servers; the others have none, nor has any in the
//     healthy case. It lasts for three Timeouts at least.
//   - keep: leases that are held for at least a third of their length, in which each is
//     renewed once by a lock that does it as ours does.
//   - overload: servers run for 3 ms of each 20 ms, and eight processes hold 25 leases of
//     3 s each. After a calm with 8 callers each has 128 or 1,000 for a while, then 8
//     again. Each locks one of 100,000 names with a context that ends after 5 s or 300
//     ms. It needs servers that it started, takes 16 s a case at least, and is measured
//     only if it is named.
//   - takeover: a process holds leases, and is killed while another one waits for each of
//     their names. CPU is measured twice before, each time for a lease at least: without
//     those that wait, and with them. A name that gets another holder before is lost. It
//     is measured only if it is named.
//
// Commands are counted at the proxies, as the client sends them: the servers' own
// statistics count those inside scripts as well. After each measurement, keys that are
// still there after 3 s, or a third of the lease, are orphans.
package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// A Contestant is one implementation of a lock on the given servers.
type Contestant struct {
	Name string // "redquorum"
	Note string // one line: version, settings
	// Open makes what one client process would have: connections, pools, a locker.
	Open func(ctx context.Context, t Target) (Client, error)
}

// A Target is what a client is opened for.
type Target struct {
	// Servers are the N servers: address, and password and TLS where they ask for these.
	Servers []*redis.Options
	// Callers is how many goroutines will call the client at the same time.
	Callers int
	// RTT is how long a round trip lasts because of slow links; 0: there are none.
	RTT time.Duration
	// Timeout bounds a round of commands, for a client with such a setting. 0 means its
	// default.
	Timeout time.Duration
}

// Addrs returns the servers' addresses, host:port, for a client that can do nothing with
// more. Where they ask for more it returns an error that matches errors.ErrUnsupported.
func (t Target) Addrs() (addrs []string, err error) {
	for _, o := range t.Servers {
		if o.Password != "" || o.TLSConfig != nil || o.DB != 0 {
			return nil, fmt.Errorf("a server with a password, TLS or a database of its own: %w", errors.ErrUnsupported)
		}
		addrs = append(addrs, o.Addr)
	}
	return addrs, nil
}

// A Client is one process's worth of a contestant. Many goroutines call its methods. An
// error that matches errors.ErrUnsupported, also of Open, says that a case is beyond the
// contestant: it is left out of the report.
type Client interface {
	// Lock waits until the name is held for lease, or ctx ends.
	Lock(ctx context.Context, name string, lease time.Duration) (Held, error)
	// Keep is Lock, and the lease is renewed until Unlock.
	Keep(ctx context.Context, name string, lease time.Duration) (Held, error)
	Close() error
}

// A Sharer is a Client that has locks of readers and writers, too.
type Sharer interface {
	Client
	// Share is Lock for a reader, who shares the name with other readers, or for a
	// writer.
	Share(ctx context.Context, name string, lease time.Duration, write bool) (Held, error)
}

type Held interface {
	Unlock(ctx context.Context) error
}

type Program struct {
	// Name is what the manual calls it: "redquorum bench".
	Name string
	// Args stand between the executable and the flags: {"bench"}. The program calls
	// itself with them for the other processes that it needs.
	Args []string
	// Contestants are measured together. The figures are about the first.
	Contestants []Contestant
	// Base is the name of the contestant that ratios are to; "" is none.
	Base string
}
