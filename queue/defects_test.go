package queue_test

import (
	"context"
	"errors"
	"maps"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/suitetest"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/driver"
	"github.com/millrace/millrace/queue/localqueue"
	"github.com/millrace/millrace/queue/queuetest"
)

// Each defect is a mistake that a queue could have, wrapped around a correct queue. The suite must
// find it.
type defect struct {
	name  string
	found string // the test that must find it
	make  func(q queue.Manager) queue.Manager
}

var defects = []defect{
	{"visibility rounded down", "FractionsOfASecondAreRoundedUp", func(q queue.Manager) queue.Manager { return roundsDown{q} }},
	{"visibility a second short", "HiddenWhileLeasedThenBack", func(q queue.Manager) queue.Manager { return early{q} }},
	{"old receipts stay valid", "UpdateSupersedesTheReceipt", func(q queue.Manager) queue.Manager { return &forgiving{Manager: q} }},
	{"old receipts stay valid", "AnyHistoryFollowsTheModel", func(q queue.Manager) queue.Manager { return &forgiving{Manager: q} }},
	{"old receipts stay valid", "WorkedTrace", func(q queue.Manager) queue.Manager { return &forgiving{Manager: q} }},
	{"messages live seven days", "ForeverIsTheDefault", func(q queue.Manager) queue.Manager { return sevenDays{q} }},
	{"text is trimmed", "TextRoundTrip", func(q queue.Manager) queue.Manager { return trims{q} }},
	{"peek hands out receipts", "PeekHidesNothingAndCountsNothing", func(q queue.Manager) queue.Manager { return peeksByDequeue{q} }},
	{"create takes any metadata", "CreateComparesMetadata", func(q queue.Manager) queue.Manager { return createsTwice{q} }},
	{"metadata are merged", "SetMetadataReplacesTheWholeSet", func(q queue.Manager) queue.Manager { return merges{q} }},
	{"context is ignored", "EndedContextDoesNothing", func(q queue.Manager) queue.Manager { return deaf{q} }},
	{"sibling is the queue itself", "SiblingIsAQueueOfItsOwn", func(q queue.Manager) queue.Manager { return onlyChild{q} }},
	{"sibling is no manager", "SiblingIsAQueueOfItsOwn", func(q queue.Manager) queue.Manager { return plainSibling{q} }},
	{"leases are not checked", "BadArgumentsSpendNoRequest", func(q queue.Manager) queue.Manager { return trusting{q} }},
	{"clear leaves leased messages", "ClearDeletesAllMessages", func(q queue.Manager) queue.Manager { return clearsVisible{q} }},
	{"errors are bare", "ErrorsSayWhatWhereAndWhy", func(q queue.Manager) queue.Manager { return terse{q} }},
	{"depth counts visible messages", "DepthCountsHiddenMessagesToo", func(q queue.Manager) queue.Manager { return shallow{q} }},
}

// accountDefects are mistakes that an account could have.
var accountDefects = []struct {
	name  string
	found string
	make  func(a queue.Account) queue.Account
}{
	{"prefix is ignored", "ListAllAreTheQueuesWithThePrefix", func(a queue.Account) queue.Account {
		return lists{a, func(o asked) asked { o.prefix = o.prefix[:min(len(o.prefix), 8)]; return o }, nil}
	}},
	{"pages have one more", "PagesHaveEveryQueueOnce", func(a queue.Account) queue.Account {
		return lists{a, func(o asked) asked { o.limit++; return o }, nil}
	}},
	{"the marker is ignored", "PagesHaveEveryQueueOnce", func(a queue.Account) queue.Account {
		return lists{a, func(o asked) asked { o.marker = ""; return o }, nil}
	}},
	{"the first page is the last", "AnyPrefixInPagesOfAnySize", func(a queue.Account) queue.Account {
		return lists{a, nil, func(p *page) { p.next = "" }}
	}},
	{"pages overlap", "PagesHaveEveryQueueOnce", func(a queue.Account) queue.Account {
		return lists{a, nil, func(p *page) {
			if p.next != "" && len(p.queues) > 1 {
				p.next = p.queues[len(p.queues)-1].Name
			}
		}}
	}},
	{"metadata are left out", "ListHasQueuesThatExistWithTheirMetadata", func(a queue.Account) queue.Account {
		return lists{a, nil, func(p *page) {
			for i := range p.queues {
				p.queues[i].Metadata = nil
			}
		}}
	}},
	{"names are not checked", "OpenRefusesBadNames", func(a queue.Account) queue.Account { return opensAll{a} }},
	{"sizes are not checked", "BadListsSpendNoRequest", func(a queue.Account) queue.Account {
		return lists{a, func(o asked) asked { o.limit = min(max(o.limit, 0), driver.MaxPage); return o }, nil}
	}},
}

