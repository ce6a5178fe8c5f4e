package shards_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/dispatcher/slots"
	"github.com/millrace/millrace/kinds"
	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/listener/shards"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/wakeup"
)

// S-02: the queues may be of several accounts. Each delivery says which shard it is from.
func TestJobsOfAllShardsAreHandled(t *testing.T) {
	bubble(t, func(b *bundle) {
		all := b.shards(3)
		other := b.engine.Queue(queue.Name{Account: "other", Queue: "jobs-0"})
		if err := other.Create(b.Context(), nil); err != nil {
			t.Fatal(err)
		}
		all = append(all, other)
		for i := range 40 {
			b.put(all[i%4], i)
		}
		var intercepted atomic.Int64
		o := b.options()
		o.Listener.Interceptors = []listener.Interceptor{func(ctx context.Context, d listener.Delivery, next func(context.Context) error) error {
			if d.Queue.Queue == "jobs-2" {
				intercepted.Add(1)
			}
			return next(ctx)
		}}
		r := b.run(must(shards.New(all, b.handle, o)))
		advance(time.Minute)
		st := r.State()
		r.mustFinish()
		if got := len(b.jobs()); got != 40 || st.Total.Outcomes[listener.Deleted] != 40 || intercepted.Load() != 10 {
			t.Errorf("got %d jobs, Succeeded %d, %d intercepted of jobs-2; want 40, 40 and 10", got, st.Total.Outcomes[listener.Deleted], intercepted.Load())
		}
		for i := range 40 {
			if b.from[i] != all[i%4].Name() {
				t.Errorf("job %d: got it from %v, want %v", i, b.from[i], all[i%4].Name())
			}
		}
		var names []string
		for _, one := range st.Shards {
			names = append(names, one.Shard.String())
			if one.Outcomes[listener.Deleted] != 10 || !one.Ready() {
				t.Errorf("shard %v: got Succeeded %d, Ready %v; want 10 and true", one.Shard, one.Outcomes[listener.Deleted], one.Ready())
			}
		}
		if want := []string{"other/jobs-0", "test/jobs-0", "test/jobs-1", "test/jobs-2"}; !slices.Equal(names, want) {
			t.Errorf("shards: got %v, want %v", names, want)
		}
		if !st.Ready() || !st.Healthy() {
			t.Errorf("got Ready %v, Healthy %v; want true, true", st.Ready(), st.Healthy())
		}
	})
}

func TestBadArgumentsAreRefusedBeforeAnythingIsSent(t *testing.T) {
	bubble(t, func(b *bundle) {
		all := b.shards(2)
		p := must(slots.NewShared(nil))
		for _, c := range []struct {
			what   string
			shards []queue.Queue
			set    func(*shards.Options[job])
			want   string
		}{
			{"no shard", nil, nil, "there is no shard"},
			{"nil", []queue.Queue{all[0], nil}, nil, "is nil"},
			{"twice", []queue.Queue{all[0], all[1], all[0]}, nil, "test/jobs-0: it is a shard already"},
			{"negative slots", all, func(o *shards.Options[job]) { o.Slots = -1 }, "-1 slots"},
			{"slots and pool", all, func(o *shards.Options[job]) { o.Slots, o.Shared = 8, p }, "both set"},
			{"slots of the listener", all, func(o *shards.Options[job]) { o.Listener.Slots = p.Member(nil) }, "Listener.Slots is set"},
			{"settle", all, func(o *shards.Options[job]) { o.Settle = 30 }, "give it a unit"},
			{"an option of the listener", all, func(o *shards.Options[job]) { o.Listener.Fetch.BatchSize = 33 }, "33"},
		} {
			o := b.options()
			if c.set != nil {
				c.set(o)
			}
			l, err := shards.New(c.shards, b.handle, o)
			if c.what == "no shard" && err == nil { // it may get one before it runs
				err = l.Run(b.Context())
			} else if l != nil {
				t.Errorf("%s: got a listener besides the error", c.what)
			}
			if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%s: got %v, want one line with %q", c.what, err, c.want)
			}
		}
		if _, err := shards.New(all, nil, b.options()); err == nil || !strings.Contains(err.Error(), "needs a handler") {
			t.Errorf("no handler: got %v, want an error that says so", err)
		}
	})
}

