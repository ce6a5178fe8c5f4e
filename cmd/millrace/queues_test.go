package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/localqueue"
)

func TestQueuesListsQueues(t *testing.T) {
	t.Parallel()
	accounts(t, func(t *testing.T, v invocation) {
		first := createQueue(t, v)
		prefix := first[:strings.LastIndex(first, "-")+1]
		if got := v.ok(t, "queues", "-names", first); got != first+"\n" {
			t.Errorf("queues with a prefix: got %q, want %s", got, first)
		}
		r := v.call(t, "queues", first+"x")
		if r.status != exitOK || r.out != "" || !strings.Contains(r.errs, `begin with "`+first+`x"`) || !strings.Contains(r.errs, "millrace create QUEUE") {
			t.Errorf("queues without a match: got %+v, want success and a hint", r)
		}
		if r := v.call(t, "queues", "-json", first+"x"); r != (result{}) {
			t.Errorf("queues -json without a match: got %+v, want no output", r)
		}
		second := createQueue(t, v)
		if err := v.open(t, second).SetMetadata(t.Context(), map[string]string{"owner": "<ada>"}); err != nil {
			t.Fatal(err)
		}
		listed := strings.Fields(v.ok(t, "queues", "-names"))
		if !slices.IsSorted(listed) || !slices.Contains(listed, first) || !slices.Contains(listed, second) {
			t.Errorf("queues: got %q, want both, sorted", listed)
		}
		var objects []string
		for line := range strings.Lines(v.ok(t, "queues", "-names", prefix, "-json")) {
			if strings.Contains(line, second) {
				objects = append(objects, line)
			}
			if !json.Valid([]byte(line)) {
				t.Errorf("queues -json: got the line %q, want JSON", line)
			}
		}
		if want := `{"name":"` + second + `","paused":false,"pausedSince":null,"metadata":{"owner":"<ada>"}}` + "\n"; len(objects) != 1 || objects[0] != want {
			t.Errorf("queues -names -json: got %q, want %q", objects, want)
		}
	})
}

func TestQueuesRefusesAnImpossiblePrefix(t *testing.T) {
	t.Parallel()
	invocation{}.fails(t, exitUsage, []string{`begins with "Orders"`, "lower-case"}, "queues", "Orders")
	invocation{}.fails(t, exitUsage, []string{"unexpected argument", "millrace queues [PREFIX]"}, "queues", "a", "b")
}

// TestTheOverviewShowsDepths: of all queues, with their poison and pauses, in the order of the names.
func TestTheOverviewShowsDepths(t *testing.T) {
	t.Parallel()
	v := on(startServer(t))
	for _, name := range []string{"orders", "orders-eu", "orders-poison", "a-long-name-of-a-queue", "mail"} {
		v.ok(t, "create", name)
	}
	v.ok(t, "put", "orders", "1", "2", "3", "-delay", "1h")
	v.ok(t, "put", "orders-poison", "1", "2")
	if err := v.open(t, "mail").SetMetadata(t.Context(), map[string]string{"paused": "until Monday"}); err != nil {
		t.Fatal(err)
	}
	const all = `queue                   messages  poison  paused
a-long-name-of-a-queue  0
mail                    0                 until Monday
orders                  3         2
orders-eu               0
orders-poison           2
`
	for _, command := range []string{"queues", "stat"} {
		if got := v.ok(t, command); got != all {
			t.Errorf("%s: got\n%s\nwant\n%s", command, got, all)
		}
	}
	if got, want := v.ok(t, "queues", "orders-"), "queue          messages  poison  paused\norders-eu      0\norders-poison  2\n"; got != want {
		t.Errorf("queues orders-: got\n%s\nwant\n%s", got, want)
	}
	const object = `{"name":"orders","paused":false,"pausedSince":null,"metadata":{},"depth":3,"poisonDepth":2}` + "\n"
	if got := v.ok(t, "stat", "-json"); strings.Count(got, "\n") != 5 || !strings.Contains(got, object) {
		t.Errorf("stat -json: got\n%s\nwant 5 objects, among them %s", got, object)
	}
}

