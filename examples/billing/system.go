package main

import (
	"context"
	"errors"
	"iter"
	"log/slog"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/blob"
	"github.com/millrace/millrace/blob/gather"
	"github.com/millrace/millrace/dispatcher"
	"github.com/millrace/millrace/examples/billing/books"
	"github.com/millrace/millrace/examples/billing/records"
	"github.com/millrace/millrace/kinds"
	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/poison"
	"github.com/millrace/millrace/producer"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/metered"
)

type roles uint8

const (
	initiator  roles = 1 << iota // splits batches into items
	worker                       // charges the records of items
	controller                   // records batches in the books
	allRoles   = initiator | worker | controller
)

// Names of the queues, in the order of a batch, and of the control queue for reports of workers.
const (
	batchesQueue = "billing-batches"
	workQueue    = "billing-work"
	resultsQueue = "billing-results"
	beaconsQueue = "billing-beacons"
)

// ledger records batches, as [books.Books] do.
type ledger interface {
	Record(ctx context.Context, b *books.Batch, parts iter.Seq2[*books.Part, error]) (first bool, err error)
}

// options configure a [system]. The zero value of an optional field means the default.
type options struct {
	roles      roles
	books      ledger                 // of the controller
	tariffs    records.Tariffs        // of the initiator, for batches that are not split yet; the built-in ones by default
	wakeups    listener.Wakeups       // optional; the queues are polled without it
	idle       listener.Idle          // optional
	visibility time.Duration          // after how long the messages of a killed process come back; 30 s by default
	work       time.Duration          // how long an item takes beside charging it
	beacon     listener.BeaconOptions // optional
	reported   func(books.Batch)
	logger     *slog.Logger
}

// system plays roles in one process.
type system struct {
	options
	store   blob.Store
	parts   *gather.Gather // parts of the items, and the ends of batches that are in the books
	meter   *metered.Meter
	batches *producer.Producer[batchMessage]
	items   *producer.Producer[item]
	results *producer.Producer[result]
	turn    chan struct{} // has a value while a batch is being recorded
	runners []millrace.Runner
	known   atomic.Pointer[knownTariffs] // of the batch that was charged last
}

type knownTariffs struct {
	batch   string
	tariffs records.Tariffs
}

const partsContainer = "billing-parts"

// newSystem returns a system on an account and a store, which all processes share. It sends nothing.
func newSystem(account queue.Account, store blob.Store, o options) (*system, error) {
	s := &system{options: o, store: store, meter: new(metered.Meter), turn: make(chan struct{}, 1)}
	if s.tariffs == nil {
		s.tariffs = records.BuiltInTariffs()
	}
	if s.visibility == 0 {
		s.visibility = 30 * time.Second
	}
	if s.reported == nil {
		s.reported = func(books.Batch) {}
	}
	var err error
	if s.parts, err = gather.New(store, partsContainer, nil); err != nil {
		return nil, err
	}
	queues := make(map[string]queue.Queue)
	for _, name := range []string{batchesQueue, workQueue, resultsQueue} {
		q, err := account.Open(name)
		if err != nil {
			return nil, err
		}
		queues[name] = s.meter.Wrap(q)
	}
	s.batches = batchKind.Producer(queues[batchesQueue], &producer.Options[batchMessage]{Create: true})
	s.items = itemKind.Producer(queues[workQueue], &producer.Options[item]{Create: true})
	s.results = resultKind.Producer(queues[resultsQueue], &producer.Options[result]{Create: true})
	limits := &kinds.Options{MaxAttempts: maxAttempts, RetryDelay: retryDelay}
	if s.roles&initiator != 0 {
		err = errors.Join(err, s.listen(queues[batchesQueue], batchKind.Handle(s.split, limits), listener.Options[any]{Concurrency: 2, Fetch: listener.FetchOptions{BatchSize: 1}}))
	}
	if s.roles&worker != 0 {
		err = errors.Join(err, s.listen(queues[workQueue], itemKind.Handle(listener.Batch(s.charge, together, collecting), limits),
			listener.Options[any]{Concurrency: workerSlots(runtime.GOMAXPROCS(0)), Fetch: listener.FetchOptions{BatchSize: 2 * together, MinFetch: together}, Beacon: s.beacon}))
	}
	if s.roles&controller != 0 {
		err = errors.Join(err, s.listen(queues[resultsQueue], resultKind.Handle(s.collect, limits), listener.Options[any]{Concurrency: 16, Fetch: listener.FetchOptions{BatchSize: 16}}))
	}
	if err != nil {
		return nil, err
	}
	return s, nil
}

// A message is not given up because the store or the books are away for hours, or because processes are killed again
// and again. A message that can never succeed is poison immediately.
const (
	maxAttempts = 1000
	maxLost     = 1000
	maxDelay    = time.Minute // between attempts
	grace       = 2 * time.Second
)

// retryDelay is short at first: most failures last for seconds.
func retryDelay(attempt int, _ error) time.Duration {
	return min(time.Second<<min(attempt-1, 10), maxDelay)
}

// listen adds the listener of a role.
func (s *system) listen(q queue.Queue, kind listener.Kind, o listener.Options[any]) error {
	o.Create, o.Fetch.Idle, o.Wakeups, o.Grace, o.Logger = true, s.idle, s.wakeups, grace, s.logger
	o.Lease.Visibility = dispatcher.FixedVisibility(s.visibility)
	o.Poison = listener.PoisonPolicy{MaxLost: maxLost}
	o.Observer = listener.Observer{Poisoned: s.poisoned}
	l, err := listener.NewKinds(q, []listener.Kind{kind}, &o)
	if err != nil {
		return err
	}
	s.runners = append(s.runners, l)
	return nil
}

// poisoned names the batch that waits because of a poison message.
func (s *system) poisoned(d listener.Delivery, _ poison.Reason, err error) {
	if batch, _, _ := strings.Cut(d.Job, "/"); batch != "" {
		s.logger.Error("a batch waits because of a poison message: fix the cause, then run millrace poison redrive "+d.Queue.Queue,
			"batch", batch, "job", d.Job, "error", err)
	}
}

// jobID names an item in logs and in the poison queue.
func jobID(batch string, item int) string { return batch + "/" + strconv.Itoa(item) }

// workerSlots returns how many items a worker has in hand: a set for each processor, and one that is fetched or answered
// meanwhile.
func workerSlots(processors int) int { return together * min(1+processors, 16) }