var _ millrace.Runner = (*shards.Listener[job])(nil)

func TestShardsMayHaveJobsOfSeveralKinds(t *testing.T) {
	bubble(t, func(b *bundle) {
		all := b.shards(2)
		mail, invoice := kinds.Kind[job]{Name: "mail"}, kinds.Kind[string]{Name: "invoice"}
		var mails, invoices atomic.Int64
		handlers := []listener.Kind{
			mail.Handle(func(context.Context, *listener.Message[job]) error { mails.Add(1); return nil }, nil),
			invoice.Handle(func(context.Context, *listener.Message[string]) error { invoices.Add(1); return nil }, nil),
		}
		l := must(shards.NewKinds(all, handlers, &shards.Options[any]{Listener: &listener.Options[any]{Logger: b.options().Listener.Logger}}))
		clear(handlers) // the caller's own
		for _, q := range all {
			if _, err := mail.Producer(q, nil).Send(b.Context(), job{1}, nil); err != nil {
				t.Fatal(err)
			}
			if _, err := invoice.Producer(q, nil).Send(b.Context(), "paid", nil); err != nil {
				t.Fatal(err)
			}
		}
		ctx, stop := context.WithCancel(b.Context())
		done := make(chan error, 1)
		go func() { done <- l.Run(ctx) }()
		advance(time.Minute)
		stop()
		if err := <-done; err != nil || mails.Load() != 2 || invoices.Load() != 2 {
			t.Errorf("got %v, %d mails and %d invoices; want two of each", err, mails.Load(), invoices.Load())
		}
	})
}

func TestAListenerOverShardsRunsOnce(t *testing.T) {
	bubble(t, func(b *bundle) {
		l := must(shards.New(b.shards(2), b.handle, b.options()))
		r := b.run(l)
		advance(time.Second)
		if err := l.Run(b.Context()); err == nil || !strings.Contains(err.Error(), "already run") {
			t.Errorf("a second Run: got %v, want an error that says so", err)
		}
		r.mustFinish()
		if st := l.State(); st.Phase != listener.Stopped || st.Healthy() || st.Ready() {
			t.Errorf("after the stop: got %v, want it stopped", st)
		}
		if err := l.Add(b.shard(7)); err == nil {
			t.Error("Add after the stop: got no error")
		}
		if err := l.Remove(b.Context(), name(0)); err == nil {
			t.Error("Remove after the stop: got no error")
		}
	})
}

// Halt ends handlers of all shards, also of those that are added while it happens, and before Run.
func TestHaltEndsAllShards(t *testing.T) {
	bubble(t, func(b *bundle) {
		all := b.shards(3)
		var begun atomic.Int64
		hang := func(ctx context.Context, _ *listener.Message[job]) error {
			begun.Add(1)
			<-ctx.Done()
			return ctx.Err()
		}
		for i, q := range all {
			b.put(q, i)
		}
		r := b.run(must(shards.New(all, hang, b.options())))
		advance(time.Second)
		if begun.Load() != 3 {
			t.Fatalf("got %d handlers, want 3", begun.Load())
		}
		at := time.Now()
		r.Halt()
		r.Halt()
		if err := <-r.done; err != nil || time.Since(at) > time.Second {
			t.Errorf("Halt: got %v after %v, want nil at once", err, time.Since(at))
		}
		if errs := b.reported(); len(errs) > 0 {
			t.Errorf("OnError: got %v, want nothing", errs)
		}
		for _, q := range all {
			if b.depth(q) != 1 {
				t.Errorf("%v: got depth %d, want the message given back", q.Name(), b.depth(q))
			}
		}
		before := must(shards.New(all, hang, b.options()))
		before.Halt()
		at = time.Now()
		if err := before.Run(b.Context()); err != nil || time.Since(at) > time.Second {
			t.Errorf("Halt before Run: got %v after %v, want nil at once", err, time.Since(at))
		}
		r.stop()
	})
}

