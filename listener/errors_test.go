package listener

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/codec"
	"github.com/millrace/millrace/dispatcher"
	"github.com/millrace/millrace/poison"
	"github.com/millrace/millrace/queue"
)

// brokenError is an error with a method that fails.
type brokenError struct {
	method string
	fail   func()
}

func (e *brokenError) call(method string) {
	if e.method == method {
		e.fail()
	}
}

func (e *brokenError) Error() string { e.call("Error"); return "broken" }
func (e *brokenError) Is(error) bool { e.call("Is"); return false }
func (e *brokenError) As(any) bool   { e.call("As"); return false }
func (e *brokenError) Unwrap() error { e.call("Unwrap"); return nil }

// wrapped is an error with another underneath.
type wrapped struct{ err error }

func (wrapped) Error() string   { return "wrapped" }
func (w wrapped) Unwrap() error { return w.err }

// An error whose methods panic, such as a nil pointer in a non-nil error, is a failed attempt,
// or the outcome that it was wrapped in. Hooks that receive it can call its methods.
func TestAnErrorWhoseMethodsPanicStopsNothing(t *testing.T) {
	eachFault(t, func(b *bundle, fail func()) {
		bad := []error{(*brokenError)(nil)}
		for _, method := range []string{"Error", "Is", "As", "Unwrap"} {
			bad = append(bad, &brokenError{method, fail})
		}
		var returned []error
		for _, err := range bad {
			returned = append(returned, err, wrapped{err}, errors.Join(errors.New("good"), err),
				dispatcher.Retry(time.Second, err), wrapped{dispatcher.Retry(time.Second, err)})
		}
		retried := len(returned)
		for _, err := range bad {
			returned = append(returned, dispatcher.Poison(err), dispatcher.Discard(err))
		}
		for i := range returned {
			b.send(i)
		}
		b.send(1000) // the value of a panic
		var reported errorList
		o := options()
		o.Concurrency = 4
		o.OnError = func(err error) { reported.add(err); _ = err.Error(); errors.As(err, new(*queue.Error)) }
		o.Observer.Finished = func(_ dispatcher.Delivery, _ time.Duration, err error) {
			if err != nil {
				_ = err.Error()
				errors.As(err, new(*queue.Error))
			}
		}
		l := New(b.queue, func(_ context.Context, m *Message[job]) error {
			switch {
			case m.Attempt > 1:
				return nil
			case m.Body.N == 1000:
				panic(error((*brokenError)(nil)))
			}
			return returned[m.Body.N]
		}, o)
		b.run(l)
		advance(10 * time.Minute)
		b.mustFinish()
		st := l.State()
		if st.Succeeded != int64(retried)+1 || st.Retried != int64(retried)+1 || st.Poisoned != int64(len(bad)) || st.Discarded != int64(len(bad)) {
			b.Errorf("got state %+v, want %d retried and succeeded, %d each poisoned and discarded", st, retried+1, len(bad))
		}
		text := reported.text()
		for _, want := range []string{
			"a nil *listener.brokenError, which as an error is not nil", "type *listener.brokenError whose methods",
		} {
			if !strings.Contains(text, want) {
				b.Errorf("got errors %s, want %q in them", text, want)
			}
		}
		for _, hook := range []string{"OnError", "Observer.Finished", "Logger"} {
			if e := reported.hook(hook); e != nil {
				b.Errorf("%s: got the failure %v, want none: a hook must be able to call the methods of an error", hook, e)
			}
		}
		for _, m := range b.poisoned() {
			if r, err := poison.ParseRecord(m.Text); err != nil || !strings.Contains(r.Error, "*listener.brokenError") {
				b.Errorf("got record %+v, %v; want Error with \"*listener.brokenError\", no error", r, err)
			}
		}
	})
}

