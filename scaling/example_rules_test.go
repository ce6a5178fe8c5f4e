package scaling_test

import (
	"fmt"

	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/scaling"
)

// The default is as many loops as take the whole depth in one dequeue each, within the bounds of
// the listener.
func ExamplePerBatch() {
	o := &listener.Options[string]{Fetch: listener.FetchOptions{QueueWorkDetected: scaling.PerBatch}} // which is the default
	for _, depth := range []int64{0, 20, 100, 1000} {
		fmt.Println(depth, o.Fetch.QueueWorkDetected(listener.Load{Depth: depth, BatchSize: 32}))
	}
	// Output:
	// 0 1
	// 20 1
	// 100 4
	// 1000 32
}

// A rule in steps, to begin a table of one's own with.
func ExampleStepped() {
	o := &listener.Options[string]{Fetch: listener.FetchOptions{QueueWorkDetected: scaling.Stepped()}}
	for _, depth := range []int64{0, 20, 100, 1000} {
		fmt.Println(depth, o.Fetch.QueueWorkDetected(listener.Load{Depth: depth}))
	}
	// Output:
	// 0 1
	// 20 10
	// 100 50
	// 1000 100
}
