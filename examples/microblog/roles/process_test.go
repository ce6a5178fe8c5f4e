package roles

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/millrace/millrace/examples/microblog/channels"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/azurequeue"
	"github.com/millrace/millrace/table"
	"github.com/millrace/millrace/table/filetable"
)

// report is a line that a worker process writes for the test that has started it.
type report struct {
	What  string // "saved", "group", "page", "late" or "deleted"
	Lease queue.Lease
	Text  string      // of the message; with "saved", "group" and "late"
	Token table.Token // where a page begins
	Posts int         // of a page
}

// reporter writes what the worker does, and lets it stand still where it is to die.
type reporter struct {
	die string

	mu    sync.Mutex
	held  queue.Message // the message that has been dequeued, or saved; guarded by mu
	group int           // groups that were deleted; guarded by mu
}

func (r *reporter) say(one report) {
	line, err := json.Marshal(one)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(string(line))
}

// dieAt stands still for ever if this is where the process is to die.
func (r *reporter) dieAt(where string) {
	if where != r.die {
		return
	}
	r.mu.Lock()
	one := report{What: where, Lease: r.held.Lease, Text: r.held.Text}
	r.mu.Unlock()
	r.say(one)
	select {}
}

// workInProcess is a process with the worker role.
func workInProcess(location, file, die string) {
	db, err := filetable.Open(file, nil)
	if err != nil {
		log.Fatal(err)
	}
	site, err := siteOf(db)
	if err != nil {
		log.Fatal(err)
	}
	q, err := azurequeue.Open(location, QueueName, nil)
	if err != nil {
		log.Fatal(err)
	}
	r := &reporter{die: die}
	site.Posts = reportedTable{site.Posts, r}
	reported := &reportedQueue{q, r}
	quiet := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	role := &worker{site: site, deletions: newProducer(reported, nil), page: pageSize, logger: quiet}
	if err := role.listen(reported, nil, visibility).Run(context.Background()); err != nil {
		log.Fatal(err)
	}
}

func siteOf(db *filetable.DB) (s *channels.Site, err error) {
	s = &channels.Site{}
	if s.Channels, err = db.Table("Channels"); err != nil {
		return nil, err
	}
	s.Posts, err = db.Table("Blogs")
	return s, err
}

// reportedQueue is the queue of a process that reports.
type reportedQueue struct {
	queue.Queue
	reporter *reporter
}

func (q *reportedQueue) Dequeue(ctx context.Context, n int, visibility time.Duration) ([]queue.Message, error) {
	batch, err := q.Queue.Dequeue(ctx, n, visibility)
	for _, m := range batch {
		q.reporter.mu.Lock()
		q.reporter.held = m
		q.reporter.mu.Unlock()
	}
	return batch, err
}

func (q *reportedQueue) Update(ctx context.Context, l queue.Lease, text string, visibility time.Duration) (queue.Lease, error) {
	fresh, err := q.Queue.Update(ctx, l, text, visibility)
	if err != nil {
		return fresh, err
	}
	q.reporter.mu.Lock()
	saved := bodyOf(q.reporter.held.Text) != bodyOf(text)
	q.reporter.held.Lease, q.reporter.held.Text = fresh, text
	q.reporter.mu.Unlock()
	if saved {
		q.reporter.dieAt("saved")
	}
	return fresh, nil
}

func (q *reportedQueue) Enqueue(ctx context.Context, text string, o *queue.EnqueueOptions) (queue.Message, error) {
	m, err := q.Queue.Enqueue(ctx, text, o)
	if err == nil {
		q.reporter.say(report{What: "late", Lease: m.Lease, Text: text})
	}
	return m, err
}

func (q *reportedQueue) Delete(ctx context.Context, l queue.Lease) error {
	err := q.Queue.Delete(ctx, l)
	if err == nil {
		q.reporter.say(report{What: "deleted"})
	}
	return err
}

// reportedTable is the table of posts of a process that reports.
type reportedTable struct {
	table.Store
	reporter *reporter
}

func (t reportedTable) Query(ctx context.Context, q table.Query) (table.Page, error) {
	p, err := t.Store.Query(ctx, q)
	if err == nil {
		t.reporter.say(report{What: "page", Token: q.Token, Posts: len(p.Entities)})
	}
	return p, err
}

func (t reportedTable) Apply(ctx context.Context, changes []table.Change) ([]table.ETag, error) {
	etags, err := t.Store.Apply(ctx, changes)
	if err == nil {
		t.reporter.mu.Lock()
		t.reporter.group++
		second := t.reporter.group == 2
		t.reporter.mu.Unlock()
		if second {
			t.reporter.dieAt("group")
		}
	}
	return etags, err
}
