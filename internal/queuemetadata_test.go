package internal_test

import (
	"context"
	"errors"
	"maps"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/millrace/millrace/internal/queuemetadata"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/localqueue"
)

func TestWhatPauses(t *testing.T) {
	for value, want := range map[string]bool{
		"2026-11-22T10:00:00Z": true, "yes": true, "true": true, "1": true, "since Tuesday": true, " x ": true, "00": true,
		"": false, " ": false, "false": false, "False": false, "NO": false, "off": false, " 0 ": false,
	} {
		for _, name := range []string{"paused", "Paused", "PAUSED"} {
			p, paused := queuemetadata.Paused(map[string]string{name: value, "owner": "ada"})
			if paused != want || paused != (p.Value != "") || p.Value != "" && p.Value != strings.TrimSpace(value) {
				t.Errorf("%s=%q: got %+v, %v; want %v", name, value, p, paused, want)
			}
		}
	}
	at := time.Date(2026, 11, 22, 10, 0, 0, 0, time.UTC)
	if p, _ := queuemetadata.Paused(map[string]string{"paused": "2026-11-22T11:00:00+01:00"}); !p.Since.Equal(at) {
		t.Errorf("since %v, want %v", p.Since, at)
	}
	if p, paused := queuemetadata.Paused(map[string]string{"pause": "yes"}); paused {
		t.Errorf("another name pauses: %+v", p)
	}
}

// Setting and removing the flag are inverse, whatever the metadata, and leave all else alone.
func TestTheFlagIsSetAndRemoved(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		names := rapid.SampledFrom([]string{"paused", "Paused", "PAUSED", "owner", "a"})
		values := rapid.SampledFrom([]string{"", "no", "yes", "2026-11-22T10:00:00Z", "ada"})
		given := rapid.MapOf(names, values).Draw(t, "metadata")
		rest := map[string]string{}
		for name, value := range given {
			if !strings.EqualFold(name, "paused") {
				rest[name] = value
			}
		}
		before, was := queuemetadata.Paused(given)
		set := maps.Clone(given)
		now := time.Date(2026, 11, 22, 10, 0, 0, 999, time.FixedZone("", 3600))
		changed := queuemetadata.SetPaused(set, now)
		after, is := queuemetadata.Paused(set)
		if !is || changed == was || was && after != before || changed && !after.Since.Equal(now.Truncate(time.Second)) {
			t.Fatalf("set on %v: %v, changed %v, then %+v", given, set, changed, after)
		}
		if !queuemetadata.RemovePaused(set) || !maps.Equal(set, rest) || queuemetadata.RemovePaused(set) {
			t.Fatalf("removed from %v: %v, want %v", given, set, rest)
		}
	})
}

// scriptedQueue is a queue of which another program, or a fault, takes part in each request.
type scriptedQueue struct {
	queue.Manager
	reads, writes int
	afterRead     func(n int) error
	afterWrite    func(n int) error
}

func (q *scriptedQueue) Properties(ctx context.Context) (queue.Properties, error) {
	p, err := q.Manager.Properties(ctx)
	q.reads++
	if err == nil && q.afterRead != nil {
		err = q.afterRead(q.reads)
	}
	return p, err
}

func (q *scriptedQueue) SetMetadata(ctx context.Context, metadata map[string]string) error {
	err := q.Manager.SetMetadata(ctx, metadata)
	q.writes++
	if err == nil && q.afterWrite != nil {
		err = q.afterWrite(q.writes)
	}
	return err
}

// change runs a test with a queue that has these metadata.
func change(t *testing.T, metadata map[string]string, f func(t *testing.T, q *scriptedQueue)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		q := must(localqueue.New(nil)).Queue(queue.Name{Account: "test", Queue: "jobs"})
		if err := q.Create(t.Context(), metadata); err != nil {
			t.Fatal(err)
		}
		f(t, &scriptedQueue{Manager: q})
	})
}

func set(metadata map[string]string) bool { return queuemetadata.SetPaused(metadata, time.Now()) }

