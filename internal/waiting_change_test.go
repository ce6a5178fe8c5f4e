package internal_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/internal/waiting"
)

// A change wakes all that wait for it, and nobody who asks later.
func TestAChangeWakesAllThatWait(t *testing.T) {
	var c waiting.Change
	c.Announce() // nobody waits
	first, second := c.Next(), c.Next()
	c.Announce()
	for _, changed := range []<-chan struct{}{first, second} {
		select {
		case <-changed:
		default:
			t.Error("somebody who waited was not woken")
		}
	}
	select {
	case <-c.Next():
		t.Error("a channel from after the change is closed, want open")
	default:
	}
}

func TestAWaitForAChange(t *testing.T) {
	for _, c := range []struct {
		name                string
		wait, changed, done time.Duration // changed and done: 0 for never
		took                time.Duration
	}{
		{"lasts as long as it is to", time.Minute, time.Hour, time.Hour, time.Minute},
		{"ends with the change", time.Hour, time.Minute, 0, time.Minute},
		{"ends when it is given up", time.Hour, 0, time.Minute, time.Minute},
		{"without a limit", 0, time.Hour, 0, time.Hour},
		{"without a limit, given up", -time.Minute, 2 * time.Hour, time.Hour, time.Hour},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				after := func(d time.Duration) <-chan struct{} {
					if d == 0 {
						return nil
					}
					over := make(chan struct{})
					time.AfterFunc(d, func() { close(over) })
					return over
				}
				begin := time.Now()
				waiting.ForChange(c.wait, after(c.changed), after(c.done))
				if took := time.Since(begin); took != c.took {
					t.Errorf("got %v, want %v", took, c.took)
				}
				time.Sleep(3 * time.Hour) // until all timers have fired
			})
		})
	}
}
