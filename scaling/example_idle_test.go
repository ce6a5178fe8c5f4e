package scaling_test

import (
	"fmt"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/scaling"
)

// The longest wait is what an idle worker costs, and how long its first job may wait.
func ExampleIdle() {
	o := &listener.Options[string]{Fetch: listener.FetchOptions{Idle: scaling.Idle{Min: time.Second, Max: time.Minute}}}
	fmt.Println("requests an idle loop sends a day, at most:", int(24*time.Hour/o.Fetch.Idle.Max))
	// Output: requests an idle loop sends a day, at most: 1440
}

// A policy of cenkalti/backoff is a curve as it is. New returns another one for each loop.
func ExampleBackOff() {
	idle := scaling.Idle{
		Max: 10 * time.Second,
		New: func() scaling.BackOff {
			return backoff.NewExponentialBackOff(
				backoff.WithInitialInterval(time.Second),
				backoff.WithMultiplier(3),
				backoff.WithRandomizationFactor(0),
			)
		},
	}
	curve := idle.New()
	fmt.Println(curve.NextBackOff(), curve.NextBackOff(), curve.NextBackOff())
	curve.Reset()
	fmt.Println(curve.NextBackOff())
	// Output:
	// 1s 3s 9s
	// 1s
}
