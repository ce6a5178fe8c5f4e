package sharded_test

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/codec"
	"github.com/millrace/millrace/internal/envelope"
	"github.com/millrace/millrace/producer"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/faultqueue"
	"github.com/millrace/millrace/queue/localqueue"
	"github.com/millrace/millrace/queue/sharded"
)

// Producers send through shards that throttle, fail, lose requests and responses, and come and go. Every
// accepted job is there, every further message of it was announced by a lost response and, where the key
// decides the shard, is in the same one, unless that was removed, and nothing is there that was certainly refused.
func TestNothingIsLostOrSpreadByFaults(t *testing.T) {
	for seed := range uint64(12) {
		place := append(spreading, sharded.ByKey)[seed%4]
		synctest.Test(t, func(t *testing.T) { sendThroughFaults(t, seed, place) })
	}
}

func sendThroughFaults(t *testing.T, seed uint64, place sharded.Strategy) {
	engine := must(localqueue.New(nil))
	var shards []queue.Queue
	var inner []*disturbed
	faulty := func(i int) queue.Queue {
		inner = append(inner, newShard(t, engine, i))
		return must(faultqueue.New(inner[len(inner)-1], &faultqueue.Options{Seed: seed, Faults: map[faultqueue.Op]faultqueue.Rates{
			faultqueue.Enqueue:    {Throttled: 0.1, Unavailable: 0.1, LostRequest: 0.1, LostResponse: 0.15, Slow: 0.1},
			faultqueue.Properties: {Throttled: 0.2, Slow: 0.2},
		}}))
	}
	for i := range 4 {
		shards = append(shards, faulty(i))
	}
	q, err := sharded.New(shards, &sharded.Options{Place: place, Seed: seed + 1})
	if err != nil {
		t.Fatal(err)
	}
	p := producer.New[string](q, nil)
	var mu sync.Mutex
	sent, refused := map[string]producer.Sent{}, map[string]bool{}
	var running sync.WaitGroup
	for n := range 8 {
		running.Go(func() {
			for i := range 40 {
				id := fmt.Sprint(n, "-", i)
				one, err := p.Send(t.Context(), "job", &producer.SendOptions{JobID: id, Key: fmt.Sprint(i % 7)})
				mu.Lock()
				switch {
				case err == nil:
					sent[id] = one
				case !errors.Is(err, queue.ErrOutcomeUnknown):
					refused[id] = true
				}
				mu.Unlock()
			}
		})
	}
	removed := map[queue.Name]bool{}
	for i := range 6 {
		time.Sleep(time.Second)
		if i%2 == 0 {
			if err := q.Add(faulty(4 + i)); err != nil {
				t.Error(err)
			}
			continue
		}
		name := q.Shards()[0].Name()
		removed[name] = true
		if err := q.Remove(t.Context(), name); err != nil {
			t.Error(err)
		}
	}
	running.Wait()
	copies := map[string][]queue.Name{}
	for _, s := range inner {
		for _, text := range drain(t, s) {
			head, _, _, err := envelope.Open(text, codec.Auto)
			if err != nil {
				t.Fatal(err)
			}
			copies[head.ID] = append(copies[head.ID], s.Name())
		}
	}
	twice := 0
	for id, one := range sent {
		at := copies[id]
		if !slices.Contains(at, one.Queue) {
			t.Errorf("seed %d: job %s was accepted by %v and is in %v", seed, id, one.Queue, at)
		}
		if len(at) > 1 && !one.MaybeTwice {
			t.Errorf("seed %d: job %s is in %v, and nobody said so", seed, id, at)
		}
		for _, name := range at {
			if twice++; place == sharded.ByKey && name != one.Queue && !removed[name] {
				t.Errorf("seed %d: job %s is in %v, and in %v too", seed, id, one.Queue, name)
			}
		}
	}
	for id := range refused {
		if len(copies[id]) > 0 {
			t.Errorf("seed %d: job %s was refused and is in %v", seed, id, copies[id])
		}
	}
	if twice -= len(sent); len(sent) < 200 || twice == 0 {
		t.Errorf("seed %d: %d jobs were accepted and %d sent twice, want many and some", seed, len(sent), twice)
	}
}
