package roles

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/millrace/millrace/examples/microblog/channels"
	"github.com/millrace/millrace/table"
)

// journal has the order in which requests reached the tables. What a reader or writer was told is compared with it.
type journal struct {
	mu     sync.Mutex
	number int                          // of the last request; guarded by mu
	marked map[channels.Incarnation]int // the request that marked it; guarded by mu
	faults []string                     // what must not happen; guarded by mu
}

func newJournal() *journal { return &journal{marked: map[channels.Incarnation]int{}} }

func (j *journal) fault(format string, args ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.faults = append(j.faults, fmt.Sprintf(format, args...))
}

// page checks what a reader was told whose last request had this number: no post of an incarnation that was marked
// before, and only posts of the incarnation of the channel. Posts have their incarnation as title.
func (j *journal) page(c channels.Channel, posts []channels.Post, last int) {
	j.mu.Lock()
	marked := j.marked[c.Incarnation]
	j.mu.Unlock()
	if marked != 0 && marked < last {
		j.fault("a page that ended at request %d has %d posts of %s, which request %d had marked", last, len(posts), c.Incarnation, marked)
	}
	for _, b := range posts {
		if b.Title != string(c.Incarnation) {
			j.fault("a page of %s has a post of %s", c.Incarnation, b.Title)
		}
	}
}

// written checks that a writer whose last request had this number was not told of a success in an incarnation that was
// marked before.
func (j *journal) written(c channels.Channel, last int) {
	j.mu.Lock()
	marked := j.marked[c.Incarnation]
	j.mu.Unlock()
	if marked != 0 && marked < last {
		j.fault("a write to %s that ended at request %d succeeded, and request %d had marked it", c.Incarnation, last, marked)
	}
}

// watched is a table whose requests take effect one after the other, in the order of the journal.
type watched struct {
	table.Store
	journal *journal
	last    *int // the number of the last request of this client; nil if nobody asks
}

func (w watched) request(act func()) {
	time.Sleep(time.Millisecond) // so that others come in between
	w.journal.mu.Lock()
	defer w.journal.mu.Unlock()
	w.journal.number++
	if w.last != nil {
		*w.last = w.journal.number
	}
	act()
}

func (w watched) Get(ctx context.Context, k table.Key) (e table.Entity, err error) {
	w.request(func() { e, err = w.Store.Get(ctx, k) })
	return e, err
}

func (w watched) Query(ctx context.Context, q table.Query) (p table.Page, err error) {
	w.request(func() { p, err = w.Store.Query(ctx, q) })
	return p, err
}

func (w watched) Insert(ctx context.Context, e table.Entity) (etag table.ETag, err error) {
	w.request(func() { etag, err = w.Store.Insert(ctx, e) })
	return etag, err
}

func (w watched) Update(ctx context.Context, e table.Entity) (etag table.ETag, err error) {
	w.request(func() {
		if etag, err = w.Store.Update(ctx, e); err == nil && e.Text("State") == "deleting" {
			w.journal.marked[channels.Incarnation(e.Text("Incarnation"))] = w.journal.number
		}
	})
	return etag, err
}

func (w watched) Delete(ctx context.Context, k table.Key, etag table.ETag) (err error) {
	w.request(func() { err = w.Store.Delete(ctx, k, etag) })
	return err
}

func (w watched) Apply(ctx context.Context, changes []table.Change) (etags []table.ETag, err error) {
	w.request(func() { etags, err = w.Store.Apply(ctx, changes) })
	return etags, err
}
