package report

import (
	"slices"
	"time"
)

// Latencies are how long batches took from being handed over to being in the books. The
// percentiles are by nearest rank.
type Latencies struct{ P50, P95, P99, Max time.Duration }

func latencies(all []time.Duration) Latencies {
	sorted := slices.Sorted(slices.Values(all))
	return Latencies{percentile(sorted, 50), percentile(sorted, 95), percentile(sorted, 99), percentile(sorted, 100)}
}

// percentile returns the latency of rank ⌈p/100 × n⌉, or zero if there is none.
func percentile(sorted []time.Duration, p int) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[(p*len(sorted)+99)/100-1]
}
