// Package fencegrpc carries fencing tokens over gRPC calls, and refuses late ones. The
// limits that package fencecall names for HTTP hold for it, too.
//
// The interceptors of the client send the tokens of the leases that a call's context
// belongs to. Those of the server answer FAILED_PRECONDITION to a late call, with both
// tokens, and to one without a token:
//
//	grpc.NewClient(address, grpc.WithUnaryInterceptor(fencegrpc.UnaryClient), grpc.WithStreamInterceptor(fencegrpc.StreamClient))
//	grpc.NewServer(grpc.UnaryInterceptor(fencegrpc.UnaryServer(store, nameOf)))
package fencegrpc

import (
	"context"
	"errors"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/redquorum/redquorum/contrib/fencecall"
)

// key is that of the metadata: keys of gRPC are lower case.
const key = "redquorum-token"

func sent(ctx context.Context) context.Context {
	for _, value := range fencecall.Values(ctx) {
		ctx = metadata.AppendToOutgoingContext(ctx, key, value)
	}
	return ctx
}

// UnaryClient sends the tokens of a call's context with it.
func UnaryClient(ctx context.Context, method string, request, reply any, conn *grpc.ClientConn,
	invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	return invoke(sent(ctx), method, request, reply, conn, opts...)
}

// StreamClient sends the tokens of a stream's context when it begins.
func StreamClient(ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string, begin grpc.Streamer,
	opts ...grpc.CallOption) (grpc.ClientStream, error) {
	return begin(sent(ctx), desc, conn, method, opts...)
}

// UnaryServer lets calls in that have the newest token of the lock that nameOf returns;
// with "" a call needs none. method is the full one, such as /shop.Stock/Ship.
func UnaryServer(store fencecall.Store, nameOf func(ctx context.Context, method string, request any) string) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, request any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
		ctx, err := admit(ctx, store, nameOf(ctx, info.FullMethod, request))
		if err != nil {
			return nil, err
		}
		return handle(ctx, request)
	}
}

// StreamServer is UnaryServer for streams. They are checked when they begin, before there
// is a message.
func StreamServer(store fencecall.Store, nameOf func(ctx context.Context, method string) string) grpc.StreamServerInterceptor {
	return func(service any, s grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
		ctx, err := admit(s.Context(), store, nameOf(s.Context(), info.FullMethod))
		if err != nil {
			return err
		}
		return handle(service, stream{s, ctx})
	}
}

type stream struct {
	grpc.ServerStream
	ctx context.Context
}

func (s stream) Context() context.Context { return s.ctx }

func admit(ctx context.Context, store fencecall.Store, name string) (context.Context, error) {
	if name == "" {
		return ctx, nil
	}
	in, err := fencecall.Admit(ctx, store, name, metadata.ValueFromIncomingContext(ctx, key))
	if err == nil {
		return in, nil
	}
	code := codes.Unavailable
	if _, late := errors.AsType[*fencecall.LateError](err); late || errors.Is(err, fencecall.ErrNoToken) {
		code = codes.FailedPrecondition
	}
	return nil, status.Error(code, err.Error())
}
