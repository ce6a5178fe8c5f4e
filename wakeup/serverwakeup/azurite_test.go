package serverwakeup_test

import (
	"log/slog"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/azuritetest"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/azurequeue"
	"github.com/millrace/millrace/wakeup/serverwakeup"
)

// TestAzuriteRefusesTheStream shows that another server refuses, and that the request takes no message.
func TestAzuriteRefusesTheStream(t *testing.T) {
	location := azuritetest.ConnectionString(t)
	q, err := azurequeue.Open(location, "wakeups", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	if err := q.Create(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if _, err := q.Enqueue(t.Context(), "x", nil); err != nil {
		t.Fatal(err)
	}
	log := new(syncBuffer)
	s, err := serverwakeup.Open(location, &serverwakeup.Options{Logger: slog.New(slog.NewTextHandler(log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for _, name := range []string{"wakeups", "missing"} {
		if _, err := s.Subscribe(queue.Name{Account: q.Name().Account, Queue: name}, func(queue.Name, int64, time.Time) {
			t.Error("got an event")
		}, func(bool) { t.Error("got a call of listening") }); err != nil {
			t.Fatal(err)
		}
		azuritetest.Until(t, "the refusal is logged", func() bool { return log.lines("offers no wake-ups") > 0 && log.lines("/"+name) == 1 })
	}
	got, err := q.Peek(t.Context(), 32)
	if err != nil || len(got) != 1 || got[0].DequeueCount != 0 {
		t.Errorf("got %d messages, %v; want one that nobody has taken", len(got), err)
	}
}
