package beacon_test

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/localqueue"
	"github.com/millrace/millrace/scaling"
	"github.com/millrace/millrace/scaling/beacon"
)

// An instance reports in a control queue, and whoever reads that sees what it does.
func Example() {
	account, err := localqueue.New(nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	jobs := account.Queue(queue.Name{Account: "acme", Queue: "jobs"})
	control := account.Queue(queue.Name{Account: "acme", Queue: "jobs-control"})
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	_ = jobs.Create(ctx, nil)
	_, _ = jobs.Enqueue(ctx, `"a job"`, nil)

	started, finish := make(chan bool), make(chan bool)
	l := listener.New(jobs, func(context.Context, *listener.Message[string]) error {
		started <- true
		<-finish
		return nil
	}, &listener.Options[string]{
		Beacon: listener.BeaconOptions{Queue: control, Create: true, Instance: "web-1", Interval: beacon.MinInterval},
		Logger: slog.New(slog.DiscardHandler),
	})
	done := make(chan error)
	go func() { done <- l.Run(ctx) }()
	<-started

	viewer, err := beacon.NewViewer(control)
	if err != nil {
		fmt.Println(err)
		return
	}
	fleet, err := beacon.NewFleet(jobs.Name())
	if err != nil {
		fmt.Println(err)
		return
	}
	var sample scaling.Sample
	for range time.Tick(10 * time.Millisecond) {
		if view, err := viewer.View(context.Background()); err == nil {
			fleet.Measure(&sample, view)
		}
		if sample.InWork.Or(0) > 0 { // the instance has reported since the job began
			break
		}
	}
	fmt.Println("ready:", sample.Ready.Or(0), "in work:", sample.InWork.Or(0), "slots:", sample.Slots.Or(0))
	fmt.Println("handling time known:", sample.Handling.IsKnown())

	close(finish)
	stop()
	fmt.Println(<-done)
	view, err := viewer.View(context.Background())
	fmt.Println(view.Reports[0].Instance, view.Reports[0].Phase, view.Reports[0].Ended, err)
	// Output:
	// ready: 1 in work: 1 slots: 64
	// handling time known: false
	// <nil>
	// web-1 stopped 1 <nil>
}