// lists changes the arguments or the result of a list.
type lists struct {
	queue.Account
	ask    func(asked) asked
	answer func(*page)
}

// asked are the arguments of a list.
type asked struct {
	prefix, marker string
	limit          int
}

func (a lists) List(ctx context.Context, prefix, marker string, limit int) ([]queue.Listed, string, error) {
	o := asked{prefix, marker, limit}
	if a.ask != nil {
		o = a.ask(o)
	}
	queues, next, err := a.Account.List(ctx, o.prefix, o.marker, o.limit)
	p := page{queues, next}
	if a.answer != nil {
		a.answer(&p)
	}
	return p.queues, p.next, err
}

type opensAll struct{ queue.Account }

func (a opensAll) Open(name string) (queue.Manager, error) { return local(name), nil }

const chosen = "QUEUETEST_DEFECT"

// TestDefective runs the suite against one defect. It fails, and so runs only
// inside TestSuiteFindsDefects.
func TestDefective(t *testing.T) {
	name := os.Getenv(chosen)
	if name == "" {
		t.Skip("run by TestSuiteFindsDefects")
	}
	for _, d := range defects {
		if d.name+d.found == name {
			queuetest.Run(t, queuetest.Harness{Bubble: true, Open: func(_ *testing.T, name string) queue.Manager {
				return d.make(local(name))
			}})
		}
	}
	for _, d := range accountDefects {
		if d.name+d.found == name {
			queuetest.RunAccount(t, queuetest.AccountHarness{Bubble: true, Open: func(*testing.T) queue.Account {
				return d.make(must(localqueue.New(nil)).Account("local"))
			}})
		}
	}
}

func TestSuiteFindsDefects(t *testing.T) {
	t.Parallel()
	type sought struct{ name, found string }
	var all []sought
	for _, d := range defects {
		all = append(all, sought{d.name, d.found})
	}
	for _, d := range accountDefects {
		all = append(all, sought{d.name, d.found})
	}
	for _, d := range all {
		t.Run(d.name+" "+d.found, func(t *testing.T) {
			t.Parallel()
			suitetest.Defect{Variable: chosen, Name: d.name, Found: d.found}.MustBeFound(t)
		})
	}
}

// TestSuitePassesWithoutDefects: the suite passes the wrapped queue without a defect.
func TestSuitePassesWithoutDefects(t *testing.T) {
	queuetest.Run(t, queuetest.Harness{Bubble: true, Open: func(_ *testing.T, name string) queue.Manager { return local(name) }})
}

func local(name string) queue.Manager {
	return must(localqueue.New(nil)).Queue(queue.Name{Account: "local", Queue: name})
}

type roundsDown struct{ queue.Manager }

func (q roundsDown) Dequeue(ctx context.Context, n int, visibility time.Duration) ([]queue.Message, error) {
	if visibility > time.Second {
		visibility = visibility.Truncate(time.Second)
	}
	return q.Manager.Dequeue(ctx, n, visibility)
}

type early struct{ queue.Manager }

func (q early) Dequeue(ctx context.Context, n int, visibility time.Duration) ([]queue.Message, error) {
	return q.Manager.Dequeue(ctx, n, max(visibility-time.Second, time.Second))
}

// forgiving accepts every old receipt as the newest one.
type forgiving struct {
	queue.Manager
	newest map[queue.ID]queue.Receipt
}

func (q *forgiving) Dequeue(ctx context.Context, n int, visibility time.Duration) ([]queue.Message, error) {
	batch, err := q.Manager.Dequeue(ctx, n, visibility)
	for _, m := range batch {
		q.keep(m.Lease)
	}
	return batch, err
}

