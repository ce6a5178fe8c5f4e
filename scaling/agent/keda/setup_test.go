package keda

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	pb "github.com/kedacore/keda/v2/pkg/scalers/externalscaler"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var errPlatform = errors.New("the platform is gone")

// unread is a platform that cannot say how many replicas there are.
func unread(context.Context) (int, error) { return 0, errPlatform }

// has is a platform with n replicas.
func has(n int) func(context.Context) (int, error) {
	return func(context.Context) (int, error) { return n, nil }
}

// asked returns a pool of which n instances were asked for.
func asked(t *testing.T, name string, n int) *Pool {
	t.Helper()
	p := must(NewPool(name, unread))
	if err := p.Scale(t.Context(), n); err != nil {
		t.Fatal(err)
	}
	return p
}

// served is a server that runs, in memory.
type served struct {
	*Server
	listener *bufconn.Listener
	stop     context.CancelFunc
	ended    chan error
}

// serve runs a server until the end of the test.
func serve(t *testing.T, pools ...*Pool) *served {
	t.Helper()
	l := bufconn.Listen(1 << 16)
	s, err := NewServer(l, pools, nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	r := &served{Server: s, listener: l, stop: stop, ended: make(chan error, 1)}
	go func() { r.ended <- s.Run(ctx) }()
	t.Cleanup(func() { r.end(t) })
	return r
}

// end stops the server and checks that it ends well. It may be called twice.
func (s *served) end(t *testing.T) {
	t.Helper()
	s.stop()
	if err := <-s.ended; err != nil {
		t.Errorf("Run: got %v, want no error", err)
	}
	s.ended <- nil
}

// client connects to the server as KEDA does.
func (s *served) client(t *testing.T, options ...grpc.DialOption) pb.ExternalScalerClient {
	t.Helper()
	return pb.NewExternalScalerClient(s.connect(t, options...))
}

func (s *served) connect(t *testing.T, options ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	return dial(t, func(ctx context.Context) (net.Conn, error) { return s.listener.DialContext(ctx) }, options...)
}

func dial(t *testing.T, open func(context.Context) (net.Conn, error), options ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	options = append([]grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return open(ctx) }),
		grpc.WithDefaultServiceConfig(`{"loadBalancingConfig": [{"round_robin":{}}]}`), // as KEDA has it
	}, options...)
	conn, err := grpc.NewClient("passthrough:///scaler", options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// about is the reference to an object whose trigger is about a pool.
func about(pool string) *pb.ScaledObjectRef {
	return &pb.ScaledObjectRef{Name: "scaled", Namespace: "jobs", ScalerMetadata: map[string]string{
		"scalerAddress": "millrace-keda:9090", "pool": pool, // KEDA sends all metadata
	}}
}

func metrics(pool string) *pb.GetMetricsRequest {
	return &pb.GetMetricsRequest{ScaledObjectRef: about(pool), MetricName: Metric}
}

// wantCode checks the code of an error.
func wantCode(t *testing.T, what string, err error, want codes.Code) {
	t.Helper()
	if got := status.Code(err); got != want {
		t.Errorf("%s: got %v (%v), want %v", what, got, err, want)
	}
}

// within is a context that ends a test that hangs.
func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// must returns the value of a constructor that must not fail.
func must[T any](made T, err error) T {
	if err != nil {
		panic(err)
	}
	return made
}
