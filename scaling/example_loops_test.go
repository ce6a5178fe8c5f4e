package scaling_test

import (
	"fmt"

	"github.com/millrace/millrace/scaling"
)

func ExampleTable() {
	rule := scaling.Table(20, scaling.Step{Below: 50, Loops: 2}, scaling.Step{Below: 500, Loops: 8})
	for _, depth := range []int64{0, 10, 100, 1000} {
		fmt.Println(depth, rule(scaling.Load{Depth: depth}))
	}
	// Output:
	// 0 1
	// 10 2
	// 100 8
	// 1000 20
}
