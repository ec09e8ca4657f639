// Package clientgo measures leader election by k8s.io/client-go. The API server is an imitation
// in memory, so the times are client-go's own. The package is a module of its own, because the API
// of Kubernetes takes minutes to compile.
package clientgo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/redquorum/redquorum/internal/process"
)

// An apiServer imitates what leader election needs of one: a Lease of any name, whose
// resourceVersion rises with each write. A write with an older one is a conflict.
type apiServer struct {
	mu      sync.Mutex
	lease   *coordinationv1.Lease
	version int
	gets    int // a leader that renews has none
}

var leases = coordinationv1.Resource("leases")

// serve starts a server. It ends with the test.
func serve(t testing.TB) (s *apiServer, url string) {
	s = new(apiServer)
	mux := http.NewServeMux()
	const path = "/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
	for pattern, do := range map[string]func(*http.Request) (*coordinationv1.Lease, error){
		"GET " + path + "/{name}": s.get, "POST " + path: s.create, "PUT " + path + "/{name}": s.update,
	} {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			s.mu.Lock()
			defer s.mu.Unlock()
			lease, err := do(r)
			w.Header().Set("Content-Type", "application/json")
			if status := apierrors.APIStatus(nil); errors.As(err, &status) {
				answer := status.Status()
				answer.APIVersion, answer.Kind = "v1", "Status"
				w.WriteHeader(int(answer.Code))
				_ = json.NewEncoder(w).Encode(answer)
				return
			}
			_ = json.NewEncoder(w).Encode(lease)
		})
	}
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return s, server.URL
}

func (s *apiServer) get(r *http.Request) (*coordinationv1.Lease, error) {
	s.gets++
	if s.lease == nil {
		return nil, apierrors.NewNotFound(leases, r.PathValue("name"))
	}
	return s.lease, nil
}

func (s *apiServer) create(r *http.Request) (*coordinationv1.Lease, error) {
	if s.lease != nil {
		return nil, apierrors.NewAlreadyExists(leases, s.lease.Name)
	}
	return s.store(r)
}

func (s *apiServer) update(r *http.Request) (*coordinationv1.Lease, error) {
	if s.lease == nil {
		return nil, apierrors.NewNotFound(leases, r.PathValue("name"))
	}
	return s.store(r)
}

// store stores the Lease of a request, unless that was read before the last write.
func (s *apiServer) store(r *http.Request) (*coordinationv1.Lease, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	lease := new(coordinationv1.Lease)
	if _, _, err = scheme.Codecs.UniversalDeserializer().Decode(body, nil, lease); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	if s.lease != nil && lease.ResourceVersion != s.lease.ResourceVersion {
		return nil, apierrors.NewConflict(leases, lease.Name, errors.New("the object has been modified"))
	}
	s.version++
	lease.ResourceVersion = strconv.Itoa(s.version)
	lease.APIVersion, lease.Kind = "coordination.k8s.io/v1", "Lease"
	s.lease = lease
	return lease, nil
}

func (s *apiServer) looks() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.gets
}

// waits returns when a follower has seen who leads.
func (s *apiServer) waits(t testing.TB) {
	t.Helper()
	before := s.looks()
	for range 3000 {
		if s.looks() > before {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatal("nobody looks who leads")
}

// holder returns who leads, by the Lease.
func (s *apiServer) holder() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lease == nil || s.lease.Spec.HolderIdentity == nil {
		return ""
	}
	return *s.lease.Spec.HolderIdentity
}

// The environment of a candidate's process: its API server, and its LeaseDuration.
const (
	candidateServer = "REDQUORUM_CLIENTGO_SERVER"
	candidateLease  = "REDQUORUM_CLIENTGO_LEASE"
)

func TestMain(m *testing.M) {
	if url := os.Getenv(candidateServer); url != "" {
		if err := campaign(url); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// defaultLease is the LeaseDuration of client-go's documentation, which has a RenewDeadline of 10 s
// and a RetryPeriod of 2 s. Other leases have them in proportion.
const defaultLease = 15 * time.Second

// campaign is a candidate's process: it says when it leads, and resigns at SIGTERM.
func campaign(url string) error {
	lease, err := time.ParseDuration(os.Getenv(candidateLease))
	if err != nil {
		return err
	}
	client, err := coordinationclient.NewForConfig(&rest.Config{Host: url})
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	leaderelection.RunOrDie(ctx, leaderelection.LeaderElectionConfig{
		Lock: &resourcelock.LeaseLock{
			LeaseMeta:  metav1.ObjectMeta{Namespace: "default", Name: "boss"},
			Client:     client,
			LockConfig: resourcelock.ResourceLockConfig{Identity: strconv.Itoa(os.Getpid())},
		},
		LeaseDuration:   lease,
		RenewDeadline:   lease * 2 / 3,
		RetryPeriod:     lease * 2 / 15,
		ReleaseOnCancel: true,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(context.Context) { fmt.Println("leads") },
			OnStoppedLeading: func() {},
		},
	})
	return nil
}

// A candidate is another process. It is a Writer of what that says.
type candidate struct {
	*process.Process
	leads chan time.Time
}

func (c *candidate) Write(b []byte) (int, error) {
	c.leads <- time.Now()
	return len(b), nil
}

// joins starts a process that takes part.
func joins(t testing.TB, url string, lease time.Duration) *candidate {
	t.Helper()
	c := &candidate{leads: make(chan time.Time, 10)}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), candidateServer+"="+url, candidateLease+"="+lease.String())
	cmd.Stdout = c // client-go's log goes nowhere
	var err error
	if c.Process, err = process.Start(cmd); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Kill)
	return c
}

