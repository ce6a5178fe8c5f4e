package codec_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/codec"
	"github.com/millrace/millrace/dispatcher"
	"github.com/millrace/millrace/internal/envelope"
	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/poison"
	"github.com/millrace/millrace/producer"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/localqueue"
)

// newQueue returns a queue that exists.
func newQueue(t *testing.T) queue.Manager {
	t.Helper()
	q := must(localqueue.New(nil)).Queue(queue.Name{Account: "acme", Queue: "jobs"})
	if err := q.Create(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	return q
}

// work runs a listener for so long and returns the messages it handled and its final state.
func work[T any](t *testing.T, q queue.Queue, d time.Duration, o *listener.Options[T]) ([]listener.Message[T], listener.State) {
	t.Helper()
	var mu sync.Mutex
	var handled []listener.Message[T]
	o.Logger = slog.New(slog.DiscardHandler)
	l := listener.New(q, func(_ context.Context, m *listener.Message[T]) error {
		mu.Lock()
		defer mu.Unlock()
		handled = append(handled, *m)
		return nil
	}, o)
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	if err := l.Run(ctx); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
	return handled, l.State()
}

// staged is a job that grew: its second version has another meaning, which the first cannot read.
type staged struct{ Version, Amount int }

// knows is a codec that decodes versions up to its number.
type knows int

func (knows) Encode(v staged) ([]byte, error) { return codec.JSON[staged]().Encode(v) }

func (k knows) Decode(body []byte) (staged, error) {
	v, err := codec.JSON[staged]().Decode(body)
	if err == nil && v.Version > int(k) {
		err = fmt.Errorf("a payment of version %d: %w", v.Version, codec.ErrNewer)
	}
	return v, err
}

// B-19: a codec of the user's can say that a body is for a newer program: the message goes back with
// a delay and no attempt, and a newer worker handles it at its first.
func TestACodecCanLeaveABodyToANewerWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t)
		p := producer.New(q, &producer.Options[staged]{Codec: knows(2)})
		for version := 1; version <= 2; version++ {
			if _, err := p.Send(t.Context(), staged{version, 100}, nil); err != nil {
				t.Fatal(err)
			}
		}
		handled, state := work(t, q, 10*time.Minute, &listener.Options[staged]{Codec: knows(1)})
		if len(handled) != 1 || handled[0].Body.Version != 1 || state.Outcomes[listener.Poisoned] != 0 || state.Outcomes[listener.Snoozed] < 40 || state.Outcomes[listener.Snoozed] > 50 {
			t.Errorf("the older worker handled %v, and says %+v", handled, state)
		}
		handled, state = work(t, q, 10*time.Minute, &listener.Options[staged]{Codec: knows(2)})
		if len(handled) != 1 || handled[0].Body.Version != 2 || handled[0].Attempt != 1 || state.Outcomes[listener.Poisoned] != 0 {
			t.Errorf("the newer worker handled %+v, and says %+v", handled, state)
		}
	})
}

// B-19: a message of a kind, or with a claim, goes back untouched by a worker that knows neither.
func TestAWorkerWithoutFeaturesLeavesThemAlone(t *testing.T) {
	for _, h := range []envelope.Head{{ID: "7", Kind: "resize"}, {ID: "7", Claim: "container/blob"}} {
		synctest.Test(t, func(t *testing.T) {
			q := newQueue(t)
			text, err := envelope.Seal(h, []byte("{}"), codec.Envelope)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := q.Enqueue(t.Context(), text, nil); err != nil {
				t.Fatal(err)
			}
			handled, state := work(t, q, 10*time.Minute, &listener.Options[item]{})
			if len(handled) != 0 || state.Outcomes[listener.Poisoned] != 0 || state.Outcomes[listener.Snoozed] < 40 {
				t.Errorf("%+v: handled %v, and says %+v", h, handled, state)
			}
			time.Sleep(10 * time.Minute)
			if batch, err := q.Peek(t.Context(), 1); err != nil || len(batch) != 1 || batch[0].Text != text {
				t.Errorf("%+v: got %v, %v, want it as it was", h, batch, err)
			}
		})
	}
}

// What programs in other languages send is handled, or is in the poison queue with a reason that
// names every form that was tried.
func TestAListenerReadsOtherLanguages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t)
		names := map[queue.ID]string{} // of the samples
		reasons := map[string][]string{}
		for _, one := range samples {
			m, err := q.Enqueue(t.Context(), sampleText(t, one.name), nil)
			if err != nil {
				t.Fatal(err)
			}
			names[m.ID], reasons[one.name] = one.name, one.poison
		}
		handled, state := work(t, q, time.Minute, &listener.Options[item]{})
		for _, m := range handled {
			name := names[m.ID]
			if delete(names, m.ID); m.Body != itemSeven || len(reasons[name]) > 0 {
				t.Errorf("%s was handled as %+v", name, m.Body)
			}
		}
		for _, r := range poisonRecords(t, q) {
			name := names[r.ID]
			delete(names, r.ID)
			if r.Reason != poison.ReasonUndecodable || len(reasons[name]) == 0 || r.Text != sampleText(t, name) {
				t.Errorf("%s is poison: %+v", name, r)
			}
			checkReason(t, name, errors.New(r.Error), reasons[name])
		}
		if len(names) > 0 {
			t.Errorf("neither handled nor poison: %v; the listener says %+v", slices.Collect(maps.Values(names)), state)
		}
	})
}

