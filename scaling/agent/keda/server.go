package keda

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	pb "github.com/kedacore/keda/v2/pkg/scalers/externalscaler"
	"github.com/millrace/millrace/scaling/agent"
	"golang.org/x/net/netutil"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"
)

// Bounds on what clients can take.
const (
	maxConnections = 256
	maxCalls       = 100      // at once on one connection
	maxRequest     = 64 << 10 // bytes
	maxHeaders     = 16 << 10 // bytes
	handshake      = 10 * time.Second
)

// drain is how long calls may take after the stop. KEDA's take no time, so only a client that does not read makes use of it.
const drain = 5 * time.Second

// Server is KEDA's external scaler for some pools. It is a runner for millrace.Run, and safe for concurrent use. Create one with [NewServer]; it runs once.
type Server struct {
	_ [0]sync.Mutex // go vet reports copies

	listener net.Listener
	service  *service
	health   *health.Server
	grpc     *grpc.Server

	halted context.Context // ended by Halt
	halt   context.CancelFunc
}

// NewServer returns a server that accepts connections from l, which it closes at its end. With config it speaks TLS; KEDA's trigger then has enableTLS,
// and caCert, tlsClientCert and tlsClientKey come from a TriggerAuthentication. The error says what is wrong with the pools: there must be one, and their
// names must differ and not be empty.
func NewServer(l net.Listener, pools []*Pool, config *tls.Config) (*Server, error) {
	byName, err := index(pools)
	if err != nil {
		return nil, err
	}
	stop := make(chan struct{})
	s := &Server{
		listener: netutil.LimitListener(l, maxConnections),
		service:  &service{pools: byName, streams: make(chan struct{}, maxStreams), stop: stop, end: sync.OnceFunc(func() { close(stop) })},
		health:   health.NewServer(),
		grpc:     grpc.NewServer(serverOptions(config)...),
	}
	s.halted, s.halt = context.WithCancel(context.Background())
	pb.RegisterExternalScalerServer(s.grpc, s.service)
	grpc_health_v1.RegisterHealthServer(s.grpc, s.health)
	s.health.SetServingStatus(pb.ExternalScaler_ServiceDesc.ServiceName, grpc_health_v1.HealthCheckResponse_SERVING)
	return s, nil
}

// index returns the pools by name, or everything that is wrong with them.
func index(pools []*Pool) (map[string]*Pool, error) {
	byName := map[string]*Pool{}
	var wrong []error
	for i, p := range pools {
		switch {
		case p == nil:
			wrong = append(wrong, fmt.Errorf("pool %d is nil", i+1))
		case p.name == "":
			wrong = append(wrong, fmt.Errorf("pool %d has no name: KEDA asks for it by name", i+1))
		case byName[p.name] != nil:
			wrong = append(wrong, fmt.Errorf("pool %q is there twice: names must differ", p.name))
		default:
			byName[p.name] = p
		}
	}
	if len(pools) == 0 {
		wrong = append(wrong, errors.New("no pools: there is nothing to tell KEDA"))
	}
	return byName, errors.Join(wrong...)
}

func serverOptions(config *tls.Config) []grpc.ServerOption {
	options := []grpc.ServerOption{
		grpc.MaxConcurrentStreams(maxCalls),
		grpc.MaxRecvMsgSize(maxRequest),
		grpc.MaxHeaderListSize(maxHeaders),
		grpc.ConnectionTimeout(handshake),
		grpc.WaitForHandlers(true), // so that none outlives Run
		// A client whose machine has died is noticed, and one that only holds a connection loses it. There is no MaxConnectionAge: it would end
		// streams with an error, after which KEDA waits up to a minute before it opens the next.
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 30 * time.Second, Timeout: 10 * time.Second, MaxConnectionIdle: 15 * time.Minute}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 10 * time.Second, PermitWithoutStream: true}),
	}
	if config != nil {
		options = append(options, grpc.Creds(credentials.NewTLS(config)))
	}
	return options
}

// Run serves until ctx ends, then shuts down within 5 s and returns nil. It returns early with an error if it cannot accept connections.
func (s *Server) Run(ctx context.Context) error {
	served := make(chan error, 1)
	go func() { served <- s.grpc.Serve(s.listener) }()
	select {
	case err := <-served:
		s.grpc.Stop()
		return s.failed(err)
	case <-ctx.Done():
	case <-s.halted.Done():
	}
	s.health.Shutdown()
	s.service.end()
	s.finish()
	// After a halt before Run, Serve was never entered.
	if err := <-served; err != nil && !errors.Is(err, grpc.ErrServerStopped) {
		return s.failed(err)
	}
	return nil
}

