package millrace_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/codec/claimcheck"
	"github.com/millrace/millrace/codec/zstdcodec"
	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/poison"
	"github.com/millrace/millrace/producer"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/localqueue"
	"github.com/millrace/millrace/stores"
)

// Jobs of a megabyte. Their bodies are in a directory here; in production the location would be that of
// an account in Azure. The first try of a job fails, so the job is in the poison queue for a while, and
// its body is kept.
func Example_largeBodies() {
	type Report struct{ Title, Text string }
	dir, err := os.MkdirTemp("", "bodies")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	store, err := stores.OpenBlobs(dir, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer store.Close()

	// What the producer and the worker share. Compression is not needed: it makes blobs smaller.
	claims, err := claimcheck.New(store, "report-bodies", &claimcheck.Options{Retention: time.Millisecond})
	if err != nil {
		fmt.Println(err)
		return
	}
	compressed, err := zstdcodec.New[Report](nil, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	engine, err := localqueue.New(nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	reports := engine.Queue(queue.Name{Queue: "reports"})

	ctx := context.Background()
	p := producer.New(reports, &producer.Options[Report]{Claims: claims, Codec: compressed, Create: true})
	for _, title := range []string{"short", "long"} {
		text := map[string]string{"short": "all is well", "long": novel(1 << 20)}[title]
		if _, err := p.Send(ctx, Report{title, text}, nil); err != nil {
			fmt.Println(err)
			return
		}
	}
	printBodies(ctx, claims)

	// The worker. Its handler sees no difference.
	work := func(handle listener.Handler[Report], jobs int32) {
		ctx, stop := context.WithCancel(ctx)
		defer stop()
		o := &listener.Options[Report]{Claims: claims, Codec: compressed, Concurrency: 1, Logger: silent}
		o.Observer.Settled = func(listener.Delivery, listener.Outcome, time.Duration) {
			if atomic.AddInt32(&jobs, -1) == 0 {
				stop()
			}
		}
		if err := millrace.Run(ctx, listener.New(reports, handle, o)); err != nil {
			fmt.Println(err)
		}
	}
	work(func(_ context.Context, m *listener.Message[Report]) error {
		if m.Body.Title == "long" {
			return listener.Poison(fmt.Errorf("no printer takes %d bytes", len(m.Body.Text)))
		}
		fmt.Println("printing the short one")
		return nil
	}, 2)
	printBodies(ctx, claims)

	// Once mended, the job is tried again.
	if _, err := poison.Redrive(ctx, reports, nil); err != nil {
		fmt.Println(err)
	}
	work(func(_ context.Context, m *listener.Message[Report]) error {
		fmt.Println("printing the", m.Body.Title, "one of", len(m.Body.Text), "bytes")
		return nil
	}, 1)
	printBodies(ctx, claims)

	// Now and then: what remains of the bodies of jobs that are done is removed.
	time.Sleep(10 * time.Millisecond) // more than Retention
	swept, err := claims.Sweep(ctx)
	fmt.Println(swept.Blobs, "swept", err)
	// Output:
	// 1 body waits
	// printing the short one
	// 1 body waits
	// printing the long one of 1048576 bytes
	// no body waits
	// 1 swept <nil>
}

// novel returns a text that compression leaves large.
func novel(size int) string {
	var b strings.Builder
	for i := uint64(1); b.Len() < size; i++ {
		fmt.Fprintf(&b, "%x ", i*0x9E3779B97F4A7C15)
	}
	return b.String()[:size]
}

// printBodies prints how many bodies are stored that a message may need.
func printBodies(ctx context.Context, claims *claimcheck.Claims) {
	n := 0
	for body, err := range claims.List(ctx) {
		if err != nil {
			fmt.Println(err)
			return
		}
		if !body.Settled {
			n++
		}
	}
	fmt.Println(map[int]string{0: "no body waits", 1: "1 body waits"}[n])
}
