package listener

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/localqueue"
	"github.com/millrace/millrace/scaling"
)

// Durations without a unit are refused. Timeout: 30 compiles and means 30 ns, so that every
// handler would time out; Idle: {Max: 30} would poll in a busy loop.
func TestADurationWithoutAUnitIsRefused(t *testing.T) {
	q := localqueue.New(nil).Queue(queue.Name{Account: "acme", Queue: "orders"})
	h := func(context.Context, *Message[job]) error { return nil }
	for name, o := range map[string]*Options[job]{
		"handler time-out": {Timeout: 30},
		"settle time-out":  {SettleTimeout: 30},
		"grace":            {Grace: 30},
		"idle maximum":     {Idle: scaling.Idle{Max: 30}},
	} {
		err := New(q, h, o).Run(t.Context())
		if err == nil || !strings.Contains(err.Error(), name+" 30ns") || !strings.Contains(err.Error(), "30*time.Second") {
			t.Errorf("%s: got error %v, want one with the option, 30ns and 30*time.Second", name, err)
		}
	}
	ended, end := context.WithCancel(t.Context())
	end()
	short := &Options[job]{Timeout: time.Microsecond, SettleTimeout: time.Microsecond, Grace: time.Microsecond}
	if err := New(q, h, short).Run(ended); err != nil {
		t.Errorf("short durations with a unit: got error %v, want nil", err)
	}
}
