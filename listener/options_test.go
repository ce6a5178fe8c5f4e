package listener

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/codec"
	"github.com/millrace/millrace/dispatcher"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/localqueue"
	"github.com/millrace/millrace/wakeup"
)

// Durations without a unit are refused. Timeout: 30 compiles and means 30 ns, so that every
// handler would time out; Idle: {Max: 30} would poll in a busy loop.
func TestADurationWithoutAUnitIsRefused(t *testing.T) {
	q := must(localqueue.New(nil)).Queue(queue.Name{Account: "acme", Queue: "orders"})
	h := func(context.Context, *Message[job]) error { return nil }
	for name, o := range map[string]*Options[job]{
		"handler time-out":    {Timeout: 30},
		"Lease.SettleTimeout": {Lease: LeaseOptions{SettleTimeout: 30}},
		"grace":               {Grace: 30},
		"Fetch.Idle.Max":      {Fetch: FetchOptions{Idle: Idle{Max: 30}}},
		"Fetch.SafetyPoll":    {Fetch: FetchOptions{SafetyPoll: 30}},
	} {
		err := New(q, h, o).Run(t.Context())
		if err == nil || !strings.Contains(err.Error(), name+" 30ns") || !strings.Contains(err.Error(), "30*time.Second") {
			t.Errorf("%s: got error %v, want one with the option, 30ns and 30*time.Second", name, err)
		}
	}
	ended, end := context.WithCancel(t.Context())
	end()
	short := &Options[job]{Timeout: time.Millisecond, Lease: LeaseOptions{SettleTimeout: time.Millisecond}, Grace: time.Millisecond}
	if err := New(q, h, short).Run(ended); err != nil {
		t.Errorf("short durations with a unit: got error %v, want nil", err)
	}
}

// Every option reaches the session, its dispatcher or the adapter of the jobs; otherwise it
// would have no effect.
func TestEveryOptionIsPassedOn(t *testing.T) {
	var o Options[job]
	fill(t, reflect.ValueOf(&o).Elem())
	o.Codec = codec.JSON[job]()
	o.Claims = struct{ Claims }{}
	o.Duplicates = struct{ Duplicates }{}
	o.Wakeups = struct{ wakeup.Source }{}
	o.Slots = struct{ dispatcher.Slots }{}
	o.Logger = slog.New(slog.DiscardHandler)
	jobs := reflect.ValueOf(o.jobs(func(context.Context, *Message[job]) error { return nil }))
	session := reflect.ValueOf(o.session())
	passed := func(name string) {
		got := session.FieldByName(name)
		if !got.IsValid() {
			got = jobs.FieldByName(name)
		}
		if !got.IsValid() || got.IsZero() {
			t.Errorf("%s: got it zero, want it passed on", name)
		}
	}
	for field := range reflect.TypeFor[Options[job]]().Fields() {
		if field.Name != "Lease" && field.Name != "Wire" { // the dispatcher has their fields
			passed(field.Name)
		}
	}
	for _, group := range []reflect.Type{reflect.TypeFor[LeaseOptions](), reflect.TypeFor[WireOptions]()} {
		for field := range group.Fields() {
			passed(field.Name)
		}
	}
	for _, name := range []string{"BatchSize", "MinFetch", "Linger"} { // of Fetch, for the dispatcher
		passed(name)
	}
	if observer := o.session().Options.Observer; observer.Settled == nil {
		t.Error("observer of the dispatcher: got none, want one")
	}
	for field := range jobs.Type().Fields() {
		if jobs.FieldByIndex(field.Index).IsZero() {
			t.Errorf("%s of the adapter: got it zero, want it passed on", field.Name)
		}
	}
}

// fill sets all fields of a struct to values other than zero, except pointers and interfaces.
func fill(t *testing.T, v reflect.Value) {
	t.Helper()
	for i := range v.NumField() {
		switch f := v.Field(i); f.Kind() {
		case reflect.Bool:
			f.SetBool(true)
		case reflect.Int, reflect.Int64:
			f.SetInt(1)
		case reflect.Uint64:
			f.SetUint(1)
		case reflect.String:
			f.SetString("text")
		case reflect.Func:
			f.Set(reflect.MakeFunc(f.Type(), func([]reflect.Value) []reflect.Value { return nil }))
		case reflect.Slice:
			f.Set(reflect.MakeSlice(f.Type(), 1, 1))
		case reflect.Struct:
			fill(t, f)
		case reflect.Pointer, reflect.Interface:
		default:
			t.Fatalf("no value for %v", v.Type().Field(i))
		}
	}
}

