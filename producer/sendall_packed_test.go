package producer_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/millrace/millrace/codec"
	"github.com/millrace/millrace/internal/envelope"
	"github.com/millrace/millrace/producer"
	"github.com/millrace/millrace/queue"
)

// packed returns the bodies in each message of the queue, by message id, and empties the queue.
func packed(t testing.TB, q queue.Queue) map[queue.ID][]string {
	t.Helper()
	all := map[queue.ID][]string{}
	for {
		batch, err := q.Dequeue(t.Context(), queue.MaxBatch, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		if len(batch) == 0 {
			return all
		}
		for _, m := range batch {
			h, body, _, err := envelope.Open(m.Text, codec.Auto, envelope.Groups, envelope.Kinds)
			if err != nil {
				t.Fatal(err)
			}
			g := envelope.Group{body}
			if h.Items > 0 {
				if g, err = envelope.DecodeGroup(body, h.Items); err != nil {
					t.Fatal(err)
				}
			}
			for _, item := range g {
				all[m.ID] = append(all[m.ID], string(item))
			}
		}
	}
}

// textCodec encodes an order as its ID. It refuses the order 13.
var textCodec = unluckyCodec{idCodec{codec.JSON[order]()}}

type idCodec struct{ codec.Codec[order] }

func (idCodec) Encode(o order) ([]byte, error) { return []byte(o.ID), nil }

// Every job is in exactly the place that its result says, or has an error and is nowhere.
func TestPackedJobsAreWhereTheirResultsSay(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		q := setup(t)
		text := rapid.SampledFrom([]string{"x", "<&", "\x00"}).Draw(r, "text")
		sizes := rapid.SliceOfN(rapid.SampledFrom([]int{0, 1, 900, 5000, 20_000, 70_000}), 0, 60).Draw(r, "sizes")
		keys := rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b"}), len(sizes), len(sizes)).Draw(r, "keys")
		unlucky := rapid.IntRange(0, 80).Draw(r, "unlucky")
		jobs := make([]order, len(sizes))
		for i, size := range sizes {
			if jobs[i].ID = strings.Repeat(text, size); i == unlucky {
				jobs[i].ID = "13"
			}
		}
		most := rapid.IntRange(2, 50).Draw(r, "per message")
		p := producer.New(q, &producer.Options[order]{Codec: textCodec})
		results, _ := p.SendAll(t.Context(), jobs, &producer.SendAllOptions[order]{
			PerMessage: most,
			Options:    func(i int, _ order) producer.SendOptions { return producer.SendOptions{Key: keys[i]} },
		})
		if len(results) != len(jobs) {
			r.Fatalf("%d results of %d jobs", len(results), len(jobs))
		}
		there := packed(t, q)
		places := 0
		for _, items := range there {
			if places += len(items); len(items) > most {
				r.Fatalf("%d jobs in a message, want at most %d", len(items), most)
			}
		}
		for i, res := range results {
			alone := errors.Is(res.Err, queue.ErrTooLarge) || i == unlucky
			if (res.Err != nil) != (alone) || res.Index != i {
				r.Fatalf("job %d: %+v", i, res)
			}
			if res.Err != nil {
				continue
			}
			places--
			items := there[res.Sent.ID]
			if max(res.Items, 1) != len(items) || items[res.Item] != jobs[i].ID {
				r.Fatalf("job %d of %d bytes is not item %d of %d", i, sizes[i], res.Item, res.Items)
			}
			if first := i - res.Item; res.Items > 0 && unlucky >= len(jobs) && keys[first] != keys[i] {
				r.Fatalf("job %d shares a message with another key", i)
			}
		}
		if places != 0 {
			r.Fatalf("%d jobs more on the queue than were accepted", places)
		}
	})
}

