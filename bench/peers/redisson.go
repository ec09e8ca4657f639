package main

import (
	"bufio"
	"bytes"
	"context"
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redquorum/redquorum/bench"
)

// redissonEnv tells the other processes of the benchmark where the Java program was
// built.
const redissonEnv = "REDQUORUM_PEERS_REDISSON"

//go:embed testdata/redisson
var redissonSource embed.FS

// redisson is in a JVM. It takes long to start.
func redisson() bench.Contestant {
	return bench.Contestant{
		Name:  "redisson",
		Note:  "Redisson 4.7.0's RedissonRedLock with its defaults, in a JVM that measures by itself",
		Asked: true,
		Start: buildRedisson,
		Open: func(ctx context.Context, t bench.Target) (bench.Client, error) {
			addrs, err := t.Addrs()
			if err != nil {
				return nil, err
			}
			return openRedisson(ctx, os.Getenv(redissonEnv), addrs)
		},
	}
}

// buildRedisson builds the Java program. It is removed with end.
func buildRedisson(ctx context.Context) (end func(), err error) {
	for _, tool := range []string{"java", "mvn"} {
		if _, err := exec.LookPath(tool); err != nil {
			return nil, err
		}
	}
	dir, err := os.MkdirTemp("", "peers-redisson-")
	if err != nil {
		return nil, err
	}
	end = func() { os.RemoveAll(dir) }
	if err := buildIn(ctx, dir); err != nil {
		end()
		return nil, err
	}
	os.Setenv(redissonEnv, dir)
	return end, nil
}

func buildIn(ctx context.Context, dir string) error {
	source, err := fs.Sub(redissonSource, "testdata/redisson")
	if err != nil {
		return err
	}
	if err := os.CopyFS(dir, source); err != nil {
		return err
	}
	mvn := exec.CommandContext(ctx, "mvn", "-q", "-B", "compile")
	mvn.Dir = dir
	if out, err := mvn.CombinedOutput(); err != nil {
		first, _, _ := bytes.Cut(out, []byte("\n"))
		return fmt.Errorf("mvn: %w: %s", err, first)
	}
	return nil
}

// A redissonClient is a JVM.
type redissonClient struct {
	cmd   *exec.Cmd
	stdin io.WriteCloser
	ended chan struct{}

	mu   sync.Mutex
	next int
	wait map[string]chan answer
	warm bool // it has looped
}

// warmUp is for how long a JVM loops at least, at first: it compiles while it
// does.
const warmUp = 5 * time.Second

// An answer is what the JVM says to one request.
type answer struct {
	text string
	err  error
}

var errEnded = errors.New("redisson: the JVM has ended")

func openRedisson(ctx context.Context, dir string, addrs []string) (bench.Client, error) {
	path := strings.Join([]string{filepath.Join(dir, "target", "classes"), filepath.Join(dir, "target", "lib", "*")},
		string(os.PathListSeparator))
	c := &redissonClient{ended: make(chan struct{}), wait: make(map[string]chan answer)}
	c.cmd = exec.Command("java", append([]string{"-Xss512k", "-cp", path, "Main"}, addrs...)...)
	dieWithParent(c.cmd)
	var err error
	if c.stdin, err = c.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	stdout, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	ready := c.expect("ready")
	if err := c.cmd.Start(); err != nil {
		return nil, err
	}
	go c.read(stdout)
	select {
	case a := <-ready:
		err = a.err
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err != nil {
		_ = c.cmd.Process.Kill()
		_ = c.Close()
		return nil, err
	}
	return c, nil
}

// expect returns where the answer to id will come.
func (c *redissonClient) expect(id string) chan answer {
	to := make(chan answer, 1)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wait[id] = to
	return to
}

func (c *redissonClient) read(stdout io.Reader) {
	defer close(c.ended)
	r := bufio.NewReaderSize(stdout, 1<<16)
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			break
		}
		kind, rest, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		id, text, _ := strings.Cut(rest, " ")
		a := answer{text: text}
		if kind == "error" {
			a.err = errors.New("redisson: " + text)
		}
		c.mu.Lock()
		to := c.wait[id]
		delete(c.wait, id)
		c.mu.Unlock()
		if to != nil {
			to <- a
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, to := range c.wait {
		to <- answer{err: errEnded}
	}
	clear(c.wait)
}

// say writes one request, and returns where its answer will come.
func (c *redissonClient) say(id, request string) (chan answer, error) {
	to := c.expect(id)
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, err := io.WriteString(c.stdin, request+"\n"); err != nil {
		return nil, errEnded
	}
	return to, nil
}

func (c *redissonClient) newID() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.next++
	return strconv.Itoa(c.next)
}

func (c *redissonClient) Lock(ctx context.Context, name string, lease time.Duration) (bench.Held, error) {
	return c.take(ctx, "lock", name, lease)
}

func (c *redissonClient) Keep(ctx context.Context, name string, lease time.Duration) (bench.Held, error) {
	return c.take(ctx, "keep", name, lease)
}

func (c *redissonClient) take(ctx context.Context, verb, name string, lease time.Duration) (bench.Held, error) {
	id := c.newID()
	to, err := c.say(id, fmt.Sprintf("%s %s %d %s", verb, id, lease.Milliseconds(), name))
	if err != nil {
		return nil, err
	}
	held := &redissonHeld{c, id}
	select {
	case a := <-to:
		if a.err != nil {
			return nil, a.err
		}
		return held, nil
	case <-ctx.Done():
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	_, err = io.WriteString(c.stdin, "cancel "+id+"\n")
	return nil, errors.Join(ctx.Err(), err)
}

// Loop implements bench.Looper. The first time, which is the benchmark's own
// warm-up, it lasts for warmUp at least.
func (c *redissonClient) Loop(ctx context.Context, names []string, lease, window time.Duration) (lock, unlock []time.Duration, err error) {
	id := c.newID()
	c.mu.Lock()
	if !c.warm {
		window = max(window, warmUp)
	}
	c.warm = true
	c.mu.Unlock()
	to, err := c.say(id, fmt.Sprintf("loop %s %d %d %s", id, lease.Milliseconds(), window.Milliseconds(), strings.Join(names, " ")))
	if err != nil {
		return nil, nil, err
	}
	var a answer
	select {
	case a = <-to:
	case <-ctx.Done():
		a.err = ctx.Err()
	}
	if a.err != nil {
		return nil, nil, a.err
	}
	for i, word := range strings.Fields(a.text) {
		n, err := strconv.ParseInt(word, 10, 64)
		if err != nil {
			return nil, nil, fmt.Errorf("redisson: not a time: %q", word)
		}
		if i%2 == 0 {
			lock = append(lock, time.Duration(n))
		} else {
			unlock = append(unlock, time.Duration(n))
		}
	}
	return lock, unlock, nil
}

func (c *redissonClient) Close() error {
	c.stdin.Close()
	late := time.AfterFunc(10*time.Second, func() { _ = c.cmd.Process.Kill() })
	defer late.Stop()
	<-c.ended
	return c.cmd.Wait()
}

type redissonHeld struct {
	c  *redissonClient
	id string
}

func (h *redissonHeld) Unlock(ctx context.Context) error {
	to, err := h.c.say(h.id, "unlock "+h.id)
	if err != nil {
		return err
	}
	select {
	case a := <-to:
		return a.err
	case <-ctx.Done():
		return ctx.Err()
	}
}
