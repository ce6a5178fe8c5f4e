package scaling_test

import (
	"fmt"
	"time"

	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/scaling"
)

// The longest wait is what an idle worker costs, and how long its first job may wait.
func ExampleIdle() {
	o := &listener.Options[string]{Idle: scaling.Idle{Min: time.Second, Max: time.Minute}}
	fmt.Println("requests an idle loop sends a day, at most:", int(24*time.Hour/o.Idle.Max))
	// Output: requests an idle loop sends a day, at most: 1440
}