// What would delete jobs unhandled, or panic for each of them, is refused before the first.
func TestAHandlerThatDoesNothingIsRefused(t *testing.T) {
	h := func(context.Context, *Message[job]) error { return nil }
	batch := func(context.Context, []*Message[job]) []error { return nil }
	same := func(h Handler[job]) Handler[job] { return h }
	q := must(localqueue.New(nil)).Queue(queue.Name{Account: "acme", Queue: "orders"})
	ended, end := context.WithCancel(t.Context())
	end()
	for name, handler := range map[string]Handler[job]{
		"nil": nil, "All of none": All[job](), "All of nil": All(h, nil), "EachItem of nil": EachItem[job](nil, 2), "EachItem of 0": EachItem(h, 0),
		"EachItem of -1": EachItem(h, -1), "Batch of nil": Batch[job](nil, 2, 0), "Batch of 0": Batch(batch, 0, 0), "Chain of nil": Chain(nil, same),
		"Chain with nil": Chain(h, same, nil), "nil within": Chain(EachItem(All(h, Chain(h, nil)), 2), same),
	} {
		l := New(q, handler, nil)
		for what, err := range map[string]error{"Check": l.Check(), "Run": l.Run(ended)} {
			if err == nil || !strings.Contains(err.Error(), "needs a handler") {
				t.Errorf("%s, %s: got %v, want that a handler is needed", name, what, err)
			}
		}
	}
	through := func(ctx context.Context, _ Delivery, next func(context.Context) error) error { return next(ctx) }
	err := New(q, h, &Options[job]{Interceptors: []Interceptor{through, nil}}).Check()
	if err == nil || !strings.Contains(err.Error(), "interceptor 2 of 2 is nil") {
		t.Errorf("got %v, want the second interceptor named", err)
	}
	if err := New(q, Chain(All(h, EachItem(Batch(batch, 1, 0), 1)), same), &Options[job]{Interceptors: []Interceptor{through}}).Check(); err != nil {
		t.Errorf("got %v, want no error", err)
	}
}

// unknownSlots have a size and cannot be taken.
type unknownSlots struct{}

func (unknownSlots) Size() (int, error) { return 8, nil }

func TestSlotsThatCannotBeTakenAreRefused(t *testing.T) {
	q := must(localqueue.New(nil)).Queue(queue.Name{Account: "acme", Queue: "orders"})
	err := New(q, func(context.Context, *Message[job]) error { return nil }, &Options[job]{Slots: unknownSlots{}}).Check()
	if err == nil || !strings.Contains(err.Error(), "listener.unknownSlots: make it with package dispatcher/slots") {
		t.Errorf("got %v, want that package dispatcher/slots makes them", err)
	}
}

// A name that the service would refuse is found without a request: that of the queue, and that of
// the poison queue.
func TestCheckRefusesAnInvalidName(t *testing.T) {
	engine := must(localqueue.New(nil))
	named := func(name string) queue.Queue { return engine.Queue(queue.Name{Account: "acme", Queue: name}) }
	h := func(context.Context, *Message[job]) error { return nil }
	ended, end := context.WithCancel(t.Context())
	end()
	for _, name := range []string{"Orders", "or", "", "a--b", "-orders"} {
		for what, l := range map[string]*Listener[job]{
			"queue":        New(named(name), h, nil),
			"poison queue": New(named("orders"), h, &Options[job]{Poison: PoisonPolicy{Queue: named(name)}}),
		} {
			err := l.Check()
			if !errors.Is(err, queue.ErrInvalid) || !strings.Contains(err.Error(), fmt.Sprintf("queue name %q", name)) {
				t.Errorf("%s %q: got %v, want an invalid name", what, name, err)
			}
			if run := l.Run(ended); fmt.Sprint(run) != fmt.Sprint(err) || l.State().Requests != 0 {
				t.Errorf("%s %q: Run returned %v after %d requests, want the error of Check and none", what, name, run, l.State().Requests)
			}
		}
	}
}
