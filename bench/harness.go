package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"
)

// harness is what all benchmarks use in a run.
type harness struct {
	dir      string    // a temporary folder
	progress io.Writer // for a person who waits
	machine  string
}

func (h *harness) say(format string, args ...any) {
	_, _ = fmt.Fprintf(h.progress, format+"\n", args...) // the figures matter more
}

// folder makes a folder. Remove it when it can be large.
func (h *harness) folder(name string) (string, error) {
	return os.MkdirTemp(h.dir, filepath.Base(name)+"-")
}

// takeTurns measures each contender once in every round, so that other load on the machine affects all alike.
func takeTurns[T fmt.Stringer](ctx context.Context, h *harness, rounds int, all []T, once func(who T, round int) error) error {
	for round := range rounds {
		for _, who := range all {
			h.say("round %d of %d: %v", round+1, rounds, who)
			if err := errors.Join(ctx.Err(), once(who, round)); err != nil {
				return fmt.Errorf("%v: %w", who, err)
			}
		}
	}
	return nil
}

// machine says what is measured on.
func machine() string {
	load := ""
	if text, err := os.ReadFile("/proc/loadavg"); err == nil { // Linux has it
		minute, _, _ := strings.Cut(string(text), " ")
		load = fmt.Sprintf(", a load of %s in the minute before", minute)
	}
	return fmt.Sprintf("%d processors, %s/%s, %s%s", runtime.NumCPU(), runtime.GOOS, runtime.GOARCH, runtime.Version(), load)
}

// sample is what was counted in one window.
type sample struct {
	messages  int64 // handled and deleted
	wall      time.Duration
	processor time.Duration // user and system
	mallocs   uint64
	requests  int64 // that the server got
	limited   int64 // and of these, refused because of its limit
}

func (s sample) minus(o sample) sample {
	return sample{s.messages - o.messages, s.wall - o.wall, s.processor - o.processor, s.mallocs - o.mallocs, s.requests - o.requests, s.limited - o.limited}
}

func (s sample) perSecond() float64          { return float64(s.messages) / s.wall.Seconds() }
func (s sample) perProcessorSecond() float64 { return float64(s.messages) / s.processor.Seconds() }

// perMessage returns how many of something there were for each message.
func (s sample) perMessage(n float64) float64 { return n / float64(max(s.messages, 1)) }

// samples are those of a contender, one of each round.
type samples []sample

// median returns the median of a figure.
func (s samples) median(figure func(sample) float64) float64 {
	var all []float64
	for _, one := range s {
		all = append(all, figure(one))
	}
	return median(all)
}

// times returns the median of the ratios to a baseline within a round.
func (s samples) times(baseline samples, figure func(sample) float64) float64 {
	var all []float64
	for i, one := range s {
		all = append(all, figure(one)/figure(baseline[i]))
	}
	return median(all)
}

// median returns 0 of nothing.
func median(all []float64) float64 {
	n := len(all)
	if n == 0 {
		return 0
	}
	all = slices.Sorted(slices.Values(all))
	return (all[(n-1)/2] + all[n/2]) / 2
}

// percentile returns the smallest of sorted durations that so many percent of them do not exceed.
func percentile(sorted []time.Duration, percent int) time.Duration {
	rank := (percent*len(sorted) + 99) / 100
	return sorted[max(rank, 1)-1]
}

func milliseconds(d time.Duration) string {
	return fmt.Sprintf("%.2f ms", float64(d)/float64(time.Millisecond))
}

// percentiles returns the texts of some percentiles, as columns of a table.
func percentiles(sorted []time.Duration, percents ...int) string {
	var all []string
	for _, p := range percents {
		all = append(all, milliseconds(percentile(sorted, p)))
	}
	return strings.Join(all, " | ")
}

func mebibytes(bytes int64) string { return fmt.Sprintf("%.0f MiB", float64(bytes)/(1<<20)) }

// closers are closed in reverse order.
type closers []func() error

func (c *closers) add(one func() error) { *c = append(*c, one) }

func (c *closers) close() error {
	var errs []error
	for _, one := range slices.Backward(*c) {
		errs = append(errs, one())
	}
	*c = nil
	return errors.Join(errs...)
}
