package shards

import (
	"time"

	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/scaling"
)

// addRates sets the rates of all shards together: sums, and the mean of the handling times by how much each shard
// ends. A sum is unknown while that of a shard is.
func addRates(sum *listener.State, shards []ShardState) {
	if len(shards) == 0 {
		return
	}
	sum.Arrival = total(shards, func(s *listener.State) scaling.Optional[float64] { return s.Arrival })
	sum.Intake = total(shards, func(s *listener.State) scaling.Optional[float64] { return s.Intake })
	sum.Service = total(shards, func(s *listener.State) scaling.Optional[float64] { return s.Service })
	var weighted, weight, plain, known float64
	for _, one := range shards {
		if took, ok := one.Handling.Get(); ok {
			rate := one.Service.Or(0)
			weighted, weight = weighted+rate*took.Seconds(), weight+rate
			plain, known = plain+took.Seconds(), known+1
		}
	}
	if weight == 0 {
		weighted, weight = plain, known
	}
	if weight > 0 {
		sum.Handling = scaling.Known(time.Duration(weighted / weight * float64(time.Second)))
	}
}

// total returns the sum of a rate, unknown if any is.
func total(shards []ShardState, rate func(*listener.State) scaling.Optional[float64]) scaling.Optional[float64] {
	sum := 0.0
	for i := range shards {
		one, known := rate(&shards[i].State).Get()
		if !known {
			return scaling.Optional[float64]{}
		}
		sum += one
	}
	return scaling.Known(sum)
}
