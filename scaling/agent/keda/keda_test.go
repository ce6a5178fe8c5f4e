package keda

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	pb "github.com/kedacore/keda/v2/pkg/scalers/externalscaler"
)

// operator is what KEDA and the HorizontalPodAutoscaler do with an external-push trigger, as of KEDA v2.21.0 and without its scale-in delays: the
// stream only wakes from zero, its client waits 2 s and up to a minute before it connects again, the poll removes the last replica, and the
// HorizontalPodAutoscaler rounds up the metric divided by its target, but leaves the number alone if that is within a tenth.
type operator struct {
	client   pb.ExternalScalerClient
	ref      *pb.ScaledObjectRef
	interval time.Duration // of polls

	mu       sync.Mutex
	replicas int
	log      []string // each change of replicas, with its cause
	failures int      // of polls
}

// run works until ctx ends.
func (o *operator) run(ctx context.Context) {
	var all sync.WaitGroup
	all.Go(func() { o.push(ctx) })
	all.Go(func() {
		for tick := time.NewTicker(o.interval); ; {
			o.poll(ctx)
			select {
			case <-tick.C:
			case <-ctx.Done():
				tick.Stop()
				return
			}
		}
	})
	all.Wait()
}

// push opens the stream again and again. As in KEDA only an orderly end makes the next wait short.
func (o *operator) push(ctx context.Context) {
	for wait := 2 * time.Second; ; wait = min(2*wait, time.Minute) {
		if err := o.stream(ctx); errors.Is(err, io.EOF) {
			wait = 2 * time.Second
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return
		}
	}
}

func (o *operator) stream(ctx context.Context) error {
	stream, err := o.client.StreamIsActive(ctx, o.ref)
	if err != nil {
		return err
	}
	for {
		got, err := stream.Recv()
		if err != nil {
			return err
		}
		if got.GetResult() {
			o.change("push", func(now int) int { return max(now, 1) })
		}
	}
}

// poll is one round of KEDA's own poll and of the HorizontalPodAutoscaler. An error changes nothing.
func (o *operator) poll(ctx context.Context) {
	n, err := o.metric(ctx)
	active, activeErr := o.client.IsActive(ctx, o.ref)
	switch {
	case err != nil || activeErr != nil:
		o.mu.Lock()
		defer o.mu.Unlock()
		o.failures++
	case !active.GetResult():
		o.change("poll", func(int) int { return 0 })
	default:
		o.change("poll", func(now int) int {
			if now == 0 {
				return 1
			}
			if ratio := n / float64(now); ratio >= 0.9 && ratio <= 1.1 {
				return now
			}
			return max(1, int(n)) // the target is one
		})
	}
}

func (o *operator) metric(ctx context.Context) (float64, error) {
	spec, err := o.client.GetMetricSpec(ctx, o.ref)
	if err != nil {
		return 0, err
	}
	one := spec.GetMetricSpecs()[0]
	got, err := o.client.GetMetrics(ctx, &pb.GetMetricsRequest{ScaledObjectRef: o.ref, MetricName: one.GetMetricName()})
	if err != nil {
		return 0, err
	}
	return got.GetMetricValues()[0].GetMetricValueFloat() / one.GetTargetSizeFloat(), nil
}

func (o *operator) change(cause string, to func(now int) int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if n := to(o.replicas); n != o.replicas {
		o.log = append(o.log, fmt.Sprintf("%s: %d → %d", cause, o.replicas, n))
		o.replicas = n
	}
}

// state returns the replicas, the changes since the last call, and how many polls have failed since then.
func (o *operator) state() (replicas int, log []string, failures int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	log, failures = o.log, o.failures
	o.log, o.failures = nil, 0
	return o.replicas, log, failures
}

// platform returns the replicas, as the scale of the Deployment has them.
func (o *operator) platform(context.Context) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.replicas, nil
}
