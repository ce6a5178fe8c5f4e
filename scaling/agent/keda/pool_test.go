package keda

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
)

func TestThePoolBeginsWithThePlatform(t *testing.T) {
	asked := 0
	p := must(NewPool("worker", func(context.Context) (int, error) {
		if asked++; asked == 1 {
			return 0, errPlatform
		}
		return 12, nil
	}))
	if _, err := p.Instances(t.Context()); !errors.Is(err, errPlatform) {
		t.Errorf("got %v, want the platform's error", err)
	}
	if _, known, _ := p.last(); known {
		t.Error("a failed reading counts as a number")
	}
	if got, err := p.Instances(t.Context()); got != 12 || err != nil {
		t.Errorf("got %d, %v, want 12 as the platform has it", got, err)
	}
	if got, known, _ := p.last(); got != 12 || !known {
		t.Errorf("served: got %d, %v, want 12", got, known)
	}
	if err := p.Scale(t.Context(), 5); err != nil {
		t.Fatal(err)
	}
	if got, err := p.Instances(t.Context()); got != 5 || err != nil {
		t.Errorf("got %d, %v, want 5 as was asked for", got, err)
	}
	if asked != 2 {
		t.Errorf("the platform was asked %d times, want twice", asked)
	}
}

func TestImpossibleNumbersAreRefused(t *testing.T) {
	p := must(NewPool("worker", has(-1)))
	if _, err := p.Instances(t.Context()); err == nil {
		t.Error("the platform has -1: got no error")
	}
	if err := p.Scale(t.Context(), -1); err == nil {
		t.Error("asked for -1: got no error")
	}
	if n, known, _ := p.last(); known {
		t.Errorf("got the number %d, want none", n)
	}
}

// A number that was decided while the platform was read is newer than what was read.
func TestADecisionDuringTheReadingCounts(t *testing.T) {
	var p *Pool
	p = must(NewPool("worker", func(ctx context.Context) (int, error) { return 12, p.Scale(ctx, 3) }))
	if got, err := p.Instances(t.Context()); got != 3 || err != nil {
		t.Errorf("got %d, %v, want 3", got, err)
	}
}

func TestPoolIsSafeForConcurrentUse(t *testing.T) {
	p := must(NewPool("worker", has(1)))
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for n := range 200 {
				_, _, changed := p.last()
				if err := p.Scale(t.Context(), n*8+i); err != nil {
					t.Error(err)
				}
				<-changed
				if _, err := p.Instances(t.Context()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
}

func TestAPoolNeedsANameAndReplicas(t *testing.T) {
	if p, err := NewPool("", has(1)); p != nil || err == nil || !strings.Contains(err.Error(), "pass the one in the metadata") {
		t.Errorf("without a name: got %v, %v", p, err)
	}
	if p, err := NewPool("worker", nil); p != nil || err == nil || !strings.Contains(err.Error(), "pass a function that reads how many") {
		t.Errorf("without a function: got %v, %v", p, err)
	}
}
