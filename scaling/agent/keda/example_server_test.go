package keda_test

import (
	"context"
	"fmt"
	"log"
	"net"

	pb "github.com/kedacore/keda/v2/pkg/scalers/externalscaler"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/localqueue"
	"github.com/millrace/millrace/scaling"
	"github.com/millrace/millrace/scaling/agent"
	"github.com/millrace/millrace/scaling/agent/keda"
)

// An agent measures a queue with 300 messages and decides; KEDA, here a client, reads what it has decided.
func ExampleServer() {
	ctx, stop := context.WithCancel(context.Background())
	engine, err := localqueue.New(nil)
	if err != nil {
		log.Fatal(err)
	}
	orders := engine.Queue(queue.Name{Account: "acme", Queue: "orders"})
	if err := orders.Create(ctx, nil); err != nil {
		log.Fatal(err)
	}
	for range 300 {
		if _, err := orders.Enqueue(ctx, "ship", nil); err != nil {
			log.Fatal(err)
		}
	}

	replicas := func(context.Context) (int, error) { return 2, nil } // in a cluster: package deployment
	pool, err := keda.NewPool("orders", replicas)
	if err != nil {
		log.Fatal(err)
	}
	decided := make(chan struct{}, 1)
	decides, err := agent.New([]agent.Pool{{
		Name: "orders", Queues: []queue.Queue{orders}, Actuator: pool,
		Policy: scaling.Policy{Slots: 1, Max: 4},
	}}, &agent.Options{OnDecision: func(agent.Decided) {
		select {
		case decided <- struct{}{}:
		default:
		}
	}})
	if err != nil {
		log.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	server, err := keda.NewServer(l, []*keda.Pool{pool}, nil)
	if err != nil {
		log.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- millrace.RunOrdered(ctx, server, decides) }()

	<-decided
	conn, err := grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		log.Fatal(err)
	}
	trigger := &pb.ScaledObjectRef{Name: "orders", Namespace: "jobs", ScalerMetadata: map[string]string{"pool": "orders"}}
	got, err := pb.NewExternalScalerClient(conn).GetMetrics(ctx, &pb.GetMetricsRequest{ScaledObjectRef: trigger, MetricName: keda.Metric})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(got.GetMetricValues()[0].GetMetricValue(), "instances")

	_ = conn.Close()
	stop()
	fmt.Println(<-ended)
	// Output:
	// 4 instances
	// <nil>
}
