// Owners has three processes that own many keys, such as shards or sessions: one owner
// for each key. Requests go to the owner, whose address is the note of its lease. A
// process that ends hands its keys over, those of one that is killed are taken over when
// their leases end, and the store refuses what a late owner writes. docs/ownership.md
// explains it.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/node/embedded"
	"github.com/redquorum/redquorum/node/redisnode"
	"github.com/redquorum/redquorum/quorum"
)

var (
	nodes = flag.String("nodes", "", "`URLs` of the servers, separated by commas; without them they are embedded")
	many  = flag.Int("keys", 12, "how many keys there are")
	lease = flag.Duration("lease", 5*time.Second, "of each key")
	rank  = flag.Int("rank", -1, "of a worker: it asks first for each third key")
	saves = flag.String("store", "", "of a worker: the address of the store")
)

func main() {
	flag.Parse()
	run := demonstrate
	if *rank >= 0 {
		run = work
	}
	if err := run(); err != nil {
		log.Fatal(err)
	}
}

// open makes the Locker of a process.
func open() (*quorum.Locker, error) {
	all, err := redisnode.Dial(strings.Split(*nodes, ",")...)
	if err != nil {
		return nil, err
	}
	return quorum.New(all, quorum.Options{})
}

func keys() (all []string) {
	for i := range *many {
		all = append(all, fmt.Sprint("shard-", i))
	}
	return all
}

// A worker is one process: it owns some keys, and waits for the others.
type worker struct {
	mu    sync.Mutex
	owned map[string]*owned
}

// An owned key takes requests until its owner is to end, or has lost it.
type owned struct {
	*quorum.Lease
	requests sync.WaitGroup
}

func work() error {
	locker, err := open()
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	w := &worker{owned: make(map[string]*owned)}
	go http.Serve(l, w)
	fmt.Println(l.Addr()) // for demonstrate
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	go func() { _, _ = io.Copy(io.Discard, os.Stdin); stop() }() // demonstrate has ended
	var all sync.WaitGroup
	for i, key := range keys() {
		all.Go(func() {
			time.Sleep(time.Duration((i+*rank)%3) * 500 * time.Millisecond) // so that each has its share
			for ctx.Err() == nil {
				err := locker.Do(ctx, key, w.own, quorum.WithLease(*lease), quorum.WithNote(l.Addr().String()))
				if err != nil && ctx.Err() == nil { // lost, or the servers fail: wait for it again
					log.Print(err)
					time.Sleep(time.Second)
				}
			}
		})
	}
	all.Wait()
	return locker.Close()
}

// own owns a key until ctx ends. When it returns the key is handed over to the next.
func (w *worker) own(ctx context.Context, lease *quorum.Lease) error {
	o := &owned{Lease: lease}
	key := lease.Names()[0]
	w.mu.Lock()
	w.owned[key] = o
	w.mu.Unlock()
	<-ctx.Done()
	w.mu.Lock()
	delete(w.owned, key)
	w.mu.Unlock()
	o.requests.Wait()
	return nil
}

// ServeHTTP takes a request for a key. It goes on while the process drains, and ends with
// the lease.
func (w *worker) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	w.mu.Lock()
	o := w.owned[r.FormValue("key")]
	if o != nil {
		o.requests.Add(1)
	}
	w.mu.Unlock()
	if o == nil {
		http.Error(rw, "not mine: look the owner up again", http.StatusMisdirectedRequest)
		return
	}
	defer o.requests.Done()
	token := fmt.Sprint(o.Token())
	if _, err := post(o.Context(), *saves, r.FormValue("key"), token); err != nil {
		http.Error(rw, err.Error(), http.StatusConflict)
		return
	}
	fmt.Fprint(rw, token)
}

// A store remembers the highest token of each key. In production it is a database.
type store struct {
	mu     sync.Mutex
	fences map[string]node.Token
}

