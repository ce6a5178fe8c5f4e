package keda

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	pb "github.com/kedacore/keda/v2/pkg/scalers/externalscaler"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/protobuf/proto"
)

// the number of instances is changed by the platform, which is told the decision as a metric with an average of one.
func TestTheMetricIsTheDecision(t *testing.T) {
	pool := asked(t, "worker", 7)
	c := serve(t, pool).client(t)
	spec, err := c.GetMetricSpec(within(t), about("worker"))
	want := &pb.GetMetricSpecResponse{MetricSpecs: []*pb.MetricSpec{{MetricName: "instances", TargetSize: 1, TargetSizeFloat: 1}}}
	if err != nil || !proto.Equal(spec, want) {
		t.Fatalf("GetMetricSpec: got %v, %v, want %v", spec, err, want)
	}
	for _, n := range []int{7, 8, 0, 1, 20, 1_000_000} {
		if err := pool.Scale(t.Context(), n); err != nil {
			t.Fatal(err)
		}
		got, err := c.GetMetrics(within(t), metrics("worker"))
		want := &pb.GetMetricsResponse{MetricValues: []*pb.MetricValue{{MetricName: "instances", MetricValue: int64(n), MetricValueFloat: float64(n)}}}
		if err != nil || !proto.Equal(got, want) {
			t.Errorf("GetMetrics of %d: got %v, %v, want %v", n, got, err, want)
		}
		active, err := c.IsActive(within(t), about("worker"))
		if err != nil || active.GetResult() != (n > 0) {
			t.Errorf("IsActive of %d: got %v, %v, want %v", n, active, err, n > 0)
		}
	}
}

// each pool is scaled by itself.
func TestEachPoolHasItsOwnNumber(t *testing.T) {
	c := serve(t, asked(t, "orders", 3), asked(t, "emails", 0)).client(t)
	for pool, want := range map[string]int64{"orders": 3, "emails": 0} {
		got, err := c.GetMetrics(within(t), metrics(pool))
		if err != nil || got.GetMetricValues()[0].GetMetricValue() != want {
			t.Errorf("%s: got %v, %v, want %d", pool, got, err, want)
		}
		active, err := c.IsActive(within(t), about(pool))
		if err != nil || active.GetResult() != (want > 0) {
			t.Errorf("%s: active: got %v, %v, want %v", pool, active, err, want > 0)
		}
	}
}

// everyCall makes each call about an object, and returns its error.
func everyCall(ctx context.Context, c pb.ExternalScalerClient, r *pb.ScaledObjectRef) map[string]error {
	_, active := c.IsActive(ctx, r)
	_, spec := c.GetMetricSpec(ctx, r)
	_, metrics := c.GetMetrics(ctx, &pb.GetMetricsRequest{ScaledObjectRef: r, MetricName: Metric})
	streams, err := c.StreamIsActive(ctx, r)
	if err == nil {
		_, err = streams.Recv()
	}
	specs, specErr := c.StreamMetricSpec(ctx, r)
	if specErr == nil {
		_, specErr = specs.Recv()
	}
	return map[string]error{"IsActive": active, "GetMetricSpec": spec, "GetMetrics": metrics, "StreamIsActive": err, "StreamMetricSpec": specErr}
}

func TestAWrongPoolIsNamed(t *testing.T) {
	c := serve(t, asked(t, "orders", 3), asked(t, "emails", 1)).client(t)
	for name, test := range map[string]struct {
		ref   *pb.ScaledObjectRef
		code  codes.Code
		wants []string
	}{
		"unknown": {about("order"), codes.NotFound, []string{`"jobs/scaled"`, `"order"`, "emails, orders"}},
		"empty":   {about(""), codes.NotFound, []string{`""`, "emails, orders"}},
		"none":    {&pb.ScaledObjectRef{Name: "scaled", Namespace: "jobs"}, codes.InvalidArgument, []string{`"jobs/scaled"`, "add pool", "emails, orders"}},
		"nil":     {nil, codes.InvalidArgument, []string{"add pool"}},
		"hostile": {&pb.ScaledObjectRef{Name: "a\n\x1b[31m" + strings.Repeat("x", 1000)}, codes.InvalidArgument, []string{`a\n\x1b[31m`}},
	} {
		for call, err := range everyCall(within(t), c, test.ref) {
			wantCode(t, name+": "+call, err, test.code)
			for _, want := range test.wants {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("%s: %s: got %v, want it to say %s", name, call, err, want)
				}
			}
			if err != nil && len(err.Error()) > 400 {
				t.Errorf("%s: %s: got an error of %d bytes, want a short one", name, call, len(err.Error()))
			}
		}
	}
}

