package scaling_test

import (
	"fmt"

	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/scaling"
)

// Loops that bring nothing end again. Here the service answers six dequeues at once, and no more.
func ExampleByIntake() {
	o := &listener.Options[string]{Fetch: listener.FetchOptions{LoopController: scaling.ByIntake}}

	next := o.Fetch.LoopController() // as a listener does
	loops := 2
	for range 5 {
		intake := float64(100 * min(loops, 6))
		fmt.Print(loops, " loops bring ", intake, "/s; ")
		loops = next(scaling.Interval{
			Load:     scaling.Load{Loops: loops, Intake: scaling.Known(intake)},
			Dequeues: 8 * loops, Full: 8 * loops,
		})
	}
	fmt.Println("then", loops)
	// Output: 2 loops bring 200/s; 3 loops bring 300/s; 4 loops bring 400/s; 6 loops bring 600/s; 9 loops bring 600/s; then 6
}