// The same holds in All and in Batch, which call methods of errors themselves: the other
// handlers are called, and the other messages of the batch settled.
func TestAnErrorWhoseMethodsPanicInAllAndBatch(t *testing.T) {
	for name, wrap := range map[string]func(Handler[job]) Handler[job]{
		"all": func(h Handler[job]) Handler[job] { return dispatcher.All(h, nothing, h) },
		"batch": func(h Handler[job]) Handler[job] {
			return dispatcher.Batch(func(ctx context.Context, ms []*Message[job]) (results []error) {
				for _, m := range ms {
					results = append(results, h(ctx, m))
				}
				return results
			}, 4, time.Second)
		},
	} {
		t.Run(name, func(t *testing.T) {
			eachFault(t, func(b *bundle, fail func()) {
				b.put(40)
				l := New(b.queue, wrap(func(_ context.Context, m *Message[job]) error {
					switch {
					case m.Attempt > 1 || m.Body.N%4 == 0:
						return nil
					case m.Body.N%4 == 1:
						return (*brokenError)(nil)
					}
					return &brokenError{"As", fail}
				}), options())
				b.run(l)
				advance(10 * time.Minute)
				b.mustFinish()
				if st := l.State(); st.Succeeded != 40 || st.Retried != 30 {
					b.Errorf("got state %+v; want Succeeded 40, Retried 30", st)
				}
			})
		})
	}
}

// An error whose methods panic only after some calls affects no other message either, also
// while the worker stops.
func TestAnErrorWhoseMethodsPanicAfterSomeCalls(t *testing.T) {
	test := func(method string, after int, explicit, stopping bool) {
		bubble(t, func(b *bundle) {
			b.put(1)
			var reported errorList
			o := options()
			o.OnError = reported.add
			o.Poison.MaxAttempts = 1
			o.Grace = -1
			l := New(b.queue, func(ctx context.Context, _ *Message[job]) error {
				if stopping {
					<-ctx.Done()
				}
				calls := 0
				err := error(&brokenError{method, func() {
					if calls++; calls > after {
						panic("after some calls")
					}
				}})
				if explicit {
					err = dispatcher.Poison(err)
				}
				return err
			}, o)
			b.run(l)
			time.Sleep(time.Second)
			b.mustFinish()
			poisoned, back := int64(1), int64(0)
			if stopping && !explicit {
				poisoned, back = 0, 1
			}
			if st := l.State(); st.GivenBack != back || st.Poisoned != poisoned {
				b.Errorf("%s fails after %d calls: got state %+v; want GivenBack %v, Poisoned %v", method, after, st, back, poisoned)
			}
			if e := reported.hook("Logger"); e != nil {
				b.Errorf("%s fails after %d calls: got the failure %v of the logger, want none", method, after, e)
			}
		})
	}
	for _, method := range []string{"Error", "Is", "As", "Unwrap"} {
		for after := range 8 {
			for _, explicit := range []bool{false, true} {
				test(method, after, explicit, false)
				test(method, after, explicit, true)
			}
		}
	}
}

// The same holds for a codec's error.
func TestACodecThatReturnsANilPointerAsError(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.put(10)
		o := options()
		o.Codec = nilErrorCodec{}
		l := New(b.queue, nothing, o)
		b.run(l)
		advance(time.Minute)
		b.mustFinish()
		if st := l.State(); st.Poisoned != 10 {
			b.Errorf("got state %+v; want Poisoned 10", st)
		}
		if r, err := poison.ParseRecord(b.poisoned()[0].Text); err != nil || !strings.Contains(r.Error, "codec returned a nil *listener.brokenError") {
			b.Errorf("got record %+v, %v; want Error with \"codec returned a nil *listener.brokenError\", no error", r, err)
		}
	})
}

// nilErrorCodec is a codec that returns a nil pointer as its error.
type nilErrorCodec struct{ codec.Codec[job] }

func (nilErrorCodec) Decode([]byte) (job, error) { return job{}, (*brokenError)(nil) }