// TestTheOverviewGoesOnAfterAFailure: a depth that cannot be read is unknown, a queue that was
// dropped meanwhile is left out, and each row is printed before a later one is read.
func TestTheOverviewGoesOnAfterAFailure(t *testing.T) {
	t.Parallel()
	engine := must(localqueue.New(nil))
	var names []queue.Listed
	const queues = 3 * atATime
	for n := range queues {
		name := fmt.Sprintf("q-%02d", n)
		names = append(names, queue.Listed{Name: name})
		if err := engine.Queue(queue.Name{Account: "a", Queue: name}).Create(t.Context(), nil); n != 1 && err != nil {
			t.Fatal(err)
		}
	}
	if err := engine.Queue(queue.Name{Account: "a", Queue: "q-01"}).Drop(t.Context()); err != nil {
		t.Fatal(err)
	}
	shown := make(chan struct{})
	a := &listedAccount{engine: engine, names: names, refused: "q-02", last: fmt.Sprintf("q-%02d", queues-1), shown: shown}
	a.full.Add(atATime)
	out := &firstRow{shown: shown}
	var errs strings.Builder
	c := &console{out: out, err: &errs}
	err := (&task{console: c, account: a, finish: t.Context()}).overview(t.Context(), "", false)
	if err == nil || !strings.HasPrefix(err.Error(), fmt.Sprintf("1 of %d queues could not be read: ", queues)) || !errors.Is(err, queue.ErrUnauthorized) {
		t.Errorf("got %v, want that one could not be read", err)
	}
	lines := strings.Split(out.String(), "\n")
	if len(lines) != queues+1 || lines[1] != "q-00   0" || lines[2] != "q-02   ?" || lines[queues-1] != a.last+"   0" {
		t.Errorf("got\n%s\nwant all but q-01, and q-02 unknown", out)
	}
	if most := a.most.Load(); most != atATime {
		t.Errorf("got %d requests at a time, want %d", most, atATime)
	}
}

// listedAccount is an account that refuses to read one queue, delays the first ones until as many
// are read as may be, and the last until a row is shown.
type listedAccount struct {
	queue.Account
	engine        *localqueue.Engine
	names         []queue.Listed
	refused, last string
	shown         chan struct{}
	full          sync.WaitGroup
	now, most     atomic.Int64 // requests in progress
}

func (a *listedAccount) Name() string { return "a" }

func (a *listedAccount) List(context.Context, string, string, int) ([]queue.Listed, string, error) {
	return a.names, "", nil
}

func (a *listedAccount) Open(name string) (queue.Manager, error) {
	return countedQueue{a.engine.Queue(queue.Name{Account: "a", Queue: name}), a}, nil
}

type countedQueue struct {
	queue.Manager
	account *listedAccount
}

func (q countedQueue) Properties(ctx context.Context) (queue.Properties, error) {
	now := q.account.now.Add(1)
	defer q.account.now.Add(-1)
	for most := q.account.most.Load(); now > most && !q.account.most.CompareAndSwap(most, now); most = q.account.most.Load() {
	}
	if q.Name().Queue < fmt.Sprintf("q-%02d", atATime) {
		q.account.full.Done()
		q.account.full.Wait()
	}
	switch q.Name().Queue {
	case q.account.refused:
		return queue.Properties{}, &queue.Error{Op: "properties", Queue: q.Name(), Kind: queue.ErrUnauthorized, Status: 403}
	case q.account.last:
		<-q.account.shown
	}
	return q.Manager.Properties(ctx)
}

// firstRow is an output that signals its first row.
type firstRow struct {
	strings.Builder
	shown chan struct{}
	once  sync.Once
}

func (f *firstRow) Write(p []byte) (int, error) {
	n, err := f.Builder.Write(p)
	if strings.Count(f.String(), "\n") > 1 {
		f.once.Do(func() { close(f.shown) })
	}
	return n, err
}