func (s *Server) failed(err error) error {
	return fmt.Errorf("serve KEDA on %s: %w", s.listener.Addr(), err)
}

// finish waits until calls have ended, but no longer than drain allows.
func (s *Server) finish() {
	finished := make(chan struct{})
	go func() {
		defer close(finished)
		s.grpc.GracefulStop()
	}()
	select {
	case <-finished:
		return
	case <-time.After(drain):
	case <-s.halted.Done():
	}
	s.grpc.Stop() // also makes GracefulStop return
	<-finished
}

// Halt makes [Server.Run] close all connections and return as soon as possible. It does not wait, and may be called at any time.
func (s *Server) Halt() { s.halt() }

// Metric is the name of the one metric that each pool has: the number of instances that it should have.
const Metric = "instances"

// poolKey is the name of a pool in the metadata of a trigger.
const poolKey = "pool"

// maxStreams is how many streams there may be at once: two for each trigger, one of the scale loop and one of the metric.
const maxStreams = 1024

// service answers KEDA.
type service struct {
	pb.UnimplementedExternalScalerServer

	pools   map[string]*Pool
	streams chan struct{} // one element for each open stream
	stop    chan struct{} // closed when streams should end
	end     func()        // closes stop; may be called more than once
}

// IsActive reports whether the pool should have any instances.
func (s *service) IsActive(_ context.Context, r *pb.ScaledObjectRef) (*pb.IsActiveResponse, error) {
	n, err := s.number(r)
	if err != nil {
		return nil, err
	}
	return &pb.IsActiveResponse{Result: n > 0}, nil
}

// GetMetricSpec returns the metric's name and target. It needs no decision, because without it KEDA creates no HorizontalPodAutoscaler.
func (s *service) GetMetricSpec(_ context.Context, r *pb.ScaledObjectRef) (*pb.GetMetricSpecResponse, error) {
	if _, err := s.pool(r); err != nil {
		return nil, err
	}
	return spec(), nil
}

// GetMetrics returns the number of instances that the pool should have.
func (s *service) GetMetrics(_ context.Context, r *pb.GetMetricsRequest) (*pb.GetMetricsResponse, error) {
	n, err := s.number(r.GetScaledObjectRef())
	if err != nil {
		return nil, err
	}
	if r.GetMetricName() != Metric {
		return nil, status.Errorf(codes.NotFound, "there is no metric %q: the one of each pool is %q", r.GetMetricName(), Metric)
	}
	// KEDA takes the integer if the other one is zero, and older versions know only the integer.
	value := &pb.MetricValue{MetricName: Metric, MetricValue: int64(n), MetricValueFloat: float64(n)}
	return &pb.GetMetricsResponse{MetricValues: []*pb.MetricValue{value}}, nil
}

// StreamIsActive sends whether the pool should have instances: once that is known, and each time that it changes.
func (s *service) StreamIsActive(r *pb.ScaledObjectRef, stream grpc.ServerStreamingServer[pb.IsActiveResponse]) error {
	p, leave, err := s.enter(r)
	if err != nil {
		return err
	}
	defer leave()
	var sent, active bool
	for {
		n, known, changed := p.last()
		if known && (!sent || active != (n > 0)) {
			sent, active = true, n > 0
			// Send waits for a client that does not read. It ends with the stream; what changes meanwhile is not queued.
			if err := stream.Send(&pb.IsActiveResponse{Result: active}); err != nil {
				return err
			}
		}
		select {
		case <-changed:
		case <-s.stop:
			return nil
		case <-stream.Context().Done():
			return status.FromContextError(stream.Context().Err()).Err()
		}
	}
}

// StreamMetricSpec sends what [service.GetMetricSpec] returns, once: it never changes. KEDA renews the HorizontalPodAutoscaler at each message, so
// the stream stays open instead of being opened again.
func (s *service) StreamMetricSpec(r *pb.ScaledObjectRef, stream grpc.ServerStreamingServer[pb.GetMetricSpecResponse]) error {
	_, leave, err := s.enter(r)
	if err != nil {
		return err
	}
	defer leave()
	if err := stream.Send(spec()); err != nil {
		return err
	}
	select {
	case <-s.stop:
		return nil
	case <-stream.Context().Done():
		return status.FromContextError(stream.Context().Err()).Err()
	}
}

// spec is the target of every pool: one of the metric's value for each instance.
func spec() *pb.GetMetricSpecResponse {
	one := &pb.MetricSpec{MetricName: Metric, TargetSize: 1, TargetSizeFloat: 1}
	return &pb.GetMetricSpecResponse{MetricSpecs: []*pb.MetricSpec{one}}
}

