package replay_test

import (
	"fmt"
	"strings"
	"time"

	"github.com/millrace/millrace/internal/replay"
	"github.com/millrace/millrace/scaling"
)

// A morning from a file: what the policy would have missed and cost, and what a number of instances that never changes would have.
func ExampleRun() {
	const morning = `
# handling: 500ms
# slots: 16
# start: 45s
# sla: 90s
time,arrivals
08:00,600
08:01,3000
08:02,9000
08:03,9000
08:04,9000
08:05,3000
08:06,600
08:07,600
`
	trace, err := replay.Read(strings.NewReader(morning), "morning.csv")
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, rule := range []replay.Rule{replay.Agent("agent", replay.For(&trace, scaling.Policy{})), replay.Fixed(3), replay.Fixed(6)} {
		r, err := replay.Run(trace, rule)
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Printf("%-8s %2.0f %% late, %.2f instance-hours, the longest job took %v\n", rule.Name, 100*r.LateShare(), r.InstanceHours, r.Worst.Round(time.Second))
	}
	// Output:
	// agent     0 % late, 0.52 instance-hours, the longest job took 46s
	// fixed: 3 13 % late, 0.40 instance-hours, the longest job took 1m42s
	// fixed: 6  0 % late, 0.80 instance-hours, the longest job took 1s
}

// An account carries 20,000 requests a second. A trace that needs more must name its accounts.
func ExampleTrace_Check() {
	trace := replay.Steady(replay.Large(), 1)
	trace.Accounts = nil
	fmt.Println(trace.Check())
	// Output:
	// trace "steady, large": 55193 messages a second come after 1h48m40s: they are 115408 requests a second, and one storage account carries 20000. Name at least 6 accounts
}
