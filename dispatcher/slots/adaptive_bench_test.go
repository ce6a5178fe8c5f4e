package slots

import (
	"context"
	"testing"

	"github.com/millrace/millrace/dispatcher"
)

// What a limit costs a job: its slot is taken and freed, and its result noted. Compared with a member of a shared, the
// nearest thing that does not adapt, and with nothing.
func BenchmarkCostOfAJob(b *testing.B) {
	plain := func(ctx context.Context, _ dispatcher.Delivery, next func(context.Context) error) error {
		return next(ctx)
	}
	memory := func() (Memory, error) { return Memory{Used: 1, Limit: 2}, nil }
	gradient := must(NewAdaptive(&AdaptiveOptions{Gradient: true}))
	aimd := must(NewAdaptive(nil))
	guarded := must(NewAdaptive(&AdaptiveOptions{Memory: memory, Start: 16}))
	for _, c := range []struct {
		name      string
		slots     dispatcher.Slots
		intercept dispatcher.Interceptor
	}{
		{"pool", must(NewShared(nil)).Member(nil), plain},
		{"aimd", aimd.Slots(nil), aimd.Intercept},
		{"gradient", gradient.Slots(nil), gradient.Intercept},
		{"memory", guarded.Slots(nil), guarded.Intercept},
		{"in a pool", aimd.Slots(must(NewShared(nil)).Member(nil)), aimd.Intercept},
	} {
		b.Run(c.name, func(b *testing.B) {
			if err := c.slots.Join(make(chan struct{}, 1)); err != nil {
				b.Fatal(err)
			}
			defer c.slots.Leave()
			d := dispatcher.Delivery{ID: "m", Kind: "k", Attempt: 1, DequeueCount: 1}
			job := func(context.Context) error { return nil }
			ctx := b.Context()
			b.ReportAllocs()
			for b.Loop() {
				if n, _ := c.slots.Take(dispatcher.SlotRequest{Least: 1, Most: 1, Likely: 1}); n != 1 {
					b.Fatal("no slot")
				}
				_ = c.intercept(ctx, d, job)
				c.slots.Free(1)
			}
		})
	}
}

// A job costs no allocation.
func TestAJobCostsNoAllocation(t *testing.T) {
	for name, o := range map[string]*AdaptiveOptions{"aimd": nil, "gradient": {Gradient: true}} {
		l := must(NewAdaptive(o))
		s := l.Slots(nil)
		if err := s.Join(make(chan struct{}, 1)); err != nil {
			t.Fatal(err)
		}
		d := dispatcher.Delivery{ID: "m", Kind: "k", Attempt: 1, DequeueCount: 1}
		job := func(context.Context) error { return nil }
		ctx := t.Context()
		one := func() {
			s.Take(dispatcher.SlotRequest{Least: 1, Most: 1, Likely: 1})
			_ = l.Intercept(ctx, d, job)
			s.Free(1)
		}
		one()
		if got := testing.AllocsPerRun(200, one); got >= 1 {
			t.Errorf("%s: got %v allocations for a job, want none", name, got)
		}
		s.Leave()
	}
}

// must returns the value of a constructor that must not fail.
func must[T any](made T, err error) T {
	if err != nil {
		panic(err)
	}
	return made
}