func (q *forgiving) Update(ctx context.Context, l queue.Lease, text string, visibility time.Duration) (queue.Lease, error) {
	renewed, err := q.Manager.Update(ctx, q.renew(l), text, visibility)
	if err == nil {
		q.keep(renewed)
	}
	return renewed, err
}

func (q *forgiving) Delete(ctx context.Context, l queue.Lease) error {
	return q.Manager.Delete(ctx, q.renew(l))
}

func (q *forgiving) keep(l queue.Lease) {
	if q.newest == nil {
		q.newest = make(map[queue.ID]queue.Receipt)
	}
	q.newest[l.ID] = l.Receipt
}

func (q *forgiving) renew(l queue.Lease) queue.Lease {
	if newest, ok := q.newest[l.ID]; ok {
		l.Receipt = newest
	}
	return l
}

type sevenDays struct{ queue.Manager }

func (q sevenDays) Enqueue(ctx context.Context, text string, o *queue.EnqueueOptions) (queue.Message, error) {
	if o == nil {
		o = &queue.EnqueueOptions{TTL: 7 * 24 * time.Hour}
	}
	return q.Manager.Enqueue(ctx, text, o)
}

type trims struct{ queue.Manager }

func (q trims) Enqueue(ctx context.Context, text string, o *queue.EnqueueOptions) (queue.Message, error) {
	return q.Manager.Enqueue(ctx, strings.TrimSpace(text), o)
}

type peeksByDequeue struct{ queue.Manager }

func (q peeksByDequeue) Peek(ctx context.Context, n int) ([]queue.Message, error) {
	return q.Dequeue(ctx, n, time.Second)
}

type createsTwice struct{ queue.Manager }

func (q createsTwice) Create(ctx context.Context, metadata map[string]string) error {
	err := q.Manager.Create(ctx, metadata)
	if errors.Is(err, queue.ErrQueueExists) {
		return nil
	}
	return err
}

type merges struct{ queue.Manager }

func (q merges) SetMetadata(ctx context.Context, metadata map[string]string) error {
	p, err := q.Properties(ctx)
	if err != nil {
		return err
	}
	maps.Copy(p.Metadata, metadata)
	return q.Manager.SetMetadata(ctx, p.Metadata)
}

type deaf struct{ queue.Manager }

func (q deaf) Enqueue(ctx context.Context, text string, o *queue.EnqueueOptions) (queue.Message, error) {
	return q.Manager.Enqueue(context.WithoutCancel(ctx), text, o)
}

type onlyChild struct{ queue.Manager }

func (q onlyChild) Sibling(string) queue.Queue { return q }

type plainSibling struct{ queue.Manager }

func (q plainSibling) Sibling(suffix string) queue.Queue {
	return struct{ queue.Queue }{q.Manager.Sibling(suffix)}
}

type trusting struct{ queue.Manager }

func (q trusting) Delete(ctx context.Context, l queue.Lease) error {
	if l.Receipt == "" {
		return nil
	}
	return q.Manager.Delete(ctx, l)
}

type clearsVisible struct{ queue.Manager }

func (q clearsVisible) Clear(ctx context.Context) error {
	for {
		batch, err := q.Dequeue(ctx, queue.MaxBatch, time.Hour)
		if err != nil || len(batch) == 0 {
			return err
		}
		for _, m := range batch {
			if err := q.Delete(ctx, m.Lease); err != nil {
				return err
			}
		}
	}
}

type terse struct{ queue.Manager }

func (q terse) Delete(ctx context.Context, l queue.Lease) error {
	err := q.Manager.Delete(ctx, l)
	for _, kind := range []error{queue.ErrMessageGone, queue.ErrReceiptMismatch, queue.ErrInvalid} {
		if errors.Is(err, kind) {
			return kind
		}
	}
	return err
}

type shallow struct{ queue.Manager }

func (q shallow) Properties(ctx context.Context) (queue.Properties, error) {
	p, err := q.Manager.Properties(ctx)
	if seen, failed := q.Peek(ctx, queue.MaxBatch); failed == nil {
		p.Depth = int64(len(seen))
	}
	return p, err
}