// The handlers of all shards together are no more than the slots, and a shard may use them all while the
// others have no work.
func TestShardsShareTheSlots(t *testing.T) {
	bubble(t, func(b *bundle) {
		all := b.shards(4)
		for i := range 400 {
			b.put(all[0], i) // only one has work
		}
		var now, most atomic.Int64
		slow := func(ctx context.Context, m *listener.Message[job]) error {
			n := now.Add(1)
			defer now.Add(-1)
			for old := most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {
			}
			time.Sleep(time.Second)
			return b.handle(ctx, m)
		}
		o := b.options()
		o.Slots = 20
		r := b.run(must(shards.New(all, slow, o)))
		advance(30 * time.Second)
		if got := most.Load(); got < 17 || got > 20 {
			t.Errorf("handlers of one busy shard: got %d, want nearly all of 20 slots", got)
		}
		for i := range 400 {
			b.put(all[1+i%3], 1000+i)
		}
		advance(time.Minute)
		r.mustFinish()
		if got := len(b.jobs()); got != 800 || most.Load() > 20 {
			t.Errorf("got %d jobs and %d handlers at once, want 800 and at most 20", got, most.Load())
		}
	})
}

// A loop that ends at a short batch strands nothing in the other shards: with one event for each and no safety polls, backlogs
// that are larger than the slots are handled.
func TestWokenShardsHandleTheirBacklogs(t *testing.T) {
	bubble(t, func(b *bundle) {
		all, bus := b.shards(4), new(wakeup.Bus)
		o := b.options()
		o.Slots, o.Listener.Wakeups, o.Listener.Fetch.SafetyPoll = 20, bus, -1
		r := b.run(must(shards.New(all, func(ctx context.Context, m *listener.Message[job]) error {
			time.Sleep(50 * time.Millisecond)
			return b.handle(ctx, m)
		}, o)))
		advance(time.Minute)
		for i, q := range all {
			for n := range 5 + 100*i {
				b.put(q, 1000*i+n)
			}
			if err := bus.Publish(b.Context(), q.Name(), 0, time.Time{}); err != nil {
				b.Fatal(err)
			}
		}
		advance(10 * time.Second)
		if got := len(b.jobs()); got != 4*5+600 {
			t.Errorf("got %d jobs handled, want 620", got)
		}
		r.mustFinish()
	})
}

// S-06: shards of one class of jobs, such as long ones, have a pool of their own, or weights in one that they share with
// others: a flood of them leaves the other class its slots.
func TestShardsShareAPoolWithOthers(t *testing.T) {
	for _, c := range []struct {
		what string
		own  bool
		most int64 // handlers of the long jobs
	}{{"a pool of its own", true, 8}, {"a pool for all", false, 12}} {
		bubble(t, func(b *bundle) {
			all := b.shards(3)
			long, short := must(slots.NewShared(&slots.SharedOptions{Slots: 8})), must(slots.NewShared(&slots.SharedOptions{Slots: 16}))
			var other *slots.Member
			if c.own {
				other = short.Member(nil)
			} else {
				long = short
				other = long.Member(&slots.MemberOptions{Reserve: 4})
			}
			var running, most atomic.Int64
			slow := func(ctx context.Context, _ *listener.Message[job]) error {
				n := running.Add(1)
				defer running.Add(-1)
				for old := most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {
				}
				select {
				case <-time.After(time.Minute):
				case <-ctx.Done():
				}
				return ctx.Err()
			}
			for i := range 100 {
				b.put(all[i%2], i)
			}
			o := b.options()
			o.Shared = long
			r := b.run(must(shards.New(all[:2], slow, o)))
			brief := *b.options().Listener
			brief.Slots = other
			ctx, stop := context.WithCancel(b.Context())
			done := make(chan error, 1)
			go func() { done <- listener.New(all[2], b.handle, &brief).Run(ctx) }()
			advance(10 * time.Second)
			b.put(all[2], 1000)
			advance(2 * time.Second)
			if !slices.Equal(b.jobs(), []int{1000}) || most.Load() != c.most {
				t.Errorf("%s: got jobs %v and %d handlers of long ones, want the short job and %d", c.what, b.jobs(), most.Load(), c.most)
			}
			r.Halt()
			r.mustFinish()
			stop()
			if err := <-done; err != nil {
				t.Errorf("%s: Run of the other listener: %v", c.what, err)
			}
		})
	}
}

