package otelquorum_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/redquorum/redquorum/contrib/internal/metricstest"
	"github.com/redquorum/redquorum/contrib/otelquorum"
	"github.com/redquorum/redquorum/internal/assert"
	"github.com/redquorum/redquorum/quorum"
)

var background = context.Background()

func measured(t testing.TB, name func(string) string) (metricstest.Metrics, metricstest.Value) {
	t.Helper()
	r := sdkmetric.NewManualReader()
	m := assert.Got(otelquorum.New(sdkmetric.NewMeterProvider(sdkmetric.WithReader(r)), name))(t)
	return m, func(name string, attributes ...string) float64 {
		t.Helper()
		var all metricdata.ResourceMetrics
		assert.Succeed(t, r.Collect(background, &all))
		of := func(set attribute.Set) bool {
			var got []string
			for _, kv := range set.ToSlice() {
				got = append(got, string(kv.Key)+"="+kv.Value.AsString())
			}
			return slices.Equal(got, attributes)
		}
		for _, scope := range all.ScopeMetrics {
			for _, m := range scope.Metrics {
				if m.Name == "redquorum."+name {
					if v, ok := value(m.Data, of); ok {
						return v
					}
				}
			}
		}
		return -1
	}
}

// value returns a series' value, or its number of observations.
func value(data metricdata.Aggregation, of func(attribute.Set) bool) (v float64, ok bool) {
	var points []metricdata.DataPoint[int64]
	switch data := data.(type) {
	case metricdata.Sum[int64]:
		points = data.DataPoints
	case metricdata.Gauge[int64]:
		points = data.DataPoints
	case metricdata.Histogram[float64]:
		for _, p := range data.DataPoints {
			points = append(points, metricdata.DataPoint[int64]{Attributes: p.Attributes, Value: int64(p.Count)})
		}
	}
	for _, p := range points {
		if of(p.Attributes) {
			return float64(p.Value), true
		}
	}
	return 0, false
}

func TestMetrics(t *testing.T)      { metricstest.Test(t, measured) }
func BenchmarkPair(b *testing.B)    { metricstest.BenchmarkPair(b, measured) }
func BenchmarkOwnCost(b *testing.B) { metricstest.BenchmarkOwnCost(b, measured) }

// A span lasts as long as its lease, has what was done under it, and says why there was
// none.
func TestSpans(t *testing.T) {
	set := metricstest.Servers(t, 3)
	seen := tracetest.NewSpanRecorder()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(seen))
	inner := metricstest.Program(t, set, nil)
	l := otelquorum.Trace(inner, provider, metricstest.Kind)
	tracer := provider.Tracer("test")
	take := func(l *otelquorum.Locker, ctx context.Context, opts ...quorum.Option) *quorum.Lease {
		t.Helper()
		lease := assert.Got(l.Lock(ctx, "job/1", opts...))(t)
		return lease
	}
	// ended returns the next spans that have ended, as "name child-of-parent status".
	reported := 0
	names := map[string]string{}
	ended := func(n int) (spans []string) {
		t.Helper()
		for deadline := time.Now().Add(time.Minute); len(seen.Ended()) < reported+n; time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("%d spans have ended, and not %d", len(seen.Ended()), reported+n)
			}
		}
		for _, s := range seen.Started() {
			names[s.SpanContext().SpanID().String()] = s.Name()
		}
		for _, s := range seen.Ended()[reported:] {
			text := s.Name()
			if p := names[s.Parent().SpanID().String()]; p != "" {
				text += " in " + p
			}
			if s.Status().Code == codes.Error {
				text += ": " + s.Status().Description
			}
			spans = append(spans, text)
		}
		reported = len(seen.Ended())
		return spans
	}
	check := func(want ...string) {
		t.Helper()
		got := ended(len(want))
		assert.That(t, slices.Equal(got, want), "%q, and not %q", got, want)
	}

	lease := take(l, background)
	check("redquorum.wait in redquorum.lock")
	_, work := tracer.Start(lease.Context(), "work")
	work.End()
	nested := take(l, lease.Context(), quorum.WithReentry())
	check("work in redquorum.lock", "redquorum.wait in redquorum.lock", "redquorum.lock in redquorum.lock")
	assert.Is(t, assert.ErrorOf(l.TryLock(background, "job/1")), quorum.ErrHeld)
	check("redquorum.wait in redquorum.lock: held", "redquorum.lock: held")
	_ = nested.Unlock(background)
	_ = lease.Unlock(background)
	check("redquorum.lock")
	for _, kv := range seen.Ended()[reported-1].Attributes() {
		if got, want := kv.Value.String(), map[string]string{"lock": "job", "token": attribute.Int64Value(int64(lease.Token())).String(),
			"owner": lease.Owner()}[string(kv.Key)]; got != want {
			t.Errorf("%s is %q, and not %q", kv.Key, got, want)
		}
	}

	if err := l.Do(background, "job/1", func(ctx context.Context, _ *quorum.Lease) error {
		_, work := tracer.Start(ctx, "work")
		work.End()
		return nil
	}); err != nil {
		t.Error(err)
	}
	check("redquorum.wait in redquorum.lock", "work in redquorum.lock", "redquorum.lock")
	if err := l.Do(background, "job/1", func(context.Context, *quorum.Lease) error { return errors.ErrUnsupported }); err == nil {
		t.Error("the function's error is gone")
	}
	check("redquorum.wait in redquorum.lock", "redquorum.lock: error")
	func() {
		defer func() { assert.That(t, recover() == "cause", "the panic is gone") }()
		_ = l.Do(background, "job/1", func(context.Context, *quorum.Lease) error { panic("cause") })
	}()
	check("redquorum.wait in redquorum.lock", "redquorum.lock: error")

	lease = take(l, background, quorum.WithMaxHold(50*time.Millisecond))
	check("redquorum.wait in redquorum.lock", "redquorum.lock: max_hold")
	_ = lease.Unlock(background)

	off := otelquorum.Trace(inner, noop.NewTracerProvider(), nil) // spans that are not recorded
	_ = take(off, background).Unlock(background)
	assert.Equal(t, len(seen.Started()), reported)
}
