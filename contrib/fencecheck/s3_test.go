//go:build unix

package fencecheck

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/versity/versitygw/backend/meta"
	"github.com/versity/versitygw/backend/posix"
	"github.com/versity/versitygw/embedgw"

	"github.com/redquorum/redquorum/internal/assert"
	"github.com/redquorum/redquorum/internal/tests"
	"github.com/redquorum/redquorum/node"
)

const bucket = "redquorum-fencing"

func TestS3(t *testing.T) {
	tests.NeedSeconds(t)
	code := assert.Got(os.ReadFile("s3update_test.go"))(t)
	if _, body, _ := strings.Cut(string(code), "\n)\n\n"); !strings.Contains(page, "```go\n"+body+"```") {
		t.Error("docs/fencing.md does not have the code of s3update_test.go")
	}
	s := &store{RoundTripper: http.DefaultTransport}
	at := os.Getenv("FENCING_S3")
	if at == "" {
		at = "http://key:secret@versitygw"
		s.RoundTripper = versitygw(t)
	}
	server := assert.Got(url.Parse(at))(t)
	secret, _ := server.User.Password()
	s.Client = s3.New(s3.Options{
		BaseEndpoint: aws.String(server.Scheme + "://" + server.Host),
		Credentials:  credentials.NewStaticCredentialsProvider(server.User.Username(), secret, ""),
		HTTPClient:   &http.Client{Transport: s},
		Region:       "us-east-1",
		UsePathStyle: true,
	})
	assert.Succeed(t, assert.ErrorOf(s.CreateBucket(t.Context(), &s3.CreateBucketInput{Bucket: aws.String(bucket)})))
	t.Cleanup(func() {
		assert.NoError(t, assert.ErrorOf(s.DeleteBucket(context.Background(), &s3.DeleteBucketInput{Bucket: aws.String(bucket)})))
	})
	t.Run("tokens", s.testTokens)
	t.Run("late write", s.testLateWrite)
	t.Run("deleted", s.testDeleted)
	t.Run("no bucket", s.testNoBucket)
	t.Run("conflict", s.testConflict)
	t.Run("lost answer", s.testLostAnswer)
	t.Run("writers", s.testWriters)
	if os.Getenv("FENCING_S3") == "" {
		t.Run("token in metadata only", s.testMetadata)
	}
}

// versitygw runs the gateway on a Unix socket, and returns the way to it.
func versitygw(t *testing.T) http.RoundTripper {
	t.Helper()
	t.Chdir(".") // the gateway leaves this directory
	files, err := posix.New(t.TempDir(), meta.XattrMeta{}, posix.PosixOpts{NewDirPerm: 0o700, Concurrency: 100})
	assert.Succeed(t, err)
	socket := socket(t)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- embedgw.RunVersityGW(ctx, files, &embedgw.Config{
			Ports: []string{socket}, RootUserAccess: "key", RootUserSecret: "secret", Quiet: true,
			MaxConnections: 100, MaxRequests: 100, MultipartMaxParts: 100, KeepAlive: true,
		})
	}()
	t.Cleanup(func() {
		cancel()
		err := <-done
		assert.That(t, err == nil || errors.Is(err, context.Canceled), "%v", err)
	})
	for start := time.Now(); ; time.Sleep(5 * time.Millisecond) {
		if _, err := os.Stat(socket); err == nil {
			break
		}
		assert.Must(t, time.Since(start) <= time.Minute, "the gateway does not listen")
	}
	way := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}
	t.Cleanup(way.CloseIdleConnections)
	return way
}

type store struct {
	*s3.Client
	http.RoundTripper
	put func(*http.Request) (*http.Response, error)
}

func (s *store) RoundTrip(r *http.Request) (*http.Response, error) {
	if put := s.put; put != nil && r.Method == http.MethodPut {
		s.put = nil
		return put(r)
	}
	return s.RoundTripper.RoundTrip(r)
}

func (s *store) update(t *testing.T, token node.Token, change func(*order)) error {
	t.Helper()
	return update(t.Context(), s.Client, bucket, t.Name(), token, change)
}

func (s *store) remove(t *testing.T) {
	t.Helper()
	assert.Succeed(t, assert.ErrorOf(s.DeleteObject(context.Background(), &s3.DeleteObjectInput{Bucket: aws.String(bucket), Key: aws.String(t.Name())})))
}

func to(state string) func(*order) { return func(o *order) { o.State = state } }

func (s *store) want(t *testing.T, want order) {
	t.Helper()
	var got order
	err := s.update(t, node.MaxToken, func(o *order) { got = *o })
	assert.Succeed(t, err)
	assert.That(t, got == want, "the order is %+v, want %+v", got, want)
	s.remove(t)
}

// A lower token is refused, an equal and a higher one are not.
func (s *store) testTokens(t *testing.T) {
	for _, c := range []struct {
		token node.Token
		want  error
	}{{7, nil}, {6, errStale}, {7, nil}, {9, nil}, {8, errStale}} {
		assert.Is(t, s.update(t, c.token, to(fmt.Sprint("by ", c.token))), c.want, c.token)
	}
	s.want(t, order{9, "by 9"})
}

