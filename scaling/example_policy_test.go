package scaling_test

import (
	"fmt"
	"time"

	"github.com/millrace/millrace/scaling"
)

// Six instances do not keep up: each has 20 slots, and a message takes 24/7 s. The decision is the same
// for the same samples, whenever and wherever it is made.
func ExamplePolicy_Decide() {
	var h scaling.History
	h.Add(scaling.Sample{
		At:        time.Date(2026, time.November, 23, 9, 0, 0, 0, time.UTC),
		Instances: 6,
		Ready:     scaling.Known(6),
		Depth:     scaling.Known[int64](4320),
		Visible:   scaling.Known[int64](4200),
		Arrival:   scaling.Known(28.0),
		Service:   scaling.Known(35.0),
		Handling:  scaling.Known(24 * time.Second / 7),
		Slots:     scaling.Known(20.0),
	})
	d := scaling.Policy{}.Decide(h)
	fmt.Println(d.Why)
	fmt.Println(d.Instances, "instances")
	// Output:
	// 6 → 12: 4,200 waiting, 28/s in, 35/s out, would drain in 10 min, target 1 min; 21 wanted, at most doubled in one step
	// 12 instances
}

// Where no instance reports, the depth is enough. The slots and the handling time are stated, so they are not guesses.
func ExamplePolicy_depthOnly() {
	p := scaling.Policy{ToZero: true, Max: 5, Slots: 8, Handling: 2 * time.Second}
	at := time.Date(2026, time.November, 23, 9, 0, 0, 0, time.UTC)
	h := scaling.History{{At: at, Instances: 0, Depth: scaling.Known[int64](300)}}
	fmt.Println(p.Decide(h).Why)
	h.Add(scaling.Sample{At: at.Add(10 * time.Second), Instances: 4}) // the depth could not be read
	fmt.Println(p.Decide(h).Why)
	// Output:
	// 0 → 2: 300 waiting; 2 wanted
	// 4: stays, the depth is unknown
}

func ExamplePolicy_Check() {
	fmt.Println(scaling.Policy{Min: 30, Max: 20, Utilization: 80}.Check())
	// Output:
	// scaling policy: Min is 30 and Max 20: Min must not exceed Max
	// scaling policy: Utilization is 80: it must be above 0 and at most 1
}