// Two jobs share a message up to its last byte.
func TestPackedJobsShareAMessageUpToItsLimit(t *testing.T) {
	two := func(size int) []order { return []order{{"a"}, {strings.Repeat("x", size)}} }
	opts := &producer.Options[order]{Codec: textCodec}
	at := func(size int) int { // messages
		q := setup(t)
		if _, err := producer.New(q, opts).SendAll(t.Context(), two(size),
			&producer.SendAllOptions[order]{PerMessage: 2}); err != nil {
			t.Fatal(err)
		}
		return len(packed(t, q))
	}
	low, high := 1, queue.MaxText-1000 // one message, and SendGroup refuses
	for q := setup(t); high < queue.MaxText; high++ {
		if _, err := producer.New(q, opts).SendGroup(t.Context(), two(high), nil); errors.Is(err, queue.ErrTooLarge) {
			break
		}
		low = high
	}
	if at(low) != 1 || at(high) != 2 {
		t.Errorf("%d messages at %d bytes and %d at %d, want 1 and 2", at(low), low, at(high), high)
	}
}

func TestJobsWithAnIDOfTheirOwnAreNotPacked(t *testing.T) {
	q := setup(t)
	results, err := producer.New[order](q, nil).SendAll(t.Context(), []order{{"1"}, {"2"}, {"3"}, {"4"}}, &producer.SendAllOptions[order]{
		PerMessage: 4,
		Options: func(i int, o order) producer.SendOptions {
			return [...]producer.SendOptions{{}, {}, {JobID: "three"}, {DedupeKey: "four"}}[i]
		},
	})
	if err != nil || len(packed(t, q)) != 3 || results[1].Items != 2 || results[2].Items != 0 || results[2].Sent.JobID != "three" {
		t.Errorf("got %+v, %v", results, err)
	}
}

// Every job that was taken has a result, and those without an error are on the queue.
func TestAContextThatEndsWhileJobsArePacked(t *testing.T) {
	q := setup(t)
	ctx, cancel := context.WithCancel(t.Context())
	taken := 0
	results, err := producer.New[order](q, nil).SendAllSeq(ctx, func(yield func(order) bool) {
		for one := range orders(endless) {
			if taken++; taken == 57 {
				cancel()
			}
			if !yield(one) {
				return
			}
		}
	}, &producer.SendAllOptions[order]{PerMessage: 10})
	there, accepted := packed(t, q), 0
	for _, r := range results {
		if r.Err == nil {
			accepted++
		}
	}
	places := len(slices.Concat(slices.Collect(func(yield func([]string) bool) {
		for _, items := range there {
			if !yield(items) {
				return
			}
		}
	})...))
	if !errors.Is(err, context.Canceled) || len(results) != 57 || accepted > places {
		t.Errorf("%d results, %d accepted, %d on the queue, %v", len(results), accepted, places, err)
	}
}

func TestInvalidPackingIsRefused(t *testing.T) {
	for per, o := range map[int]*producer.Options[order]{
		-1: nil, envelope.MaxItems + 1: nil, 2: {Format: codec.Plain},
	} {
		q := setup(t)
		if _, err := producer.New(q, o).SendAll(t.Context(), make([]order, 3), &producer.SendAllOptions[order]{PerMessage: per}); err == nil || len(packed(t, q)) != 0 {
			t.Errorf("PerMessage %d: got %v", per, err)
		}
	}
}

// A packed job costs the encoding of its body, which is one allocation here, and its part of a message.
func TestPackedJobsAllocateLittle(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	jobs := slices.Collect(orders(4000))
	p := producer.New(acceptingQueue{}, &producer.Options[order]{Codec: idCodec{codec.JSON[order]()}})
	got := testing.AllocsPerRun(5, func() {
		if _, err := p.SendAll(t.Context(), jobs, &producer.SendAllOptions[order]{PerMessage: 40}); err != nil {
			t.Fatal(err)
		}
	}) / float64(len(jobs))
	t.Logf("%.2f allocations a job", got)
	if got > 2 {
		t.Errorf("%.2f allocations a job, want at most 2", got)
	}
}
