package natswakeup

import (
	"sync"
	"testing"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/millrace/millrace/wakeup/wakeuptest"
)

func TestConformance(t *testing.T) { // L-40
	type world struct {
		server *server.Server
		all    []*Transport
		others int
	}
	worlds := make(map[*testing.T]*world)
	var mu sync.Mutex
	wakeuptest.Run(t, wakeuptest.Harness{
		Between: true,
		Open: func(t *testing.T, n int) []wakeuptest.Process {
			w := &world{server: serve(t, -1, nil)}
			w.others = int(w.server.NumSubscriptions())
			var processes []wakeuptest.Process
			for range n {
				transport := setup(t, w.server)
				w.all = append(w.all, transport)
				processes = append(processes, wakeuptest.Process{Source: transport, Publisher: transport})
			}
			mu.Lock()
			defer mu.Unlock()
			worlds[t] = w
			return processes
		},
		Settle: func(t *testing.T) {
			mu.Lock()
			w := worlds[t]
			mu.Unlock()
			settle(t, w.server, w.all, w.others)
		},
	})
}
