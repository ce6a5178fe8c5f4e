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

// unruly is an error with a method that panics.
type unruly struct {
	method string
	fail   func()
}

func (e *unruly) call(method string) {
	if e.method == method {
		e.fail()
	}
}

func (e *unruly) Error() string { e.call("Error"); return "unruly" }
func (e *unruly) Is(error) bool { e.call("Is"); return false }
func (e *unruly) As(any) bool   { e.call("As"); return false }
func (e *unruly) Unwrap() error { e.call("Unwrap"); return nil }

// wrapped is an error with another underneath.
type wrapped struct{ err error }

func (wrapped) Error() string   { return "wrapped" }
func (w wrapped) Unwrap() error { return w.err }

// An error whose methods panic, such as a nil pointer in a non-nil error, is a failed attempt
// or what it was wrapped in, and all who receive it can call its methods.
func TestAnErrorWhoseMethodsFailKillsNobody(t *testing.T) {
	eachFault(t, func(b *bundle, fail func()) {
		bad := []error{(*unruly)(nil)}
		for _, method := range []string{"Error", "Is", "As", "Unwrap"} {
			bad = append(bad, &unruly{method, fail})
		}
		var returned []error
		for _, err := range bad {
			returned = append(returned, err, wrapped{err}, errors.Join(errors.New("good"), err),
				dispatcher.Retry(time.Second, err), wrapped{dispatcher.Retry(time.Second, err)})
		}
		asked := len(returned)
		for _, err := range bad {
			returned = append(returned, dispatcher.Poison(err), dispatcher.Discard(err))
		}
		for i := range returned {
			b.send(i)
		}
		b.send(1000) // the value of a panic
		var told errorList
		o := options()
		o.Concurrency = 4
		o.OnError = func(err error) { told.add(err); _ = err.Error(); errors.As(err, new(*queue.Error)) }
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
				panic(error((*unruly)(nil)))
			}
			return returned[m.Body.N]
		}, o)
		b.run(l)
		after(10 * time.Minute)
		b.finished()
		st := l.State()
		if st.Succeeded != int64(asked)+1 || st.Retried != int64(asked)+1 || st.Poisoned != int64(len(bad)) || st.Discarded != int64(len(bad)) {
			b.Errorf("state %+v, want %d retries and %d each of poison and discard", st, asked+1, len(bad))
		}
		text := told.text()
		if !strings.Contains(text, "a nil *listener.unruly, which as an error is not nil") || !strings.Contains(text, "type *listener.unruly whose methods") {
			b.Errorf("nobody was told what is wrong: %s", text)
		}
		for _, hook := range []string{"OnError", "Observer.Finished", "Logger"} {
			if e := told.hook(hook); e != nil {
				b.Errorf("a hook was given an error that it cannot ask: %v", e)
			}
		}
		for _, m := range b.poisoned() {
			if r, err := poison.ParseRecord(m.Text); err != nil || !strings.Contains(r.Error, "*listener.unruly") {
				b.Errorf("record %+v, %v", r, err)
			}
		}
	})
}

// The same holds in All and in Batch, which call methods of errors themselves: the other
// handlers are called, and the other messages of the batch settled.
func TestAnErrorWhoseMethodsFailInAllAndBatch(t *testing.T) {
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
						return (*unruly)(nil)
					}
					return &unruly{"As", fail}
				}), options())
				b.run(l)
				after(10 * time.Minute)
				b.finished()
				if st := l.State(); st.Succeeded != 40 || st.Retried != 30 {
					b.Errorf("state %+v", st)
				}
			})
		})
	}
}

// An error whose methods panic only after some calls affects no other message either, also
// while the worker stops.
func TestAnErrorWhoseMethodsFailNowAndThen(t *testing.T) {
	test := func(method string, after int, explicit, stopping bool) {
		bubble(t, func(b *bundle) {
			b.put(1)
			var told errorList
			o := options()
			o.OnError = told.add
			o.Poison.MaxAttempts = 1
			o.Grace = -1
			l := New(b.queue, func(ctx context.Context, _ *Message[job]) error {
				if stopping {
					<-ctx.Done()
				}
				calls := 0
				err := error(&unruly{method, func() {
					if calls++; calls > after {
						panic("now and then")
					}
				}})
				if explicit {
					err = dispatcher.Poison(err)
				}
				return err
			}, o)
			b.run(l)
			time.Sleep(time.Second)
			b.finished()
			poisoned, back := int64(1), int64(0)
			if stopping && !explicit {
				poisoned, back = 0, 1
			}
			if st := l.State(); st.GivenBack != back || st.Poisoned != poisoned {
				b.Errorf("%s fails after %d calls: state %+v", method, after, st)
			}
			if e := told.hook("Logger"); e != nil {
				b.Errorf("%s fails after %d calls, and the logger is blamed: %v", method, after, e)
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
func TestACodecWhoseErrorsFail(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.put(10)
		o := options()
		o.Codec = untruthful{}
		l := New(b.queue, nothing, o)
		b.run(l)
		after(time.Minute)
		b.finished()
		if st := l.State(); st.Poisoned != 10 {
			b.Errorf("state %+v", st)
		}
		if r, err := poison.ParseRecord(b.poisoned()[0].Text); err != nil || !strings.Contains(r.Error, "codec returned a nil *listener.unruly") {
			b.Errorf("record %+v, %v", r, err)
		}
	})
}

// untruthful is a codec that returns a nil pointer as its error.
type untruthful struct{ codec.Codec[job] }

func (untruthful) Decode([]byte) (job, error) { return job{}, (*unruly)(nil) }
