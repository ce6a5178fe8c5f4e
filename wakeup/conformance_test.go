package wakeup_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/millrace/millrace/wakeup"
	"github.com/millrace/millrace/wakeup/wakeuptest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestBusConforms(t *testing.T) { // L-34
	for name, bubble := range map[string]bool{"bubble": true, "real time": false} {
		t.Run(name, func(t *testing.T) {
			wakeuptest.Run(t, wakeuptest.Harness{Bubble: bubble, Open: func(*testing.T, int) []wakeuptest.Process {
				bus := new(wakeup.Bus)
				return []wakeuptest.Process{{Source: bus, Publisher: bus}}
			}})
		})
	}
}
