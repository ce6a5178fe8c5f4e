package keda

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	pb "github.com/kedacore/keda/v2/pkg/scalers/externalscaler"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

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

func newService(pools map[string]*Pool) *service {
	stop := make(chan struct{})
	return &service{
		pools: pools, streams: make(chan struct{}, maxStreams),
		stop: stop, end: sync.OnceFunc(func() { close(stop) }),
	}
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