func TestAnUnknownMetricIsNotFound(t *testing.T) {
	c := serve(t, asked(t, "worker", 3)).client(t)
	for _, name := range []string{"", "s0-instances", "queueLength"} {
		_, err := c.GetMetrics(within(t), &pb.GetMetricsRequest{ScaledObjectRef: about("worker"), MetricName: name})
		wantCode(t, name, err, codes.NotFound)
	}
}

// A scaler that has just started must not ask for fewer instances than there are, or for none.
func TestBeforeTheFirstNumberNothingIsSaid(t *testing.T) {
	pool := must(NewPool("worker", unread))
	c := serve(t, pool).client(t)
	stream, err := c.StreamIsActive(within(t), about("worker"))
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.IsActive(within(t), about("worker"))
	wantCode(t, "IsActive", err, codes.Unavailable)
	_, err = c.GetMetrics(within(t), metrics("worker"))
	wantCode(t, "GetMetrics", err, codes.Unavailable)
	if _, err := c.GetMetricSpec(within(t), about("worker")); err != nil {
		t.Errorf("GetMetricSpec: got %v, want a target: without it there is no HorizontalPodAutoscaler", err)
	}
	if _, err := pool.Instances(t.Context()); err == nil {
		t.Error("Instances: got no error, want that of the platform")
	}
	_, err = c.IsActive(within(t), about("worker"))
	wantCode(t, "IsActive after the platform failed", err, codes.Unavailable)
	if err := pool.Scale(t.Context(), 2); err != nil {
		t.Fatal(err)
	}
	if got, err := stream.Recv(); err != nil || !got.GetResult() {
		t.Errorf("the first of the stream: got %v, %v, want true", got, err)
	}
}

func TestStreamMetricSpecSendsTheTargetOnceAndStaysOpen(t *testing.T) {
	s := serve(t, must(NewPool("worker", unread)))
	c := s.client(t)
	stream, err := c.StreamMetricSpec(within(t), about("worker"))
	if err != nil {
		t.Fatal(err)
	}
	polled, err := c.GetMetricSpec(within(t), about("worker"))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := stream.Recv(); err != nil || !proto.Equal(got, polled) {
		t.Fatalf("got %v, %v, want the same as GetMetricSpec: %v", got, err, polled)
	}
	next := make(chan error, 1)
	go func() {
		_, err := stream.Recv()
		next <- err
	}()
	s.stop() // so the next thing on the stream is its end, if nothing was sent before
	if err := <-next; !errors.Is(err, io.EOF) {
		t.Errorf("after the target: got %v, want the end of the stream", err)
	}
}

// KEDA's waits get shorter again only after an orderly end.
func TestTheStopEndsStreamsInOrder(t *testing.T) {
	s := serve(t, asked(t, "worker", 1))
	stream, err := openStream(within(t), s.client(t))
	if err != nil {
		t.Fatal(err)
	}
	s.stop()
	if _, err := stream.Recv(); !errors.Is(err, io.EOF) {
		t.Errorf("got %v, want the end of the stream", err)
	}
}

func TestHealth(t *testing.T) {
	s := serve(t, asked(t, "worker", 1))
	conn := s.connect(t)
	h := grpc_health_v1.NewHealthClient(conn)
	for _, service := range []string{"", "externalscaler.ExternalScaler"} {
		got, err := h.Check(within(t), &grpc_health_v1.HealthCheckRequest{Service: service})
		if err != nil || got.GetStatus() != grpc_health_v1.HealthCheckResponse_SERVING {
			t.Errorf("%q: got %v, %v, want SERVING", service, got, err)
		}
	}
	watch, err := h.Watch(within(t), &grpc_health_v1.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := watch.Recv(); err != nil || got.GetStatus() != grpc_health_v1.HealthCheckResponse_SERVING {
		t.Fatalf("got %v, %v, want SERVING", got, err)
	}
	s.stop()
	if got, err := watch.Recv(); err != nil || got.GetStatus() != grpc_health_v1.HealthCheckResponse_NOT_SERVING {
		t.Errorf("at the stop: got %v, %v, want NOT_SERVING", got, err)
	}
	s.Halt() // this watch would hold the stop up
}

func TestWrongPoolsAreRefused(t *testing.T) {
	for name, test := range map[string]struct {
		pools []*Pool
		want  string
	}{
		"none":  {nil, "no pools"},
		"nil":   {[]*Pool{nil}, "pool 1 is nil"},
		"empty": {[]*Pool{{}}, "pool 1 has no name"},
		"twice": {[]*Pool{must(NewPool("a", unread)), must(NewPool("a", unread))}, `pool "a" is there twice`},
	} {
		if _, err := NewServer(nil, test.pools, nil); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: got %v, want %s", name, err, test.want)
		}
	}
}