// A shard whose reserve the pool does not have is refused, and leaves nothing reserved.
func TestAShardForWhichThereIsNoReserveIsRefused(t *testing.T) {
	bubble(t, func(b *bundle) {
		all := b.shards(3)
		o := b.options()
		o.Slots, o.Member = 8, &slots.MemberOptions{Reserve: 3}
		r := b.run(must(shards.New(all[:2], b.handle, o)))
		advance(time.Second)
		if err := r.Add(all[2]); err == nil || !strings.Contains(err.Error(), "test/jobs-2") || !strings.Contains(err.Error(), "more slots") {
			t.Errorf("Add: got %v, want an error that names the shard and says what to do", err)
		}
		if got := len(r.State().Shards); got != 2 {
			t.Errorf("got %d shards, want 2", got)
		}
		r.mustFinish()

		p := must(slots.NewShared(&slots.SharedOptions{Slots: 8}))
		bad := b.options()
		bad.Shared, bad.Member, bad.Listener.Fetch.BatchSize = p, &slots.MemberOptions{Reserve: 8}, 33
		if _, err := shards.New(all, b.handle, bad); err == nil {
			t.Error("a batch size of 33: got no error")
		}
		good := b.options()
		good.Shared, good.Member = p, &slots.MemberOptions{Reserve: 1}
		if _, err := shards.New([]queue.Queue{all[0], all[0]}, b.handle, good); err == nil {
			t.Error("a shard twice: got no error")
		}
		if st := p.State(); len(st.Members) != 0 {
			t.Errorf("after a refusal: got the members %+v, want none", st.Members)
		}
	})
}

func TestAPauseIsOfAllShards(t *testing.T) {
	bubble(t, func(b *bundle) {
		all := b.shards(3)
		l := must(shards.New(all[:2], b.handle, b.options()))
		l.Pause()
		r := b.run(l)
		if err := l.Add(all[2]); err != nil {
			t.Fatal(err)
		}
		for i, q := range all {
			b.put(q, i)
		}
		advance(time.Minute)
		if st := l.State(); len(b.jobs()) != 0 || st.Total.PausedBy != listener.ByProgram || !st.Total.PausedSince.Equal(b.begin) || !st.Ready() {
			t.Errorf("paused: got jobs %v, state %+v; want none, by the program since the start, and ready", b.jobs(), st)
		}
		l.Resume()
		advance(time.Minute)
		if st := l.State(); len(b.jobs()) != 3 || st.Total.PausedBy != listener.NotPaused || !st.Total.PausedSince.IsZero() {
			t.Errorf("resumed: got jobs %v, state %+v; want all three, not paused", b.jobs(), st)
		}
		r.mustFinish()
	})
}

// A panic in OnError ends neither the shard nor the others.
func TestAPanicInOnErrorEndsNothing(t *testing.T) {
	bubble(t, func(b *bundle) {
		all := b.shards(2)
		o := b.options()
		o.Listener.OnError = func(error) { panic("no") }
		denied := &refusing{Queue: all[1], err: unauthorized}
		r := b.run(must(shards.New([]queue.Queue{all[0], denied}, b.handle, o)))
		advance(10 * time.Minute)
		b.put(all[0], 1)
		advance(time.Minute)
		if got := b.jobs(); !slices.Equal(got, []int{1}) {
			t.Errorf("got jobs %v, want 1", got)
		}
		if err := r.finish(); !errors.Is(err, queue.ErrUnauthorized) {
			t.Errorf("Run: got %v, want the refusal", err)
		}
	})
}