// The old holder pauses between its read and its write, while another one writes.
func (s *store) testLateWrite(t *testing.T) {
	for _, c := range []struct {
		name         string
		exists       bool
		other, token node.Token
		err          error
		want         order
	}{
		{"a newer holder", true, 2, 1, errStale, order{2, "new packed"}},
		{"a newer holder creates it", false, 2, 1, errStale, order{2, " packed"}},
		{"an older holder", true, 1, 2, nil, order{2, "new packed sent"}},
		{"the same holder creates it", false, 2, 2, nil, order{2, " packed sent"}},
	} {
		if c.exists {
			assert.Succeed(t, s.update(t, 1, to("new")))
		}
		calls := 0
		err := s.update(t, c.token, func(o *order) {
			if calls++; calls == 1 {
				err := s.update(t, c.other, func(o *order) { o.State += " packed" })
				assert.Succeed(t, err)
			}
			o.State += " sent"
		})
		assert.That(t, errors.Is(err, c.err), "%s: %v, want %v", c.name, err, c.err)
		s.want(t, c.want)
	}
}

func (s *store) testDeleted(t *testing.T) {
	assert.Succeed(t, s.update(t, 1, to("new")))
	calls := 0
	err := s.update(t, 1, func(o *order) {
		if calls++; calls == 1 {
			s.remove(t)
		}
		o.State += " sent"
	})
	assert.That(t, err == nil && calls == 2, "%d calls, %v", calls, err)
	s.want(t, order{1, " sent"})
}

func (s *store) testNoBucket(t *testing.T) {
	err := update(t.Context(), s.Client, "redquorum-none", "key", 1, to("new"))
	assert.That(t, code(err) == "NoSuchBucket", "%v", err)
}

// S3 answers so while another write is incomplete. versitygw does not.
func (s *store) testConflict(t *testing.T) {
	s.put = func(r *http.Request) (*http.Response, error) {
		const body = `<Error><Code>ConditionalRequestConflict</Code><Message>Conflict</Message></Error>`
		return &http.Response{StatusCode: http.StatusConflict, Body: io.NopCloser(strings.NewReader(body)), Request: r}, nil
	}
	calls := 0
	err := s.update(t, 1, func(o *order) { calls++; o.State = "new" })
	assert.That(t, err == nil && calls == 2, "%d calls, %v", calls, err)
	s.want(t, order{1, "new"})
}

// The answer to a write is lost. The client writes again, which is refused, and so the
// change is made twice, as the page says.
func (s *store) testLostAnswer(t *testing.T) {
	s.put = func(r *http.Request) (*http.Response, error) {
		response, err := s.RoundTripper.RoundTrip(r)
		assert.That(t, err == nil && response.StatusCode == http.StatusOK, "%v %v", response, err)
		_ = response.Body.Close()
		return nil, &net.OpError{Op: "read", Err: syscall.ECONNRESET}
	}
	if err := s.update(t, 1, func(o *order) { o.State += "+" }); err != nil {
		t.Error(err)
	}
	s.want(t, order{1, "++"})
}

// Many write at the same time, those that may in the order of their tokens.
func (s *store) testWriters(t *testing.T) {
	var clock atomic.Int64 // of their tokens, which are a bit ahead of it
	var written sync.Map
	var writers sync.WaitGroup
	for range 8 {
		writers.Go(func() {
			for range 20 {
				token := node.Token(clock.Add(1) + rand.Int64N(5))
				switch err := s.update(t, token, func(o *order) { o.State += fmt.Sprint(" ", token) }); {
				case err == nil:
					written.Store(token, true)
				case !errors.Is(err, errStale):
					t.Error(err)
				}
			}
		})
	}
	writers.Wait()
	var tokens []node.Token
	if err := s.update(t, node.MaxToken, func(o *order) {
		for _, field := range strings.Fields(o.State) {
			token, _ := strconv.ParseInt(field, 10, 64)
			tokens = append(tokens, node.Token(token))
			written.Delete(node.Token(token))
		}
	}); err != nil {
		t.Fatal(err)
	}
	s.remove(t)
	assert.That(t, slices.IsSorted(tokens), "tokens fell: %v", tokens)
	written.Range(func(token, _ any) bool {
		t.Errorf("the write with token %d is lost", token)
		return true
	})
	t.Logf("%d of 160 were in time", len(tokens))
}

// The token is in the content because a newer holder that writes the same content would
// leave the same ETag.
func (s *store) testMetadata(t *testing.T) {
	put := func(token, content string, ifMatch *string) *string {
		t.Helper()
		out, err := s.PutObject(t.Context(), &s3.PutObjectInput{
			Bucket: aws.String(bucket), Key: aws.String(t.Name()), Body: strings.NewReader(content),
			Metadata: map[string]string{"fence": token}, IfMatch: ifMatch,
		})
		assert.Succeed(t, err)
		return out.ETag
	}
	read := put("1", "sent", nil)
	put("2", "sent", read) // the newer holder
	put("1", "late", read) // is not refused
	s.remove(t)
}