// Words that are the Base64 of something reach a handler that takes any text as they are, also after
// a retry and in a kind; what is Base64 of an object, a list, or a document is decoded. A handler of
// numbers gets the number.
func TestAWordStaysAsItIs(t *testing.T) {
	words := map[string]string{
		"MTIz": "MTIz", "dHJ1ZQ==": "dHJ1ZQ==", "bnVsbA==": "bnVsbA==", "IjEi": "IjEi", "LTE=": "LTE=", "hello": "hello",
		"eyJJRCI6IjcifQ==": `{"ID":"7"}`, "WzFd": "[1]", "PGEvPg==": "<a/>",
	}
	send := func(t *testing.T) queue.Manager {
		q := newQueue(t)
		for text := range words {
			if _, err := q.Enqueue(t.Context(), text, nil); err != nil {
				t.Fatal(err)
			}
		}
		return q
	}
	check := func(t *testing.T, how string, run func(listener.Handler[string]) error) {
		t.Helper()
		got := map[string]int{}
		h := func(_ context.Context, m *listener.Message[string]) error {
			if got[m.Body]++; got[m.Body] == 1 {
				return errors.New("again")
			}
			return nil
		}
		if err := run(h); err != nil {
			t.Fatal(err)
		}
		for _, want := range words {
			if got[want] != 2 {
				t.Errorf("%s: %q was handled %d times, want twice: %v", how, want, got[want], got)
			}
		}
	}
	for _, adopt := range []bool{false, true} {
		how := fmt.Sprintf("adopted: %v", adopt)
		synctest.Test(t, func(t *testing.T) {
			q := send(t)
			check(t, how, func(h listener.Handler[string]) error {
				ctx, stop := context.WithTimeout(t.Context(), time.Minute)
				defer stop()
				return listener.New(q, h, &listener.Options[string]{Codec: codec.Text(), Wire: listener.WireOptions{AcceptForeign: adopt}, Concurrency: 1, Logger: slog.New(slog.DiscardHandler)}).Run(ctx)
			})
		})
	}
	synctest.Test(t, func(t *testing.T) {
		q := send(t)
		check(t, "a kind", func(h listener.Handler[string]) error {
			ctx, stop := context.WithTimeout(t.Context(), time.Minute)
			defer stop()
			kind := dispatcher.Jobs[string]{Handler: h, Codec: codec.Text()}.Kind("", nil)
			l, err := listener.NewKinds(q, []listener.Kind{kind}, &listener.Options[any]{Concurrency: 1, Logger: slog.New(slog.DiscardHandler)})
			if err != nil {
				return err
			}
			return l.Run(ctx)
		})
	})
	if body, f := envelope.Verbatim(codec.JSON[int](), "MTIz", []byte("123"), codec.Base64); string(body) != "123" || f != codec.Base64 {
		t.Errorf("a number: got %s, %v", body, f)
	}
	if body, f := envelope.Verbatim(codec.Bytes(), "MTIz", []byte("123"), codec.Base64); string(body) != "MTIz" || f != codec.Plain {
		t.Errorf("bytes: got %s, %v", body, f)
	}
}

// poisonRecords empties the poison queue of q.
func poisonRecords(t *testing.T, q queue.Queue) []poison.Record {
	t.Helper()
	var records []poison.Record
	for {
		batch, err := q.Sibling(poison.Suffix).Dequeue(t.Context(), queue.MaxBatch, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range batch {
			r, err := poison.ParseRecord(m.Text)
			if err != nil {
				t.Fatal(err)
			}
			records = append(records, r)
		}
		if len(batch) == 0 {
			return records
		}
	}
}

// A text that cannot be opened in the format that is set says what it is instead.
func TestAWrongFormatIsAReasonOfThePoison(t *testing.T) {
	for format, text := range map[codec.Format]string{codec.Base64: `{"ID":"7"}`, codec.Plain: "eyJJRCI6IjcifQ=="} {
		synctest.Test(t, func(t *testing.T) {
			q := newQueue(t)
			if _, err := q.Enqueue(t.Context(), text, nil); err != nil {
				t.Fatal(err)
			}
			work(t, q, time.Minute, &listener.Options[item]{Wire: listener.WireOptions{Format: format}})
			records := poisonRecords(t, q)
			if len(records) != 1 {
				t.Fatalf("got %v", records)
			}
			checkReason(t, string(format), errors.New(records[0].Error), []string{"Format is " + string(format) + ", but the text is ", "JSON: Auto reads that"})
		})
	}
}
