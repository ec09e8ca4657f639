package otelquorum

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/redquorum/redquorum/quorum"
)

// A Locker makes spans of the locks that are taken through it. A span redquorum.lock
// lasts from the call to the end of the lease, and is the parent of spans made with the
// lease's context. Its child redquorum.wait ends with the grant. A span has an error if
// there was no lease, or the lease ended before it was unlocked, with the word of
// [quorum.Event.Cause]. If only Unlock finds out that the lease was lost, the span has no
// error. The span of a nested lease ends with the grant, or with Do. Resume makes no
// span.
//
// The spans of a lease that a program holds for hours are exported when it ends.
type Locker struct {
	*quorum.Locker
	tracer trace.Tracer
	name   func(string) string
}

// Trace returns a Locker that makes spans. name is as in [New].
func Trace(l *quorum.Locker, provider trace.TracerProvider, name func(string) string) *Locker {
	return &Locker{l, provider.Tracer(scope), orNone(name)}
}

// Lock is [quorum.Locker.Lock] with spans.
func (l *Locker) Lock(ctx context.Context, name string, opts ...quorum.Option) (*quorum.Lease, error) {
	return l.acquire(ctx, l.Locker.Lock, name, opts)
}

// TryLock is [quorum.Locker.TryLock] with spans.
func (l *Locker) TryLock(ctx context.Context, name string, opts ...quorum.Option) (*quorum.Lease, error) {
	return l.acquire(ctx, l.Locker.TryLock, name, opts)
}

// Do is [quorum.Locker.Do] with spans. The first has an error also if fn returned one, or
// panicked.
func (l *Locker) Do(ctx context.Context, name string, fn func(context.Context, *quorum.Lease) error, opts ...quorum.Option) error {
	ctx, whole, wait := l.start(ctx, name)
	defer whole.End()
	defer wait.End()
	err := errors.New("panic") // unless Do returns
	defer func() { failed(err, whole, wait) }()
	err = l.Locker.Do(ctx, name, func(ctx context.Context, lease *quorum.Lease) error {
		granted(lease, whole, wait)
		return fn(ctx, lease)
	}, opts...)
	return err
}

func (l *Locker) acquire(ctx context.Context,
	lock func(context.Context, string, ...quorum.Option) (*quorum.Lease, error),
	name string, opts []quorum.Option) (*quorum.Lease, error) {
	ctx, whole, wait := l.start(ctx, name)
	lease, err := lock(ctx, name, opts...)
	if err != nil {
		failed(err, whole, wait)
		wait.End()
		whole.End()
		return nil, err
	}
	granted(lease, whole, wait)
	held := lease.Context()
	if trace.SpanContextFromContext(held).SpanID() != whole.SpanContext().SpanID() { // nested
		whole.End()
		return lease, nil
	}
	context.AfterFunc(held, func() {
		if why := context.Cause(held); errors.Is(why, quorum.ErrLost) {
			failed(why, whole)
		}
		whole.End()
	})
	return lease, nil
}

func (l *Locker) start(ctx context.Context, name string) (_ context.Context, whole, wait trace.Span) {
	var of []attribute.KeyValue
	if lock := l.name(name); lock != "" {
		of = append(of, attribute.String("lock", lock))
	}
	ctx, whole = l.tracer.Start(ctx, "redquorum.lock", trace.WithAttributes(of...))
	_, wait = l.tracer.Start(ctx, "redquorum.wait", trace.WithAttributes(of...))
	return ctx, whole, wait
}

// granted ends the wait. Token and owner lead from the span to logs and nodes.
func granted(lease *quorum.Lease, whole, wait trace.Span) {
	whole.SetAttributes(attribute.Int64("token", int64(lease.Token())), attribute.String("owner", lease.Owner()))
	wait.End()
}

// failed leaves out the error itself, which has the lock's name.
func failed(err error, spans ...trace.Span) {
	for _, s := range spans {
		if err != nil {
			s.SetStatus(codes.Error, quorum.Event{Err: err}.Cause())
		}
	}
}
