package kinds_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/codec"
	"github.com/millrace/millrace/internal/envelope"
	"github.com/millrace/millrace/kinds"
	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/producer"
	"github.com/millrace/millrace/queue"
)

// Mistakes in kinds and their options are found before anything is sent, all of them at once.
func TestMistakesAreRefusedBeforeAnythingIsSent(t *testing.T) {
	b := setup(t)
	nothing := handler[order](b, nil)
	for _, c := range []struct {
		name  string
		kinds []listener.Kind
		set   func(*listener.Options[any])
		want  []string
	}{
		{"no kinds", nil, nil, []string{"at least one kind is required"}},
		{"twice", []listener.Kind{orders.Handle(nothing, nil), orders.Handle(nothing, nil)}, nil, []string{`the kind "order" is there twice`}},
		{"no name twice", []listener.Kind{unnamed.Handle(nothing, nil), unnamed.Handle(nothing, nil)}, nil, []string{"the kind without a name is there twice"}},
		{"several", []listener.Kind{orders.Handle(nil, &kinds.Options{Timeout: 30, MaxAttempts: -1})}, nil,
			[]string{`the kind "order" needs a handler`, "30ns is shorter", "30*time.Second", "-1 attempts"}},
		{"zero kind", []listener.Kind{{}}, nil, []string{"the kind without a name needs a handler"}},
		{"name", []listener.Kind{kinds.Kind[order]{Name: "a\nb"}.Handle(nothing, nil)}, nil, []string{"control character"}},
		{"long name", []listener.Kind{kinds.Kind[order]{Name: strings.Repeat("x", 300)}.Handle(nothing, nil)}, nil, []string{"the kind has 300 bytes"}},
		{"codec", []listener.Kind{orders.Handle(nothing, nil)}, func(o *listener.Options[any]) { o.Codec = codec.JSON[any]() }, []string{"each kind has its codec"}},
		{"time-out", []listener.Kind{orders.Handle(nothing, nil)},
			func(o *listener.Options[any]) {
				o.TimeoutFor = func(*listener.Message[any]) time.Duration { return 0 }
			}, []string{"each kind has its codec and its Timeout"}},
		{"format", []listener.Kind{orders.Handle(nothing, nil)}, func(o *listener.Options[any]) { o.Wire.Format = codec.Base64 }, []string{"the format base64 has no envelope"}},
		{"with others", nil, func(o *listener.Options[any]) { o.Concurrency = -1 }, []string{"at least one kind", "concurrency -1"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := *b.options
			if c.set != nil {
				c.set(&o)
			}
			l, err := listener.NewKinds(b.queue, c.kinds, &o)
			for _, want := range c.want {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("got %v, want %q in it", err, want)
				}
			}
			if n := strings.Count(fmt.Sprint(err), b.queue.Name().String()); n != 1 {
				t.Errorf("got %v, which names the queue %d times, want 1", err, n)
			}
			if l != nil {
				t.Error("got a listener besides the error")
			}
		})
	}
	if _, err := listener.NewKinds(nil, []listener.Kind{orders.Handle(nothing, nil)}, nil); err == nil {
		t.Error("a nil queue was accepted")
	}
}

// With AcceptForeign an envelope is read whatever the format, so that kinds and foreign messages can share a
// queue.
func TestAdoptedQueuesHaveKinds(t *testing.T) {
	bubble(t, func(b *bundle) {
		send(b, orders, order{1})
		if _, err := b.queue.Enqueue(b.Context(), "eyJUb3RhbCI6Mn0=", nil); err != nil { // {"Total":2}
			b.Fatal(err)
		}
		b.options.Wire.Format, b.options.Wire.AcceptForeign = codec.Base64, true
		b.run(time.Minute, b.kindsOf(orders.Handle(handler[order](b, nil), nil), unnamed.Handle(handler[order](b, nil), nil)))
		if len(b.handled["order"]) != 1 || len(b.handled[""]) != 1 || b.handled[""][0].body != (order{2}) {
			b.Errorf("handled %+v", b.handled)
		}
	})
}

// The slice of kinds may be used again.
func TestTheCallerKeepsItsSlice(t *testing.T) {
	bubble(t, func(b *bundle) {
		send(b, orders, order{1})
		all := []listener.Kind{orders.Handle(handler[order](b, nil), nil)}
		l := must(listener.NewKinds(b.queue, all, b.options))
		all[0] = listener.Kind{}
		if state := b.run(time.Second, l); state.Outcomes[listener.Deleted] != 1 {
			b.Errorf("got %+v, want one success", state)
		}
	})
}

// A producer of a kind sends its name and its codec, with the other options as they are.
func TestAProducerSendsItsKind(t *testing.T) {
	b := setup(t)
	q := b.queue.Sibling("-created")
	k := kinds.Kind[order]{Name: "order", Codec: codec.XML[order]()}
	o := &producer.Options[order]{Create: true}
	if _, err := k.Producer(q, o).Send(t.Context(), order{7}, nil); err != nil {
		t.Fatal(err)
	}
	if o.Kind != "" || o.Codec != nil {
		t.Errorf("the caller's options became %+v", o)
	}
	batch, err := q.Peek(t.Context(), 1)
	if err != nil || len(batch) != 1 {
		t.Fatal(batch, err)
	}
	h, body, _, err := envelope.Open(batch[0].Text, codec.Auto, envelope.Kinds)
	if err != nil || h.Kind != "order" || string(body) != "<order><Total>7</Total></order>" {
		t.Errorf("sent %+v, %q, %v", h, body, err)
	}
}

// Options that contradict the kind are a mistake in the program.
func TestAProducerRefusesAnotherKindOrCodec(t *testing.T) {
	b := setup(t)
	for _, o := range []*producer.Options[order]{{Kind: "order"}, {Codec: codec.JSON[order]()}} {
		func() {
			defer func() {
				if p := recover(); p == nil {
					t.Errorf("%+v: got no panic", o)
				}
			}()
			orders.Producer(b.queue, o)
		}()
	}
	_, err := kinds.Kind[order]{Name: "a\nb"}.Producer(b.queue, nil).Send(t.Context(), order{1}, nil)
	if !errors.Is(err, queue.ErrInvalid) || !strings.Contains(err.Error(), "control character") {
		t.Errorf("an invalid name: got %v", err)
	}
}