func (s *store) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	n, err := strconv.ParseInt(r.FormValue("token"), 10, 64)
	key, token := r.FormValue("key"), node.Token(n)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil || token < s.fences[key] {
		http.Error(rw, "a newer owner was here", http.StatusConflict)
		return
	}
	s.fences[key] = token
}

func post(ctx context.Context, to, key, token string) (answer string, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+to+"/?key="+key+"&token="+token, nil)
	if err != nil {
		return "", err
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = errors.New(string(bytes.TrimSpace(text)))
	}
	return string(text), err
}

// A router sends requests to owners.
type router struct {
	locker *quorum.Locker
	owners map[string]string // by key: the note of the owner
}

// find looks up who owns each key. It returns how many keys one of them has.
func (r *router) find(ctx context.Context, one string) (n int, err error) {
	reports, err := r.locker.Holders(ctx, keys()...)
	r.owners = make(map[string]string)
	for _, report := range reports {
		if note := report.Note(report.Owner); note != "" { // so a majority has the owner
			r.owners[report.Name] = note
			if note == one {
				n++
			}
		}
	}
	return n, err
}

// await waits until each key has an owner, and none is gone.
func (r *router) await(ctx context.Context, gone string) (took time.Duration, err error) {
	for began := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		n, err := r.find(ctx, gone)
		if err != nil || n == 0 && len(r.owners) == *many {
			return time.Since(began).Round(time.Millisecond), err
		}
	}
}

// send sends a request to the owner of each key. It returns their tokens.
func (r *router) send(ctx context.Context) (tokens map[string]string, err error) {
	tokens = make(map[string]string)
	for key, owner := range r.owners {
		if tokens[key], err = post(ctx, owner, key, ""); err != nil {
			return nil, err
		}
	}
	return tokens, nil
}

// demonstrate runs three workers, ends one and kills another.
func demonstrate() error {
	if *nodes == "" {
		servers, err := embedded.Start(3)
		if err != nil {
			return err
		}
		defer servers.Close()
		for i := range 3 {
			*nodes += ",redis://" + servers.Server(i).Addr()
		}
		*nodes = (*nodes)[1:]
	}
	locker, err := open()
	if err != nil {
		return err
	}
	defer locker.Close()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	go http.Serve(l, &store{fences: make(map[string]node.Token)})
	var workers [3]*exec.Cmd
	var notes [3]string
	for i := range workers {
		w := exec.Command(os.Args[0], "-nodes", *nodes, "-keys", fmt.Sprint(*many), "-lease", lease.String(),
			"-rank", fmt.Sprint(i), "-store", l.Addr().String())
		w.Stderr = os.Stderr
		in, failed := w.StdinPipe()
		out, err := w.StdoutPipe()
		if err := errors.Join(failed, err, w.Start()); err != nil {
			return err
		}
		defer in.Close()
		workers[i] = w
		if _, err := fmt.Fscan(out, &notes[i]); err != nil {
			return err
		}
	}

	ctx, r := context.Background(), &router{locker: locker}
	time.Sleep(2 * time.Second) // until each key has an owner, and the other workers wait for it
	if _, err := r.await(ctx, ""); err != nil {
		return err
	}
	tokens, err := r.send(ctx)
	fmt.Printf("requests have reached the owners of %d keys\n", len(tokens))
	for i, how := range []os.Signal{syscall.SIGTERM, os.Kill} {
		n, failed := r.find(ctx, notes[i])
		if err = errors.Join(err, failed, workers[i].Process.Signal(how)); err != nil {
			return err
		}
		took, err := r.await(ctx, notes[i])
		if err != nil {
			return err
		}
		fmt.Printf("%v: the %d keys of an owner have others after %v\n", how, n, took)
		before := tokens
		if tokens, err = r.send(ctx); err != nil {
			return err
		}
		for key, token := range tokens {
			if token != before[key] {
				_, late := post(ctx, l.Addr().String(), key, before[key])
				fmt.Println("a late write of the former owner:", late)
				break
			}
		}
	}
	return err
}