// enter counts a stream about a pool, and returns what ends its count.
func (s *service) enter(r *pb.ScaledObjectRef) (*Pool, func(), error) {
	p, err := s.pool(r)
	if err != nil {
		return nil, nil, err
	}
	select {
	case s.streams <- struct{}{}:
		return p, func() { <-s.streams }, nil
	default:
		return nil, nil, status.Errorf(codes.ResourceExhausted, "there are %d streams already: each trigger needs two", cap(s.streams))
	}
}

// number returns how many instances the pool should have.
func (s *service) number(r *pb.ScaledObjectRef) (int, error) {
	p, err := s.pool(r)
	if err != nil {
		return 0, err
	}
	n, known, _ := p.last()
	if !known {
		return 0, status.Errorf(codes.Unavailable, "pool %q: it is not known yet how many instances it has: leave it as it is", p.name)
	}
	return n, nil
}

// pool returns the pool that the metadata of the trigger name.
func (s *service) pool(r *pb.ScaledObjectRef) (*Pool, error) {
	name, named := r.GetScalerMetadata()[poolKey]
	if !named {
		return nil, status.Errorf(codes.InvalidArgument, "the metadata of the trigger of %s name no pool: add %s, one of %s", object(r), poolKey, s.names())
	}
	p, ok := s.pools[name]
	if !ok {
		return nil, status.Errorf(codes.NotFound, "the trigger of %s is about the pool %q, which is unknown: the pools are %s", object(r), name, s.names())
	}
	return p, nil
}

// names returns the names of all pools, in order.
func (s *service) names() string {
	return strings.Join(slices.Sorted(maps.Keys(s.pools)), ", ")
}

// object returns the name of KEDA's object, quoted because anybody may send it.
func object(r *pb.ScaledObjectRef) string {
	return fmt.Sprintf("%.100q", r.GetNamespace()+"/"+r.GetName())
}

// Pool is the number of instances that one pool should have, as an agent decides and KEDA reads it. It is safe for concurrent use. Create one
// with [NewPool].
type Pool struct {
	name     string
	replicas func(ctx context.Context) (int, error)

	mu      sync.Mutex
	number  int
	known   bool
	changed chan struct{} // closed when number or known change, and then replaced
}

var _ agent.Actuator = (*Pool)(nil)

// NewPool returns the pool with this name, which KEDA's trigger has in its metadata. Replicas returns how many replicas KEDA's target is asked
// to have at present, such as those of a Deployment; it is called until it succeeds once. NewPool refuses an empty name and a nil function.
func NewPool(name string, replicas func(ctx context.Context) (int, error)) (*Pool, error) {
	switch {
	case name == "":
		return nil, errors.New("make a pool for KEDA: the name is empty: pass the one in the metadata of the trigger")
	case replicas == nil:
		return nil, fmt.Errorf("make the pool %s for KEDA: replicas is nil: pass a function that reads how many replicas there are", name)
	}
	return &Pool{name: name, replicas: replicas, changed: make(chan struct{})}, nil
}

// Instances returns the number that was last asked for. Before the first time it reads from the platform how many there are, and KEDA is told
// that number: what runs stays until an agent decides otherwise.
func (p *Pool) Instances(ctx context.Context) (int, error) {
	if n, known, _ := p.last(); known {
		return n, nil
	}
	n, err := p.replicas(ctx) // not under the lock: it is a request
	if err != nil {
		return 0, fmt.Errorf("pool %s: the number of its replicas is unknown, and KEDA leaves it as it is: %w", p.name, err)
	}
	if n < 0 {
		return 0, fmt.Errorf("pool %s: got %d replicas, want none or more", p.name, n)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.known { // or Scale was called meanwhile
		p.set(n)
	}
	return p.number, nil
}

// Scale asks for n instances. KEDA reads it within its polling interval, and at once if it has none and n is more.
func (p *Pool) Scale(_ context.Context, n int) error {
	if n < 0 {
		return fmt.Errorf("pool %s: asked for %d instances, want none or more", p.name, n)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.set(n)
	return nil
}

// set is called with mu held.
func (p *Pool) set(n int) {
	if p.known && p.number == n {
		return
	}
	p.number, p.known = n, true
	close(p.changed)
	p.changed = make(chan struct{})
}

// last returns the number that was last asked for, whether there is one, and a channel that is closed when that changes.
func (p *Pool) last() (n int, known bool, changed <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.number, p.known, p.changed
}
