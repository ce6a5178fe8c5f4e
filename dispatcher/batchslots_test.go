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

// slow is a queue whose settlements take a second.
type slow struct{ instant }

func (slow) Delete(context.Context, queue.Lease) error {
	time.Sleep(time.Second)
	return nil
}

func (slow) Update(_ context.Context, l queue.Lease, _ string, _ time.Duration) (queue.Lease, error) {
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
		batch = append(batch, queue.Message{Lease: queue.Lease{ID: queue.ID(strconv.Itoa(i)), Receipt: "r"}, Text: text, DequeueCount: 1})
	}
	return batch
}

// Slots that the batch did not fill, and those of messages that no handler may see, are worth
// one dequeue together.
func TestTheRoomOfABatchIsFreedTogether(t *testing.T) {
	for range 50 {
		synctest.Test(t, func(t *testing.T) {
			release := make(chan struct{})
			handler := func(context.Context, *dispatcher.Message[[]byte]) error { <-release; return nil }
			d, err := dispatcher.New(slow{}, dispatcher.Jobs[[]byte]{Handler: handler, Codec: codec.Bytes()}, &dispatcher.Options{
				Concurrency: 12, BatchSize: 12, MinFetch: 1, Linger: -1, OnError: func(error) {},
			})
			if err != nil {
				t.Fatal(err)
			}
			d.Start(t.Context())
			if n := d.Reserve(t.Context()); n != 12 {
				t.Fatalf("%d slots are free", n)
			}
			got := make(chan int)
			go func() { got <- d.Reserve(t.Context()) }()
			synctest.Wait()
			d.Dispatch(envelopes(10), 12, time.Now(), time.Minute)
			if n := <-got; n != 7 {
				t.Errorf("another loop got %d of 2 slots that nothing came for and 5 of a newer release", n)
			}
			d.Dispatch(nil, 7, time.Now(), time.Minute)
			close(release)
			if err := d.Drain(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

// In an outage one loop waits to send the probe: the first that asked.
func TestReserveKeepsTheOrderOfItsCallers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		handler := func(context.Context, *dispatcher.Message[[]byte]) error { return errors.New("the database is down") }
		d, err := dispatcher.New(slow{}, dispatcher.Jobs[[]byte]{Handler: handler, Codec: codec.Bytes()}, &dispatcher.Options{
			Concurrency: 16, BatchSize: 16, OnError: func(error) {},
		})
		if err != nil {
			t.Fatal(err)
		}
		d.Start(t.Context())
		batch := envelopes(32)
		for i := range 16 {
			batch[i] = batch[2*i]
		}
		d.Dispatch(batch[:16], d.Reserve(t.Context()), time.Now(), time.Minute)
		synctest.Wait() // all have failed: nobody may fetch for a second
		type turn struct{ caller, slots int }
		turns := make(chan turn, 8)
		for caller := range 8 {
			go func() { turns <- turn{caller, d.Reserve(t.Context())} }()
			synctest.Wait()
		}
		for caller := range 8 {
			got := <-turns
			if got != (turn{caller, 1}) {
				t.Errorf("turn %d: caller %d got %d slots", caller, got.caller, got.slots)
			}
			d.Dispatch(nil, got.slots, time.Now(), time.Minute) // it found nothing
		}
		if err := d.Drain(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// Messages beyond the reserved slots take no slot and are given back, also next to messages
// that no handler may see, and the slots add up afterwards.
func TestAnOverfullBatchTakesNoMoreSlotsThanReserved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		handler := func(context.Context, *dispatcher.Message[[]byte]) error { <-release; return nil }
		var told []error
		d, err := dispatcher.New(slow{}, dispatcher.Jobs[[]byte]{Handler: handler, Codec: codec.Bytes()}, &dispatcher.Options{
			Concurrency: 12, BatchSize: 12, MinFetch: 1, Linger: -1,
			OnError: func(err error) {
				if e := (*queue.Error)(nil); errors.As(err, &e) {
					told = append(told, err)
				}
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		d.Start(t.Context())
		d.Dispatch(nil, d.Reserve(t.Context())-6, time.Now(), time.Minute) // six stay reserved
		d.Dispatch(envelopes(20), 6, time.Now(), time.Minute)              // three of these six are of a newer release
		synctest.Wait()
		if handlers, settlements := d.Running(); handlers != 3 || settlements != 17 {
			t.Errorf("%d handlers and %d settlements, want 3 and 17", handlers, settlements)
		}
		if len(told) != 1 || !strings.Contains(told[0].Error(), "dispatcher_test.slow") || !strings.Contains(told[0].Error(), "14 are given back") {
			t.Errorf("told %v, want one error that names the queue's type and how many are given back", told)
		}
		time.Sleep(time.Minute)
		if n := d.Count(dispatcher.GivenBack); n != 14 {
			t.Errorf("%d were given back, want 14", n)
		}
		if n := d.Reserve(t.Context()); n != 9 {
			t.Errorf("%d slots are free beside three handlers, want 9 of 12", n)
		}
		d.Dispatch(nil, 9, time.Now(), time.Minute)
		close(release)
		if err := d.Drain(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
