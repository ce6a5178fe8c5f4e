package agentfile_test

import (
	"fmt"

	"github.com/millrace/millrace/internal/agentfile"
)

// Everything that is wrong with a file is said at once, with its lines.
func ExampleParse() {
	file, err := agentfile.Parse("agent.yaml", []byte(`
pools:
  orders:
    queues: [orders]
    policy: {max: 5, target: 1m}
`))
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, p := range file.Pools {
		fmt.Println(p.Name, "has at most", p.Policy.Max, "instances and a target of", p.Policy.Target)
	}

	_, err = agentfile.Parse("agent.yaml", []byte(`
pools:
  orders:
    queue: orders
    policy: {max: many}
`))
	fmt.Println(err)
	// Output:
	// orders has at most 5 instances and a target of 1m0s
	// agent.yaml:4: pool orders has no key "queue", did you mean queues?; the keys are queues, beacons, policy, processes, azure
	// agent.yaml:4: pool orders has no queues: write queues, such as [orders]
	// agent.yaml:5: max is "many": write a whole number, such as 4
}
