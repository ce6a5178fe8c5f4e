package paired

import (
	"errors"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/millrace/millrace/internal/envelope"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/driver"
)

// a message in a backlog queue keeps its account, its queue and its delay, and its text to the byte.
func TestSealAndOpenRecordAreInverses(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := record{
			primary: queue.Name{
				Account: rapid.StringMatching(`[A-Za-z0-9-]{1,40}`).Draw(t, "account"),
				Queue:   rapid.StringMatching(`[a-z0-9]{3,20}(-[a-z0-9]{1,20}){0,2}`).Draw(t, "queue"),
			},
			delay: time.Duration(rapid.Int64Range(0, 7*24*3600).Draw(t, "delay")) * time.Second,
		}
		text := rapid.String().Draw(t, "text")
		sealed := want.seal(text)
		got, opened, err := openRecord(sealed)
		if err != nil || got != want || opened != text {
			t.Fatalf("got %+v, %q and %v, want %+v and %q", got, opened, err, want, text)
		}
	})
}

// what a producer sends fits into a backlog queue too: the largest record takes no more than what
// producers leave free.
func TestTheLargestRecordFitsIntoTheRoomOfAnEnvelope(t *testing.T) {
	text := strings.Repeat("x", queue.MaxText-envelope.Room)
	sealed := record{queue.Name{Account: strings.Repeat("a", 24), Queue: strings.Repeat("q", 63)}, queue.MaxVisibility}.seal(text)
	if err := driver.CheckRequest(sealed, 0); err != nil {
		t.Error(err)
	}
	if grown := driver.RequestSize(sealed) - driver.RequestSize(text); grown > envelope.Room {
		t.Errorf("the request grows by %d bytes, want at most %d", grown, envelope.Room)
	}
}

func TestOtherTextsAreNoRecords(t *testing.T) {
	for _, text := range []string{
		"", "text", "backlog/1 jobs 0", "backlog/1 jobs\ntext", "backlog/1 jobs -1\ntext", "backlog/1 jobs 604801\ntext",
		"backlog/1 JOBS 0\ntext", "backlog/1 jobs 0 more\ntext", "backlog/1\ntext", "backlog/1 \ntext",
		"backlog/2 jobs 0\ntext", "backlog/2 west/JOBS 0\ntext", "backlog/2 west/\ntext", "backlog/2 west/jobs\ntext",
	} {
		if r, _, err := openRecord(text); err == nil || errors.Is(err, errNewerRecord) {
			t.Errorf("%q: got %+v and %v, want an error", text, r, err)
		}
	}
	if r, _, err := openRecord("backlog/3 whatever\ntext"); !errors.Is(err, errNewerRecord) {
		t.Errorf("got %+v and %v, want a record of a newer program", r, err)
	}
}

// on the way home the delay and the life run on, by the clock of the secondary account alone.
func TestDelayAndLifeRunOnInTheBacklog(t *testing.T) {
	accepted := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC) // far from this machine's clock
	never := time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)
	for _, c := range []struct {
		delay, life, waited time.Duration
		want                queue.EnqueueOptions
	}{
		{0, queue.Forever, time.Hour, queue.EnqueueOptions{TTL: queue.Forever}},
		{time.Hour, queue.Forever, 20 * time.Minute, queue.EnqueueOptions{Delay: 40 * time.Minute, TTL: queue.Forever}},
		{time.Hour, queue.Forever, 2 * time.Hour, queue.EnqueueOptions{TTL: queue.Forever}},
		{0, time.Hour, 20 * time.Minute, queue.EnqueueOptions{TTL: 40 * time.Minute}},
		{time.Minute, time.Hour, 30 * time.Second, queue.EnqueueOptions{Delay: 30 * time.Second, TTL: time.Hour - 30*time.Second}},
		{0, time.Hour, time.Hour, queue.EnqueueOptions{TTL: time.Second}},
		{2 * time.Second, 3 * time.Second, 1500 * time.Millisecond, queue.EnqueueOptions{Delay: time.Second, TTL: 1500 * time.Millisecond}},
		{2 * time.Second, 3 * time.Second, -time.Hour, queue.EnqueueOptions{Delay: 2 * time.Second, TTL: time.Hour + 3*time.Second}},
	} {
		m := queue.Message{Inserted: accepted, Expires: never}
		if c.life != queue.Forever {
			m.Expires = accepted.Add(c.life)
		}
		const visibility = 30 * time.Second
		m.Until = accepted.Add(c.waited - time.Second + visibility)
		got := record{queue.Name{Queue: "jobs"}, c.delay}.options(m, serviceTime(m, visibility, time.Second))
		if *got != c.want {
			t.Errorf("a delay of %v and a life of %v after %v: got %+v, want %+v", c.delay, c.life, c.waited, *got, c.want)
		}
		if err := driver.CheckEnqueue(got); err != nil {
			t.Errorf("a delay of %v and a life of %v after %v: %v", c.delay, c.life, c.waited, err)
		}
	}
}