// awaits returns when c leads.
func (c *candidate) awaits(t testing.TB) time.Time {
	t.Helper()
	select {
	case at := <-c.leads:
		return at
	case <-c.Exited():
		t.Fatal("the process has ended")
	case <-time.After(time.Minute): // no sound run needs that
		t.Fatal("the process does not lead")
	}
	panic("not reached")
}

// The imitation refuses what a real server refuses.
func TestAPIServer(t *testing.T) {
	_, url := serve(t)
	client, err := coordinationclient.NewForConfig(&rest.Config{Host: url})
	if err != nil {
		t.Fatal(err)
	}
	api, ctx := client.Leases("default"), t.Context()
	if _, err := api.Get(ctx, "boss", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("Get of nothing: %v", err)
	}
	fresh := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "boss"}}
	if _, err := api.Update(ctx, fresh, metav1.UpdateOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("Update of nothing: %v", err)
	}
	first, err := api.Create(ctx, fresh, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := api.Create(ctx, fresh, metav1.CreateOptions{}); !apierrors.IsAlreadyExists(err) {
		t.Errorf("second Create: %v", err)
	}
	changed := first.DeepCopy()
	changed.Spec.HolderIdentity = new("me")
	if _, err := api.Update(ctx, changed, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := api.Update(ctx, first, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
		t.Errorf("Update of what was read before the last one: %v", err)
	}
	if now, err := api.Get(ctx, "boss", metav1.GetOptions{}); err != nil || now.Spec.HolderIdentity == nil || *now.Spec.HolderIdentity != "me" {
		t.Errorf("Get: %v, %v", now, err)
	}
}

// A leader that is killed is followed after its lease. One that resigns leaves none.
func TestLeaders(t *testing.T) {
	const lease = 3 * time.Second
	s, url := serve(t)
	leader := joins(t, url, lease)
	leader.awaits(t)
	next := joins(t, url, lease)
	s.waits(t)
	if len(next.leads) > 0 {
		t.Fatal("two lead")
	}
	ended := time.Now()
	leader.Kill()
	// A candidate counts the lease from when it last looked, and compares whole seconds.
	if took := next.awaits(t).Sub(ended); took < time.Second {
		t.Errorf("the next one leads %v after the leader was killed", took)
	}
	if want := strconv.Itoa(next.PID()); s.holder() != want {
		t.Errorf("%q holds the lease, not %q", s.holder(), want)
	}
	_ = next.Signal(syscall.SIGTERM)
	<-next.Exited()
	if s.holder() != "" {
		t.Errorf("%q has resigned, and holds the lease", s.holder())
	}
}

// BenchmarkFailover is what BenchmarkFailover of package election measures, for client-go with the
// durations of its documentation.
//
//	go test -run '^$' -bench Failover -benchtime 10x .
func BenchmarkFailover(b *testing.B) {
	for _, way := range []struct {
		name string
		end  func(*candidate)
	}{
		{"kill", func(c *candidate) { c.Kill() }},
		{"resign", func(c *candidate) { _ = c.Signal(syscall.SIGTERM) }},
	} {
		b.Run(way.name, func(b *testing.B) {
			s, url := serve(b)
			leader := joins(b, url, defaultLease)
			leader.awaits(b)
			var took []time.Duration
			for b.Loop() {
				next := joins(b, url, defaultLease)
				s.waits(b)
				time.Sleep(rand.N(defaultLease / 3)) // longer than between two looks
				ended := time.Now()
				way.end(leader)
				took = append(took, next.awaits(b).Sub(ended))
				leader = next
			}
			slices.Sort(took)
			b.Log(took)
			b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "ms-median")
			b.ReportMetric(float64(took[len(took)-1].Microseconds())/1000, "ms-worst")
			b.ReportMetric(0, "ns/op")
		})
	}
}
