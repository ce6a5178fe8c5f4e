package millrace

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/blob"
	"github.com/millrace/millrace/blob/azureblob"
	"github.com/millrace/millrace/codec/claimcheck"
	"github.com/millrace/millrace/dispatcher"
	"github.com/millrace/millrace/dispatcher/dedupe"
	"github.com/millrace/millrace/dispatcher/perkey"
	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/listener/shards"
	"github.com/millrace/millrace/poison"
	"github.com/millrace/millrace/producer"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/azurequeue"
	"github.com/millrace/millrace/queue/azurequeue/http1"
	"github.com/millrace/millrace/queue/limits"
	"github.com/millrace/millrace/queue/localqueue"
	"github.com/millrace/millrace/queue/paired"
	"github.com/millrace/millrace/queue/sharded"
	"github.com/millrace/millrace/scaling"
	"github.com/millrace/millrace/scaling/agent"
	"github.com/millrace/millrace/scaling/agent/processes"
	"github.com/millrace/millrace/scaling/beacon"
	"github.com/millrace/millrace/table/aztable"
	"github.com/millrace/millrace/table/filetable"
)

// durations has a use for each exported field that is a duration, and what is too short for it.
func durations(t *testing.T) map[string]durationUse {
	q := must(localqueue.New(nil)).Queue(queue.Name{Account: "acme", Queue: "orders"})
	if err := q.Create(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	handler := func(context.Context, *listener.Message[string]) error { return nil }
	listens := func(o listener.Options[string]) error { return listener.New(q, handler, &o).Check() }
	dispatches := func(o dispatcher.Options) error {
		_, err := dispatcher.New(q, dispatcher.Jobs[string]{Handler: handler}, &o)
		return err
	}
	purges := func(o poison.Options) error { _, err := poison.Purge(t.Context(), q, &o); return err }
	redrives := func(o poison.Options) error {
		_, err := poison.Redrive(t.Context(), q, &o)
		return err
	}
	lists := func(o poison.Options) (err error) {
		for _, one := range poison.List(t.Context(), q, &o) {
			err = one
		}
		return err
	}
	sends := func(o producer.SendOptions) error {
		_, err := producer.New[string](q, nil).Send(t.Context(), "job", &o)
		return err
	}
	enqueues := func(o queue.EnqueueOptions) error { _, err := q.Enqueue(t.Context(), "job", &o); return err }
	pairs := func(o paired.Options) error {
		p, err := paired.New(q, q.Sibling("-other"), &o)
		if err != nil {
			return err
		}
		defer p.Close()
		return p.Pair(t.Context())
	}
	syphoned := must(paired.New(q, q.Sibling("-other"), nil))
	syphons := func(o paired.SyphonOptions) error {
		_, err := paired.NewSyphon([]*paired.Queue{syphoned}, &o)
		return err
	}
	const second, millisecond = time.Second, time.Millisecond
	return map[string]durationUse{
		"HTTPOptions.PreStop": {millisecond, func(d time.Duration) error {
			return HTTP(&http.Server{Addr: "no address"}, &HTTPOptions{PreStop: d}).Run(t.Context()) //nolint:gosec // it never serves
		}},
		"blob/azureblob.Options.RetryFor": {millisecond, func(d time.Duration) error {
			_, err := azureblob.Open(emulatorLocation, &azureblob.Options{RetryFor: d})
			return err
		}},
		"blob/azureblob.Options.TryTimeout": {millisecond, func(d time.Duration) error {
			_, err := azureblob.Open(emulatorLocation, &azureblob.Options{TryTimeout: d})
			return err
		}},
		"codec/claimcheck.Options.Retention": {millisecond, func(d time.Duration) error {
			_, err := claimcheck.New(blob.Memory(), "bodies", &claimcheck.Options{Retention: d})
			return err
		}},
		"codec/claimcheck.Options.Timeout": {millisecond, func(d time.Duration) error {
			_, err := claimcheck.New(blob.Memory(), "bodies", &claimcheck.Options{Timeout: d})
			return err
		}},
		"dispatcher.KindOptions.Timeout": {millisecond, func(d time.Duration) error {
			k := dispatcher.Jobs[string]{Handler: handler}.Kind("order", &dispatcher.KindOptions{Timeout: d})
			_, err := dispatcher.NewKinds(q, []dispatcher.Kind{k}, nil)
			return err
		}},
		"dispatcher.Options.Linger":        {millisecond, func(d time.Duration) error { return dispatches(dispatcher.Options{Linger: d}) }},
		"dispatcher.Options.SettleTimeout": {millisecond, func(d time.Duration) error { return dispatches(dispatcher.Options{SettleTimeout: d}) }},
		"dispatcher.Options.StuckAfter":    {millisecond, func(d time.Duration) error { return dispatches(dispatcher.Options{StuckAfter: d}) }},
		"dispatcher.Options.Timeout":       {millisecond, func(d time.Duration) error { return dispatches(dispatcher.Options{Timeout: d}) }},
		"dispatcher.Visibility.First": {second, func(d time.Duration) error {
			return dispatches(dispatcher.Options{Visibility: dispatcher.Visibility{First: d}})
		}},
		"dispatcher.Visibility.Min": {second, func(d time.Duration) error {
			return dispatches(dispatcher.Options{Visibility: dispatcher.Visibility{Min: d}})
		}},
		"dispatcher.Visibility.Max": {second, func(d time.Duration) error {
			return dispatches(dispatcher.Options{Visibility: dispatcher.Visibility{Max: d}})
		}},
		"dispatcher/dedupe.Options.Retention": {millisecond, func(d time.Duration) error { _, err := dedupe.New(&dedupe.Options{Retention: d}); return err }},
		"dispatcher/dedupe.Options.Timeout":   {millisecond, func(d time.Duration) error { _, err := dedupe.New(&dedupe.Options{Timeout: d}); return err }},
		"dispatcher/perkey.Options.MaxDelay":  {second, func(d time.Duration) error { _, err := perkey.New(&perkey.Options{MaxDelay: d}); return err }},
		"dispatcher/perkey.Options.Wait":      {millisecond, func(d time.Duration) error { _, err := perkey.New(&perkey.Options{Wait: d}); return err }},

		"listener.Loops.Pause": {millisecond, func(d time.Duration) error {
			return listens(listener.Options[string]{Fetch: listener.FetchOptions{Loops: listener.Loops{Pause: d}}})
		}},
		"listener.Options.Grace": {millisecond, func(d time.Duration) error { return listens(listener.Options[string]{Grace: d}) }},
		"listener.FetchOptions.Linger": {millisecond, func(d time.Duration) error {
			return listens(listener.Options[string]{Fetch: listener.FetchOptions{Linger: d}})
		}},
		"listener.FetchOptions.SafetyPoll": {millisecond, func(d time.Duration) error {
			return listens(listener.Options[string]{Fetch: listener.FetchOptions{SafetyPoll: d}})
		}},
		"listener.LeaseOptions.SettleTimeout": {millisecond, func(d time.Duration) error {
			return listens(listener.Options[string]{Lease: listener.LeaseOptions{SettleTimeout: d}})
		}},
		"listener.LeaseOptions.StuckAfter": {millisecond, func(d time.Duration) error {
			return listens(listener.Options[string]{Lease: listener.LeaseOptions{StuckAfter: d}})
		}},
		"listener.Options.Timeout": {millisecond, func(d time.Duration) error { return listens(listener.Options[string]{Timeout: d}) }},
		"listener/shards.Options.Settle": {millisecond, func(d time.Duration) error {
			_, err := shards.New([]queue.Queue{q}, handler, &shards.Options[string]{Settle: d})
			return err
		}},

		"poison.Filter.Newer": {millisecond, func(d time.Duration) error { return lists(poison.Options{Filter: poison.Filter{Newer: d}}) }},
		"poison.Filter.Older": {millisecond, func(d time.Duration) error { return purges(poison.Options{Filter: poison.Filter{Older: d}}) }},
		"poison.Options.Lease": {second, func(d time.Duration) error {
			o := poison.Options{Lease: d}
			if list, purge, redrive := lists(o), purges(o), redrives(o); list != nil && purge != nil {
				return redrive
			}
			return nil
		}},
		"poison.Options.TTL": {second, func(d time.Duration) error { return redrives(poison.Options{TTL: d}) }},

		"producer.Options.Timeout": {millisecond, func(d time.Duration) error {
			_, err := producer.New(q, &producer.Options[string]{Timeout: d}).Send(t.Context(), "job", nil)
			return err
		}},
		"producer.SendOptions.Delay": {second, func(d time.Duration) error { return sends(producer.SendOptions{Delay: d}) }},
		"producer.SendOptions.TTL":   {second, func(d time.Duration) error { return sends(producer.SendOptions{TTL: d}) }},

		"queue.EnqueueOptions.Delay": {second, func(d time.Duration) error { return enqueues(queue.EnqueueOptions{Delay: d}) }},
		"queue.EnqueueOptions.TTL":   {second, func(d time.Duration) error { return enqueues(queue.EnqueueOptions{TTL: d}) }},
		"queue/azurequeue.Options.TryTimeout": {millisecond, func(d time.Duration) error {
			_, err := azurequeue.Open(emulatorLocation, "orders", &azurequeue.Options{TryTimeout: d})
			return err
		}},
		"queue/azurequeue/http1.Options.IdleTimeout": {millisecond, func(d time.Duration) error { _, err := http1.New(&http1.Options{IdleTimeout: d}); return err }},
		"queue/limits.ProcessOptions.Burst": {millisecond, func(d time.Duration) error {
			_, err := limits.NewProcess(&limits.ProcessOptions{Requests: 1, Burst: d})
			return err
		}},
		"queue/limits.Rate.Window": {millisecond, func(d time.Duration) error {
			_, err := limits.Rate{Jobs: 100, Window: d}.Open(t.Context(), q)
			return err
		}},
		"queue/localqueue.Options.DeletingFor": {millisecond, func(d time.Duration) error {
			_, err := localqueue.New(&localqueue.Options{DeletingFor: d})
			return err
		}},
		"queue/paired.Options.FailoverInterval": {millisecond, func(d time.Duration) error { return pairs(paired.Options{FailoverInterval: d}) }},
		"queue/paired.Options.ProbeInterval":    {millisecond, func(d time.Duration) error { return pairs(paired.Options{ProbeInterval: d}) }},
		"queue/paired.SyphonOptions.Grace":      {millisecond, func(d time.Duration) error { return syphons(paired.SyphonOptions{Grace: d}) }},
		"queue/paired.SyphonOptions.Lease":      {second, func(d time.Duration) error { return syphons(paired.SyphonOptions{Lease: d}) }},
		"queue/paired.SyphonOptions.MinPoll":    {millisecond, func(d time.Duration) error { return syphons(paired.SyphonOptions{MinPoll: d}) }},
		"queue/paired.SyphonOptions.MaxPoll": {millisecond, func(d time.Duration) error {
			return syphons(paired.SyphonOptions{MinPoll: millisecond, MaxPoll: d})
		}},
		"queue/sharded.Options.DepthEvery": {millisecond, func(d time.Duration) error {
			_, err := sharded.New([]queue.Queue{q}, &sharded.Options{DepthEvery: d})
			return err
		}},

		"listener.BeaconOptions.Interval": {millisecond, func(d time.Duration) error {
			return listens(listener.Options[string]{Beacon: listener.BeaconOptions{Queue: q.Sibling("-control"), Interval: d}})
		}},
		"listener.Idle.Max": {millisecond, func(d time.Duration) error {
			return listens(listener.Options[string]{Fetch: listener.FetchOptions{Idle: listener.Idle{Max: d}}})
		}},
		"listener.Idle.Min": {millisecond, func(d time.Duration) error {
			return listens(listener.Options[string]{Fetch: listener.FetchOptions{Idle: listener.Idle{Min: d}}})
		}},
		"scaling.Policy.DownAfter": {millisecond, func(d time.Duration) error { return scaling.Policy{DownAfter: d}.Check() }},
		"scaling.Policy.Handling":  {millisecond, func(d time.Duration) error { return scaling.Policy{Handling: d}.Check() }},
		"scaling.Policy.Start":     {millisecond, func(d time.Duration) error { return scaling.Policy{Start: d}.Check() }},
		"scaling.Policy.Target":    {millisecond, func(d time.Duration) error { return scaling.Policy{Target: d}.Check() }},
		"scaling.Policy.Wait":      {millisecond, func(d time.Duration) error { return scaling.Policy{Wait: d}.Check() }},
		"scaling/agent.Options.Interval": {millisecond, func(d time.Duration) error {
			_, err := agent.New(nil, &agent.Options{Interval: d})
			return mentions(err, "Interval")
		}},
		"scaling/agent/processes.Options.Grace": {millisecond, func(d time.Duration) error {
			_, err := processes.New(&processes.Options{Grace: d})
			return mentions(err, "Grace")
		}},
		"scaling/beacon.Options.Interval": {millisecond, func(d time.Duration) error {
			_, err := beacon.NewPublisher(q.Name(), func() beacon.Report { return beacon.Report{} }, func(error) {}, &beacon.Options{Queue: q.Sibling("-control"), Interval: d})
			return err
		}},
		"table/aztable.Options.RetryFor": {millisecond, func(d time.Duration) error {
			_, err := aztable.Open(emulatorLocation, "orders", &aztable.Options{RetryFor: d})
			return err
		}},
		"table/aztable.Options.TryTimeout": {millisecond, func(d time.Duration) error {
			_, err := aztable.Open(emulatorLocation, "orders", &aztable.Options{TryTimeout: d})
			return err
		}},
		"table/filetable.Options.Wait": {millisecond, func(d time.Duration) error {
			_, err := filetable.Open(t.TempDir(), &filetable.Options{Wait: d}) // a directory is no file
			return mentions(err, "Wait")
		}},
	}
}

// mentions returns the error if it names the field: others are of what the test leaves out.
func mentions(err error, field string) error {
	if err != nil && strings.Contains(err.Error(), field) {
		return err
	}
	return nil
}

type durationUse struct {
	least time.Duration // what is shorter is refused
	use   func(time.Duration) error
}

const emulatorLocation = "UseDevelopmentStorage=true"

// notGiven are the durations that Millrace reports, or that only tests set.
var notGiven = map[string]bool{
	"dispatcher.DeliveryError.Delay": true, "dispatcher.Result.Delay": true, "dispatcher.StuckError.For": true,
	"dispatcher/perkey.State.Longest": true, "listener.Poll.Took": true, "listener.State.Visibility": true,
	"listener/shards.Error.Again": true, "millracetest.Result.Delay": true, "queue.Error.RetryAfter": true,
	"scaling/beacon.Report.Next": true, "scaling/beacon.Report.Put": true, "scaling/beacon.Report.Up": true,

	"emulator.Fault.Delay": true, "emulator.Options.Delay": true, "wakeup/wakeuptest.Harness.DueWithin": true,
	"queue/faultqueue.Call.At": true, "queue/faultqueue.Call.Took": true, "queue/faultqueue.Options.Skew": true,
	"queue/faultqueue.Phase.For": true, "queue/faultqueue.Phase.From": true, "queue/faultqueue.Phase.Skew": true,
	"queue/faultqueue.Range.Max": true, "queue/faultqueue.Range.Min": true,
	"queue/faultqueue.Window.For": true, "queue/faultqueue.Window.Within": true,
}

// TestADurationWithoutAUnitIsRefused finds the fields of all public packages that are durations. Each
// must be in the table above, and refuse what lacks a unit before anything is sent.
func TestADurationWithoutAUnitIsRefused(t *testing.T) {
	uses, unused := durations(t), map[string]bool{}
	for name := range uses {
		unused[name] = true
	}
	for _, p := range loadPublic(t) {
		for _, one := range p.identifiers() {
			if !strings.Contains(one.line, ", field ") || !strings.HasSuffix(one.line, " time.Duration") || strings.Contains(one.line, "func(") {
				continue
			}
			name := strings.TrimPrefix(one.name, "millrace.")
			delete(unused, name)
			u, given := uses[name]
			switch {
			case given == notGiven[name]:
				t.Errorf("%s: add a use to durations, or an entry to notGiven if nobody gives it to Millrace", name)
			case given:
				for _, d := range []time.Duration{1, 30, u.least - 1} {
					if u.use(d) == nil {
						t.Errorf("%s: %v: got no error, want one", name, d)
					}
				}
				if err := u.use(30); err != nil && !strings.Contains(err.Error(), "30ns") {
					t.Errorf("%s: 30 ns: got %v, want an error that says so", name, err)
				}
			}
		}
	}
	for name := range unused {
		t.Errorf("%s is no duration of a public package: delete its use", name)
	}
}

// must returns the value of a constructor that must not fail.
func must[T any](made T, err error) T {
	if err != nil {
		panic(err)
	}
	return made
}
