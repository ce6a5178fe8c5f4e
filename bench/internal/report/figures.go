package report

import (
	"fmt"
	"time"
)

// Percentile returns the smallest of sorted durations that so many percent of them do not exceed.
func Percentile(sorted []time.Duration, percent int) time.Duration {
	rank := (percent*len(sorted) + 99) / 100
	return sorted[max(rank, 1)-1]
}

// Milliseconds returns the text of a duration.
func Milliseconds(d time.Duration) string {
	return fmt.Sprintf("%.2f ms", float64(d)/float64(time.Millisecond))
}

// PercentileText returns the text of a percentile of sorted durations.
func PercentileText(sorted []time.Duration, percent int) string {
	return Milliseconds(Percentile(sorted, percent))
}
