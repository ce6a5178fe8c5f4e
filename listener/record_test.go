package listener

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/poisonrecord"
	"github.com/millrace/millrace/poison"
	"github.com/millrace/millrace/queue/faultqueue"
)

// A record has the stack of its handler's panic, and the time of the delivery, not of the move.
func TestARecordHasTheStackOfAPanic(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.send(1)
		sent := time.Now()
		o := options()
		o.Poison.MaxAttempts = 1
		l := New(b.queue, func(context.Context, *Message[job]) error {
			time.Sleep(3 * time.Second)
			panic("no price")
		}, o)
		b.run(l)
		advance(time.Minute)
		b.mustFinish()
		c := b.poisonRecords()
		if len(c) != 1 || c[0].Reason != poison.ReasonAttempts || c[0].Lost != 0 || c[0].Host == "" || c[0].Job == "" {
			t.Fatalf("got records %+v; want one", c)
		}
		if first, _, _ := strings.Cut(c[0].Stack, "\n"); !strings.Contains(first, "TestARecordHasTheStackOfAPanic") || strings.Contains(c[0].Stack, "dispatcher.") {
			t.Errorf("got the stack %q; want that of the handler", c[0].Stack)
		}
		if c[0].FirstSeen.After(sent) || c[0].Poisoned.Sub(c[0].LastSeen) < 3*time.Second {
			t.Errorf("got first seen %v, last seen %v, poisoned %v; want the delivery 3 s before the move", c[0].FirstSeen, c[0].LastSeen, c[0].Poisoned)
		}
	})
}

// A record says how many deliveries were lost.
func TestARecordCountsLostDeliveries(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.send(1)
		b.runKilledProcesses(faultqueue.Options{}, 0)
		if c := b.poisonRecords(); len(c) != 1 || c[0].Lost != c[0].DequeueCount-1 || c[0].Lost < poisonrecord.DefaultMaxLost {
			t.Errorf("got records %+v; want one whose deliveries are all lost but the last", c)
		}
	})
}
