package claimcheck_test

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/millrace/millrace/blob"
	"github.com/millrace/millrace/codec/claimcheck"
	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/producer"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/localqueue"
)

// A job of a megabyte. In production the store is that of package azureblob.
func Example() {
	type report struct{ Text string }
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	engine, err := localqueue.New(nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	reports := engine.Queue(queue.Name{Account: "example", Queue: "reports"})

	claims, err := claimcheck.New(blob.Memory(), "reports-bodies", nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	p := producer.New(reports, &producer.Options[report]{Claims: claims, Create: true})
	if _, err := p.Send(ctx, report{strings.Repeat("all is well. ", 80_000)}, nil); err != nil {
		fmt.Println(err)
		return
	}
	handle := func(_ context.Context, m *listener.Message[report]) error {
		fmt.Println("got", len(m.Body.Text), "bytes")
		stop()
		return nil
	}
	err = listener.New(reports, handle, &listener.Options[report]{Claims: claims}).Run(ctx)
	fmt.Println(err)
	// Output:
	// got 1040000 bytes
	// <nil>
}

// A program that keeps the store clean, once a day.
func ExampleClaims_Sweep() {
	ctx := context.Background()
	claims, err := claimcheck.New(blob.Memory(), "reports-bodies", &claimcheck.Options{Retention: 7 * 24 * time.Hour})
	if err != nil {
		fmt.Println(err)
		return
	}
	// Duplicates of jobs that were done more than a week ago no longer come.
	swept, err := claims.Sweep(ctx)
	fmt.Println(swept.Blobs, "tombstones", err)

	// Messages live a week, and poison is looked at within a month.
	purged, err := claims.Purge(ctx, 60*24*time.Hour)
	fmt.Println(purged.Blobs, "orphans", err)
	// Output:
	// 0 tombstones <nil>
	// 0 orphans <nil>
}
