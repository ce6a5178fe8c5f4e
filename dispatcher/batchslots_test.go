package dispatcher_test

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/codec"
	"github.com/millrace/millrace/dispatcher"
	"github.com/millrace/millrace/queue"
)

// slowQueue is a queue whose settlements take a second.
type slowQueue struct{ instantQueue }

func (slowQueue) Delete(context.Context, queue.Lease) error {
	time.Sleep(time.Second)
	return nil
}

func (slowQueue) Update(_ context.Context, l queue.Lease, _ string, _ time.Duration) (queue.Lease, error) {
	time.Sleep(time.Second)
	return l, nil
}

// envelopes returns messages, every other one with an envelope of a newer version.
func envelopes(n int) (batch []queue.Message) {
	for i := range n {
		text := "millrace/1?n=0\n" + strconv.Itoa(i)
		if i%2 == 1 {
			text = "millrace/2?n=0\n" + strconv.Itoa(i)
		}
		lease := queue.Lease{ID: queue.ID(strconv.Itoa(i)), Receipt: "r"}
		batch = append(batch, queue.Message{Lease: lease, Text: text, DequeueCount: 1})
	}
	return batch
}

// Slots that the batch did not fill, and those of messages that no handler may see, are freed
// together, for one dequeue.
func TestTheSlotsOfABatchAreFreedTogether(t *testing.T) {
	for range 50 {
		synctest.Test(t, func(t *testing.T) {
			release := make(chan struct{})
			handler := func(context.Context, *dispatcher.Message[[]byte]) error { <-release; return nil }
			d, err := dispatcher.New(slowQueue{}, dispatcher.Jobs[[]byte]{Handler: handler, Codec: codec.Bytes()}, &dispatcher.Options{
				Concurrency: 12, BatchSize: 12, MinFetch: 1, Linger: -1, OnError: func(error) {},
			})
			if err != nil {
				t.Fatal(err)
			}
			if err := d.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			if n := d.Reserve(t.Context()); n != 12 {
				t.Fatalf("got %d free slots, want 12", n)
			}
			got := make(chan int)
			go func() { got <- d.Reserve(t.Context()) }()
			synctest.Wait()
			d.Dispatch(envelopes(10), 12, time.Now(), time.Minute)
			if n := <-got; n != 7 {
				t.Errorf("got %d slots, want 7: 2 that were not filled and 5 of messages of a newer release", n)
			}
			d.Dispatch(nil, 7, time.Now(), time.Minute)
			close(release)
			if err := d.Drain(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

// When everything fails, one loop waits for the next round: the first that called Reserve.
func TestReserveKeepsTheOrderOfItsCallers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		handler := func(context.Context, *dispatcher.Message[[]byte]) error { return errors.New("the database is down") }
		d, err := dispatcher.New(slowQueue{}, dispatcher.Jobs[[]byte]{Handler: handler, Codec: codec.Bytes()}, &dispatcher.Options{
			Concurrency: 16, BatchSize: 16, OnError: func(error) {},
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := d.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		batch := envelopes(32)
		for i := range 16 {
			batch[i] = batch[2*i]
		}
		d.Dispatch(batch[:16], d.Reserve(t.Context()), time.Now(), time.Minute)
		synctest.Wait()
		time.Sleep(time.Minute) // all have failed, and nothing has succeeded
		type turn struct{ caller, slots int }
		turns := make(chan turn, 8)
		for caller := range 8 {
			go func() { turns <- turn{caller, d.Reserve(t.Context())} }()
			synctest.Wait()
		}
		for caller := range 8 {
			got := <-turns
			if got != (turn{caller, 16}) {
				t.Errorf("turn %d: got %d slots for caller %d, want 16 for caller %d", caller, got.slots, got.caller, caller)
			}
			d.Dispatch(nil, got.slots, time.Now(), time.Minute) // the dequeue found nothing
		}
		if err := d.Drain(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// Messages beyond the reserved slots take no slot and are given back, also beside messages that no
// handler may see, and the number of slots is correct afterwards.
func TestAnOverfullBatchTakesNoMoreSlotsThanReserved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		handler := func(context.Context, *dispatcher.Message[[]byte]) error { <-release; return nil }
		var reported []error
		d, err := dispatcher.New(slowQueue{}, dispatcher.Jobs[[]byte]{Handler: handler, Codec: codec.Bytes()}, &dispatcher.Options{
			Concurrency: 12, BatchSize: 12, MinFetch: 1, Linger: -1,
			OnError: func(err error) {
				if e := (*queue.Error)(nil); errors.As(err, &e) {
					reported = append(reported, err)
				}
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := d.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		d.Dispatch(nil, d.Reserve(t.Context())-6, time.Now(), time.Minute) // six stay reserved
		d.Dispatch(envelopes(20), 6, time.Now(), time.Minute)              // three of these six are of a newer release
		synctest.Wait()
		if handlers, settlements := d.Running(); handlers != 3 || settlements != 17 {
			t.Errorf("got %d handlers and %d settlements, want 3 and 17", handlers, settlements)
		}
		if len(reported) != 1 || !strings.Contains(reported[0].Error(), "dispatcher_test.slowQueue") ||
			!strings.Contains(reported[0].Error(), "14 are given back") {
			t.Errorf("got errors %v, want one that names the queue's type and 14 give-backs", reported)
		}
		time.Sleep(time.Minute)
		if n := d.Outcomes()[dispatcher.Returned]; n != 14 {
			t.Errorf("Returned: got %d, want 14", n)
		}
		if n := d.Reserve(t.Context()); n != 9 {
			t.Errorf("got %d free slots beside three handlers, want 9 of 12", n)
		}
		d.Dispatch(nil, 9, time.Now(), time.Minute)
		close(release)
		if err := d.Drain(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
