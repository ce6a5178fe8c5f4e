package localqueue

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/driver"
)

func name(q string) queue.Name { return queue.Name{Account: "a", Queue: q} }

func TestSameSeedSameIDsAndReceipts(t *testing.T) {
	run := func(seed uint64) (out []string) {
		ctx := context.Background()
		e := must(New(&Options{Seed: seed, DeletingFor: -1}))
		for range 2 { // the second time it is a new queue
			q := e.queue(name("seeded"))
			if err := q.Create(ctx, nil); err != nil {
				t.Fatal(err)
			}
			for range 3 {
				m, err := q.Enqueue(ctx, "x", nil)
				if err != nil {
					t.Fatal(err)
				}
				out = append(out, string(m.ID), string(m.Receipt))
			}
			batch, err := q.Dequeue(ctx, 32, time.Minute)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range batch {
				out = append(out, string(m.Receipt))
			}
			if err := q.Drop(ctx); err != nil {
				t.Fatal(err)
			}
		}
		return out
	}
	one := run(1)
	if !slices.Equal(one, run(1)) {
		t.Error("ids and receipts differ with the same seed, want the same")
	}
	sets := map[string]bool{}
	for _, s := range slices.Concat(one, run(2), run(0), run(0)) {
		if sets[s] {
			t.Errorf("id or receipt %q occurs twice", s)
		}
		sets[s] = true
	}
	if !regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`).MatchString(one[0]) {
		t.Errorf("id: got %q, want a GUID", one[0])
	}
}

func TestDropAndCreateAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		e := must(New(nil))
		q := e.queue(name("again"))
		create := func(want error) {
			t.Helper()
			if err := q.Create(ctx, nil); !errors.Is(err, want) {
				t.Fatalf("create: got %v, want %v", err, want)
			}
		}
		for range 3 {
			create(nil)
			if err := q.Drop(ctx); err != nil {
				t.Fatal(err)
			}
			create(queue.ErrQueueBeingDeleted)
			if _, err := q.Enqueue(ctx, "x", nil); !errors.Is(err, queue.ErrQueueMissing) {
				t.Fatal(err)
			}
			time.Sleep(30*time.Second - 1)
			create(queue.ErrQueueBeingDeleted)
			time.Sleep(time.Nanosecond)
		}
		create(nil)
		if a := e.account("a", false); len(a.deleting) != 0 || len(a.deletingOrder) != 0 {
			t.Errorf("names being deleted: got %v, %v; want none", a.deleting, a.deletingOrder)
		}
	})
}

func TestCreateComparesMetadataWithoutCaseOfNames(t *testing.T) {
	ctx := context.Background()
	e := must(New(nil))
	for i, c := range []struct {
		metadata map[string]string
		created  bool
		err      error
	}{
		{map[string]string{"Owner": "Me"}, true, nil},
		{map[string]string{"OWNER": "Me"}, false, nil},
		{map[string]string{"Owner": "me"}, false, queue.ErrQueueExists},
		{map[string]string{"Other": "Me"}, false, queue.ErrQueueExists},
		{nil, false, queue.ErrQueueExists},
		{map[string]string{"1": ""}, false, queue.ErrInvalid},
	} {
		if created, err := e.queue(name("owned")).CreateNew(ctx, c.metadata); created != c.created || !errors.Is(err, c.err) {
			t.Errorf("create %d: got %v, %v; want %v, %v", i, created, err, c.created, c.err)
		}
	}
}

func TestMetadataIsNotShared(t *testing.T) {
	ctx := context.Background()
	q := must(New(nil)).queue(name("own"))
	given := map[string]string{"a": "1"}
	if err := q.Create(ctx, given); err != nil {
		t.Fatal(err)
	}
	given["a"] = "2"
	p, _ := q.Properties(ctx)
	p.Metadata["a"] = "3"
	if p, _ = q.Properties(ctx); p.Metadata["a"] != "1" {
		t.Errorf("metadata: got %v, want a=1", p.Metadata)
	}
}

func TestListPagesInOrder(t *testing.T) {
	ctx := context.Background()
	e := must(New(&Options{DeletingFor: -1}))
	for i := range 250 {
		if err := e.queue(name(fmt.Sprintf("list-%03d", (i*7)%250))).Create(ctx, map[string]string{"n": fmt.Sprint(i)}); err != nil {
			t.Fatal(err)
		}
	}
	for _, other := range []string{"aaa", "zzz", "list"} {
		if err := e.queue(name(other)).Create(ctx, nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := e.queue(queue.Name{Account: "b", Queue: "list-of-b"}).Create(ctx, nil); err != nil {
		t.Fatal(err)
	}
	if err := e.queue(name("list-100")).Drop(ctx); err != nil {
		t.Fatal(err)
	}
	var names []string
	pages := 0
	for marker := ""; ; pages++ {
		page, next, err := e.Account("a").List(ctx, "list-", marker, 100)
		if err != nil {
			t.Fatal(err)
		}
		for _, q := range page {
			names = append(names, q.Name)
			if len(q.Metadata) != 1 {
				t.Errorf("metadata of %s: got %v, want one", q.Name, q.Metadata)
			}
		}
		if marker = next; marker == "" {
			break
		}
	}
	if len(names) != 249 || !slices.IsSorted(names) || names[0] != "list-000" || slices.Contains(names, "list-100") || pages != 2 {
		t.Errorf("list: got %d names in %d pages, want 249 in 3, sorted: %v", len(names), pages+1, names)
	}
	if page, next, err := e.Account("a").List(ctx, "", "", 0); err != nil || len(page) != 252 || next != "" {
		t.Errorf("whole list: got %d queues, next %q, %v; want 252", len(page), next, err)
	}
	if page, _, err := e.Account("nobody").List(ctx, "", "", 0); err != nil || len(page) != 0 {
		t.Errorf("list of an account without queues: got %+v, %v", page, err)
	}
	for _, n := range []int{-1, driver.MaxPage + 1} {
		if _, _, err := e.Account("a").List(ctx, "", "", n); !errors.Is(err, queue.ErrInvalid) {
			t.Errorf("page of %d queues: got %v, want ErrInvalid", n, err)
		}
	}
}

// TestConcurrentCallsDoNotRace makes all calls on a few queues concurrently, for the race detector.
// Only errors that other calls can cause are accepted.
func TestConcurrentCallsDoNotRace(t *testing.T) {
	ctx := context.Background()
	e := must(New(&Options{DeletingFor: -1}))
	var wg sync.WaitGroup
	for worker := range 8 {
		wg.Go(func() {
			q := e.queue(name(fmt.Sprintf("race-%d", worker%2)))
			for i := range 300 {
				var err error
				switch (i + worker) % 10 {
				case 0:
					err = q.Create(ctx, nil)
				case 1:
					_, _, err = e.Account("a").List(ctx, "", "", 0)
				case 2:
					if i%50 == 0 {
						err = q.Drop(ctx)
					}
				case 3:
					_, err = q.Properties(ctx)
				case 4:
					_, err = q.Peek(ctx, 32)
				case 5, 6, 7:
					_, err = q.Enqueue(ctx, "x", &queue.EnqueueOptions{TTL: time.Second})
				default:
					var batch []queue.Message
					batch, err = q.Dequeue(ctx, 5, time.Second)
					for _, m := range batch {
						if err := q.Delete(ctx, m.Lease); err != nil && !errors.Is(err, queue.ErrLeaseLost) && !errors.Is(err, queue.ErrQueueMissing) {
							t.Error(err)
						}
					}
				}
				if err != nil && !errors.Is(err, queue.ErrQueueMissing) {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
}

// TestEmptiedQueuesReleaseTheirMemory fills a queue and empties it by delete, clear and
// expiry.
func TestEmptiedQueuesReleaseTheirMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		q := must(New(nil)).queue(name("large"))
		if err := q.Create(ctx, nil); err != nil {
			t.Fatal(err)
		}
		empty := map[string]func(){
			"deleted": func() {
				for {
					batch, _ := q.Dequeue(ctx, 32, time.Minute)
					if len(batch) == 0 {
						return
					}
					for _, m := range batch {
						if err := q.Delete(ctx, m.Lease); err != nil {
							t.Fatal(err)
						}
					}
				}
			},
			"cleared": func() { q.Clear(ctx) },
			"expired": func() {
				time.Sleep(time.Hour)
				if batch, err := q.Dequeue(ctx, 1, time.Minute); err != nil || len(batch) > 0 {
					t.Fatal(batch, err)
				}
			},
		}
		for how, empty := range empty {
			for range 20_000 {
				if _, err := q.Enqueue(ctx, "x", &queue.EnqueueOptions{TTL: time.Hour}); err != nil {
					t.Fatal(err)
				}
			}
			empty()
			s, err := q.engine.find(q.name)
			if err != nil || s.backlog.len() != 0 {
				t.Errorf("%s: %d messages are left, %v; want none", how, s.backlog.len(), err)
			}
			for of, line := range map[string]*timeline{"due": &s.backlog.due, "expiring": &s.backlog.expiring} {
				if heap, run := cap(line.heap), cap(line.run.entries); heap > shrinkAbove || run > shrinkAbove {
					t.Errorf("%s: %s has room for %d and %d, want %d at most", how, of, heap, run, shrinkAbove)
				}
			}
		}
	})
}

func TestErrorsSayWhatWasAttempted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		e := must(New(nil))
		q := e.queue(name("orders"))
		_, missing := q.Dequeue(ctx, 1, time.Second)
		if err := q.Create(ctx, nil); err != nil {
			t.Fatal(err)
		}
		m, err := q.Enqueue(ctx, "x", &queue.EnqueueOptions{TTL: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		_, late := q.Update(ctx, m.Lease, "x", time.Hour)
		for _, c := range []struct {
			err  error
			want string
		}{
			{missing, "dequeue on a/orders: queue does not exist; create it first"},
			{late, "update on a/orders of message " + string(m.ID) + ": invalid argument: " +
				"visibility timeout of 1h0m0s passes the message's expiry in 1m0s; " +
				"ask for less, or enqueue with queue.Forever as the TTL"},
			{e.queue(name("No")).Clear(ctx), "clear on a/No: invalid argument: queue name \"No\" has 2 characters: it needs 3 to 63"},
		} {
			if c.err == nil || c.err.Error() != c.want {
				t.Errorf("got  %v\nwant %s", c.err, c.want)
			}
		}
	})
}
