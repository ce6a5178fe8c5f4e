package agent_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/azurequeue"
	"github.com/millrace/millrace/queue/localqueue"
	"github.com/millrace/millrace/scaling"
	"github.com/millrace/millrace/scaling/agent"
)

// Everything that is wrong with pools and options is said at once, with the pool that it concerns.
func TestEverythingThatIsWrongIsSaidAtOnce(t *testing.T) {
	q := must(localqueue.New(nil)).Queue(queue.Name{Account: "test", Queue: "jobs"})
	more := func(account string) queue.Queue {
		return must(localqueue.New(nil)).Queue(queue.Name{Account: account, Queue: "more"})
	}
	var none *platform
	_, err := agent.New([]agent.Pool{
		{Name: "fine", Queues: []queue.Queue{q}},
		{Name: "FINE", Queues: []queue.Queue{q, nil, q}},
		{Name: "a/b", Policy: scaling.Policy{Memory: 0.8}},
		{Name: "bad", Queues: []queue.Queue{q}, Beacons: []queue.Queue{nil}, Actuator: none, Policy: scaling.Policy{Min: 5, Max: 3, Utilization: 2}},
		{Name: "first", Queues: []queue.Queue{more("test")}, Actuator: &platform{}},
		{Name: "second", Queues: []queue.Queue{more("TEST")}, Actuator: &platform{}},
		{Name: "dry", Queues: []queue.Queue{more("test")}},
		{Name: "control", Queues: []queue.Queue{more("other"), more("Other")}, Beacons: []queue.Queue{more("OTHER"), q}},
	}, &agent.Options{Interval: 10, Prices: agent.Prices{InstanceHour: -1}})
	if err == nil {
		t.Fatal("got no error")
	}
	for _, want := range []string{
		"Interval 10ns is too short",
		"Prices.InstanceHour -1 is negative",
		`pool 2 ("FINE"): Name is also that of pool 1`,
		`pool 2 ("FINE"): Queues[1] is nil`,
		`pool 2 ("FINE"): Queues[2] is test/jobs like Queues[0]`,
		`pool 6 ("second"): Queues[0] is TEST/more, which pool 5 ("first") has already`,
		`pool 3 ("a/b"): Name must have`,
		`pool 3 ("a/b"): Queues is empty`,
		`pool 3 ("a/b"): the policy bounds CPU or memory, which only instances report`,
		`pool 4 ("bad"): Beacons[0] is nil`,
		`pool 8 ("control"): Queues[1] is Other/more like Queues[0]`,
		`pool 8 ("control"): Beacons[0] is OTHER/more, from which instances take jobs: reports need a queue of their own`,
		`pool 8 ("control"): Beacons[1] is test/jobs, from which instances take jobs`,
		`pool 4 ("bad"): Actuator is a nil *agent_test.platform`,
		`pool 4 ("bad"): scaling policy: Min is 5 and Max 3`,
		`Utilization is 2`,
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error lacks %q:\n%v", want, err)
		}
	}
	if strings.Contains(err.Error(), `("dry")`) {
		t.Errorf("a dry run beside the pool that has the queue is refused:\n%v", err)
	}
	if _, err := agent.New(nil, nil); err == nil || !strings.Contains(err.Error(), "there is no pool") {
		t.Errorf("without pools: got %v", err)
	}
	for _, name := range []string{"", ".", "..", "-a", ".a", "a b", "a\\b", "a:b", "ü", strings.Repeat("a", 101)} {
		if _, err := agent.New([]agent.Pool{{Name: name, Queues: []queue.Queue{q}}}, nil); err == nil {
			t.Errorf("name %q: got no error", name)
		}
	}
}

// The location of an account may be written in several ways: it is the same account.
func TestAnAccountIsTheSameHoweverItIsWritten(t *testing.T) {
	const address, signature = "https://acme.queue.core.windows.net", "?sv=2026-01-01&sig=c2VjcmV0"
	open := func(location string) queue.Queue {
		q, err := azurequeue.Open(location, "jobs", nil)
		if err != nil {
			t.Fatal(err)
		}
		return q
	}
	for _, other := range []string{address + "/" + signature, "https://ACME.queue.core.windows.net" + signature, "https://Acme.Queue.Core.Windows.Net/" + signature} {
		_, err := agent.New([]agent.Pool{
			{Name: "a", Queues: []queue.Queue{open(address + signature)}, Actuator: &platform{}},
			{Name: "b", Queues: []queue.Queue{open(other)}, Beacons: []queue.Queue{open(other)}, Actuator: &platform{}},
		}, nil)
		for _, want := range []string{`pool 2 ("b"): Queues[0] is `, `pool 2 ("b"): Beacons[0] is `} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: got %v, want %q", other, err, want)
			}
		}
	}
}

// An agent runs once.
func TestAnAgentRunsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := created(t, must(localqueue.New(nil)), "jobs")
		a := start(t, agent.Options{}, agent.Pool{Name: "pool", Queues: []queue.Queue{q}})
		after(time.Second)
		if err := a.agent.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "make another one") {
			t.Errorf("a second Run: got %v", err)
		}
		if err := a.stop(); err != nil {
			t.Error(err)
		}
	})
}