func metadataOf(t *testing.T, q queue.Queue) map[string]string {
	t.Helper()
	p, err := q.Properties(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return p.Metadata
}

// A change costs a reading, a write and a reading; what is there already costs a reading.
func TestAChangeIsReadAgain(t *testing.T) {
	change(t, map[string]string{"owner": "ada"}, func(t *testing.T, q *scriptedQueue) {
		for _, c := range []struct {
			edit                   func(map[string]string) bool
			changed                bool
			reads, writes, entries int
		}{
			{set, true, 2, 1, 2}, {set, false, 3, 1, 2}, {queuemetadata.RemovePaused, true, 5, 2, 1}, {queuemetadata.RemovePaused, false, 6, 2, 1},
		} {
			changed, err := queuemetadata.Change(t.Context(), q, "key", c.edit)
			if err != nil || changed != c.changed || q.reads != c.reads || q.writes != c.writes {
				t.Errorf("changed %v, error %v, %d reads and %d writes; want %+v", changed, err, q.reads, q.writes, c)
			}
			if got := metadataOf(t, q.Manager); got["owner"] != "ada" || len(got) != c.entries {
				t.Errorf("the metadata are %v, want the owner among %d", got, c.entries)
			}
		}
	})
}

// Another program that has read before the write and writes after it loses the change, which is then
// made again, on what that program wrote.
func TestAChangeThatIsLostIsMadeAgain(t *testing.T) {
	for name, edit := range map[string]func(map[string]string) bool{"set": set, "removed": queuemetadata.RemovePaused} {
		stale := map[string]string{"owner": "ada"}
		if name == "removed" {
			stale["paused"] = "yes"
		}
		change(t, stale, func(t *testing.T, q *scriptedQueue) {
			q.afterWrite = func(n int) error {
				if n > 3 {
					return nil
				}
				other := maps.Clone(stale)
				other["defaulttimeout"] = strconv.Itoa(n)
				return q.Manager.SetMetadata(t.Context(), other)
			}
			changed, err := queuemetadata.Change(t.Context(), q, "key", edit)
			got := metadataOf(t, q.Manager)
			_, paused := queuemetadata.Paused(got)
			if err != nil || !changed || q.writes != 4 || paused != (name == "set") || got["owner"] != "ada" || got["defaulttimeout"] != "3" {
				t.Errorf("%s: changed %v, error %v, %d writes, metadata %v", name, changed, err, q.writes, got)
			}
		})
	}
}

// A name that was there and that another program has dropped with a late write is put back, but only once:
// that program may mean it.
func TestANameThatAnotherProgramDropsIsPutBackOnce(t *testing.T) {
	for drops, want := range map[int]string{0: "x", 1: "x", 99: ""} {
		change(t, map[string]string{"owner": "ada", "Note": "x"}, func(t *testing.T, q *scriptedQueue) {
			q.afterWrite = func(n int) error {
				if n > drops {
					return nil
				}
				left := metadataOf(t, q.Manager)
				queuemetadata.Remove(left, "note")
				return q.Manager.SetMetadata(t.Context(), left)
			}
			changed, err := queuemetadata.Change(t.Context(), q, "key", set)
			got := metadataOf(t, q.Manager)
			_, paused := queuemetadata.Paused(got)
			if err != nil || !changed || !paused || got["owner"] != "ada" || got[queuemetadata.NameIn(got, "note")] != want || q.writes != min(drops, 1)+1 {
				t.Errorf("dropped %d times: changed %v, error %v, %d writes, metadata %v; want the note %q", drops, changed, err, q.writes, got, want)
			}
		})
	}
}

// Two callers that change different names at the same time both succeed, whatever the order.
func TestChangesOfTwoCallersBothLast(t *testing.T) {
	change(t, nil, func(t *testing.T, q *scriptedQueue) {
		slow := &scriptedQueue{Manager: q.Manager, afterRead: func(int) error { time.Sleep(300 * time.Millisecond); return nil }}
		done := make(chan error, 1)
		go func() {
			_, err := queuemetadata.Change(t.Context(), slow, "a", func(m map[string]string) bool {
				was := m["owner"]
				m["owner"] = "ada"
				return was != "ada"
			})
			done <- err
		}()
		time.Sleep(100 * time.Millisecond)
		_, err := queuemetadata.Change(t.Context(), q, "b", set)
		if other := <-done; err != nil || other != nil {
			t.Fatal(err, other)
		}
		got := metadataOf(t, q.Manager)
		if _, paused := queuemetadata.Paused(got); !paused || got["owner"] != "ada" {
			t.Errorf("the metadata are %v, want both", got)
		}
	})
}

// A program that never stops replacing the metadata is named as the cause.
func TestAChangeThatIsAlwaysLostEnds(t *testing.T) {
	change(t, nil, func(t *testing.T, q *scriptedQueue) {
		q.afterWrite = func(int) error { return q.Manager.SetMetadata(t.Context(), nil) }
		_, err := queuemetadata.Change(t.Context(), q, "key", set)
		if err == nil || !strings.Contains(err.Error(), "another program has replaced them") || q.writes != 5 {
			t.Errorf("error %v after %d writes, want 5 and the cause", err, q.writes)
		}
	})
}

// Requests that fail for a while are repeated, and the response to a write does not matter; others
// end the change at once. So does the end of the context.
func TestFailuresOfAChange(t *testing.T) {
	busy, refused := &queue.Error{Kind: queue.ErrThrottled}, &queue.Error{Kind: queue.ErrUnauthorized, Status: 403}
	for name, c := range map[string]struct {
		fails  error
		until  int
		want   error
		writes int
	}{
		"busy for a while":   {busy, 4, nil, 1},
		"busy for ever":      {busy, 99, queue.ErrThrottled, 0},
		"unknown for a time": {queue.ErrOutcomeUnknown, 2, nil, 1},
		"refused":            {refused, 99, queue.ErrUnauthorized, 0},
	} {
		change(t, nil, func(t *testing.T, q *scriptedQueue) {
			q.afterRead = func(n int) error {
				if n <= c.until {
					return c.fails
				}
				return nil
			}
			_, err := queuemetadata.Change(t.Context(), q, "key", set)
			if !errors.Is(err, c.want) || (err == nil) != (c.want == nil) || q.writes != c.writes {
				t.Errorf("%s: got %v after %d reads and %d writes, want %v", name, err, q.reads, q.writes, c.want)
			}
		})
	}
	change(t, nil, func(t *testing.T, q *scriptedQueue) {
		q.afterWrite = func(n int) error { return queue.ErrOutcomeUnknown } // it has taken effect
		if changed, err := queuemetadata.Change(t.Context(), q, "key", set); err != nil || !changed || q.writes != 1 {
			t.Errorf("a write without a response: changed %v, error %v, %d writes", changed, err, q.writes)
		}
	})
	change(t, nil, func(t *testing.T, q *scriptedQueue) {
		ctx, cancel := context.WithCancel(t.Context())
		q.afterWrite = func(int) error { cancel(); return nil }
		if changed, err := queuemetadata.Change(ctx, q, "key", set); !errors.Is(err, context.Canceled) || !changed {
			t.Errorf("an end of the context: changed %v, error %v", changed, err)
		}
	})
}
