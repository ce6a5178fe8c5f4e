package millrace_test

import (
	"net/http"
	"testing"

	"github.com/millrace/millrace/emulator"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/azurequeue"
	"github.com/millrace/millrace/queue/localqueue"
	"github.com/millrace/millrace/queue/metered"
)

// bundle is a metered queue of a server that counts too.
type bundle struct {
	server *emulator.Server
	meter  *metered.Meter
	queue  queue.Manager // counted by both
	direct queue.Manager // the same queue, counted by nobody
}

func setup(t *testing.T, faults string) *bundle {
	t.Helper()
	rules, err := emulator.ParseFaults(faults)
	if err != nil {
		t.Fatal(err)
	}
	engine := must(localqueue.New(nil))
	server := must(emulator.New(engine, &emulator.Options{Faults: &emulator.Faults{Seed: 3, Rules: rules}}))
	q, err := azurequeue.Open(server.ConnectionString(), "jobs", &azurequeue.Options{Transport: &http.Client{Transport: server}})
	if err != nil {
		t.Fatal(err)
	}
	m := new(metered.Meter)
	return &bundle{server: server, meter: m, queue: m.Wrap(q).(queue.Manager), direct: engine.Queue(q.Name())}
}
