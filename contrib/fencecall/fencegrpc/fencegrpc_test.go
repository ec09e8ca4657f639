package fencegrpc_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/redquorum/redquorum/contrib/fencecall"
	"github.com/redquorum/redquorum/contrib/fencecall/fencegrpc"
	"github.com/redquorum/redquorum/internal/assert"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/node/embedded"
	"github.com/redquorum/redquorum/quorum"
)

// The service is that of health checks: a call is about the service that it names.
func TestALateCallIsRefused(t *testing.T) {
	const name = "orders/42"
	store := &store{Store: fencecall.Memory()}
	var got node.Token // by the latest handler
	listener := assert.Got(net.Listen("tcp", "127.0.0.1:0"))(t)
	server := grpc.NewServer(
		grpc.ChainUnaryInterceptor(fencegrpc.UnaryServer(store, func(_ context.Context, _ string, request any) string {
			return request.(*grpc_health_v1.HealthCheckRequest).Service
		}), func(ctx context.Context, request any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
			got = fencecall.Token(ctx)
			return handle(ctx, request)
		}),
		grpc.ChainStreamInterceptor(fencegrpc.StreamServer(store, func(context.Context, string) string { return name }),
			func(service any, s grpc.ServerStream, _ *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
				got = fencecall.Token(s.Context())
				return handle(service, s)
			}))
	service := health.NewServer()
	service.SetServingStatus(name, grpc_health_v1.HealthCheckResponse_SERVING)
	grpc_health_v1.RegisterHealthServer(server, service)
	go func() { _ = server.Serve(listener) }()
	defer server.Stop()
	conn, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithUnaryInterceptor(fencegrpc.UnaryClient), grpc.WithStreamInterceptor(fencegrpc.StreamClient))
	assert.Succeed(t, err)
	defer conn.Close()
	client := grpc_health_v1.NewHealthClient(conn)
	unary := func(ctx context.Context, name string) error {
		_, err := client.Check(ctx, &grpc_health_v1.HealthCheckRequest{Service: name})
		return err
	}
	stream := func(ctx context.Context) error {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		s, err := client.Watch(ctx, &grpc_health_v1.HealthCheckRequest{Service: name})
		if err == nil {
			_, err = s.Recv()
		}
		return err
	}
	want := func(what string, err error, code codes.Code, text string) {
		t.Helper()
		assert.That(t, status.Code(err) == code && (err == nil || strings.Contains(err.Error(), text)), "%s: %v, want %v %s", what, err, code, text)
	}

	nodes := embedded.ForTest(t, 3)
	l := assert.Got(quorum.New(nodes.Nodes(), quorum.Options{NoRestartGuard: true}))(t)
	defer l.Close()
	want("no lock protects it", unary(t.Context(), ""), codes.OK, "")
	want("without a token", unary(t.Context(), name), codes.FailedPrecondition, "no fencing token")
	want("a stream without a token", stream(t.Context()), codes.FailedPrecondition, "no fencing token")
	first := assert.Got(l.Lock(t.Context(), name, quorum.WithFixedLease(200*time.Millisecond)))(t)
	ctx := context.WithoutCancel(first.Context())
	want("the holder", unary(ctx, name), codes.OK, "")
	assert.Equal(t, got, first.Token(), "a call's token")
	got = 0
	want("its stream", stream(ctx), codes.OK, "")
	assert.Equal(t, got, first.Token(), "a stream's token")
	second := assert.Got(l.Lock(t.Context(), name))(t)
	want("the next holder", unary(second.Context(), name), codes.OK, "")
	want("the first, late", unary(ctx, name), codes.FailedPrecondition, fmt.Sprint(second.Token()))
	want("its stream, late", stream(ctx), codes.FailedPrecondition, fmt.Sprint(first.Token()))
	assert.NoError(t, second.Unlock(t.Context()))

	got, store.err = 0, errors.New("the store is down")
	third := assert.Got(l.Lock(t.Context(), name))(t)
	want("while the store is down", unary(third.Context(), name), codes.Unavailable, "the store is down")
	want("a stream, while the store is down", stream(third.Context()), codes.Unavailable, "the store is down")
	assert.Equal(t, got, node.Token(0), "a handler was called")
	assert.NoError(t, third.Unlock(t.Context()))
}

// A store may fail.
type store struct {
	fencecall.Store
	err error
}

func (s *store) Raise(ctx context.Context, name string, token node.Token) (node.Token, error) {
	if s.err != nil {
		return 0, s.err
	}
	return s.Store.Raise(ctx, name, token)
}
