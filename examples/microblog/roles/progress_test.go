package roles

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/codec"
	"github.com/millrace/millrace/examples/microblog/channels"
	"github.com/millrace/millrace/internal/envelope"
	"github.com/millrace/millrace/internal/killtest"
	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/poison"
	"github.com/millrace/millrace/producer"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/table"
)

// notes are what a worker has read of the table of posts.
type notes struct {
	table.Store
	fault func() error // of the next request; nil for none

	mu     sync.Mutex
	sizes  []int         // of the pages; guarded by mu
	tokens []table.Token // where they began; guarded by mu
}

func (n *notes) Query(ctx context.Context, q table.Query) (table.Page, error) {
	if n.fault != nil {
		if err := n.fault(); err != nil {
			return table.Page{}, err
		}
	}
	page, err := n.Store.Query(ctx, q)
	if err == nil {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.sizes, n.tokens = append(n.sizes, len(page.Entities)), append(n.tokens, q.Token)
	}
	return page, err
}

// pages returns the sizes of the pages, and where they began.
func (n *notes) pages() ([]int, []table.Token) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.sizes), slices.Clone(n.tokens)
}

// noting returns a site that notes its pages.
func (w *world) noting(fault func() error) (*channels.Site, *notes) {
	s := w.site(nil)
	n := &notes{Store: s.Posts, fault: fault}
	s.Posts = n
	return s, n
}

// T-14, B-11: a worker goes through the pages, and once more from the beginning; nothing is left to find for the second
// deletion.
func TestADeletionGoesThroughThePagesUntilNoneHasAnything(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		c := w.create(50)
		s, noted := w.noting(nil)
		p := w.start(w.queue, s)
		w.request(c)
		time.Sleep(LateDelay / 2)
		if n := w.depth(""); n != 1 {
			t.Errorf("messages: got %d, want that of the second deletion", n)
		}
		w.settle()
		p.end(false)
		sizes, tokens := noted.pages()
		if want := []int{20, 20, 10, 0, 0}; !slices.Equal(sizes, want) {
			t.Errorf("pages: got %v, want %v", sizes, want)
		}
		var begins []bool
		for _, token := range tokens {
			begins = append(begins, token == "")
		}
		if !slices.Equal(begins, []bool{true, false, false, true, true}) {
			t.Errorf("tokens: got %q, want some for the second and the third", tokens)
		}
		w.mustBeRight("in the end")
	})
}

// T-14: the channel is deleted last, when its posts are gone and the second deletion is on its way.
func TestTheChannelIsDeletedLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.request(w.create(50))
		s := w.site(nil)
		ends := 0
		s.Channels = ending{s.Channels, func() {
			ends++
			page, err := w.posts.Query(t.Context(), table.Query{})
			if err != nil || len(page.Entities) != 0 || w.depth("") != 2 {
				t.Errorf("at the end of the channel: got %d posts and %d messages, %v; want none and 2", len(page.Entities), w.depth(""), err)
			}
		}}
		p := w.start(w.queue, s)
		w.settle()
		p.end(false)
		if ends != 1 {
			t.Errorf("deletions of the channel: got %d, want one", ends)
		}
		w.mustBeRight("in the end")
	})
}

// ending is a table that calls a function before each deletion.
type ending struct {
	table.Store
	before func()
}

func (e ending) Delete(ctx context.Context, k table.Key, etag table.ETag) error {
	e.before()
	return e.Store.Delete(ctx, k, etag)
}

// B-11: a worker that dies after it has saved its place leaves the pages before it done: the next goes on from there, and
// what was found before counts, so that a pass can be made by several workers.
func TestTheNextWorkerGoesOnFromTheSavedPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.request(w.create(90))
		var all []int
		var begins []table.Token
		kills := 0
		for killed := true; killed && kills < 20; kills++ {
			s, noted := w.noting(nil)
			k := &killtest.Killer{Kind: "save", Nth: 1, After: true}
			s.Channels = &killtest.Table{Store: s.Channels, Killer: k}
			s.Posts = &killtest.Table{Store: s.Posts, Killer: k}
			p := w.start(&killtest.Queue{Queue: &saves{Queue: w.queue, killer: k}, Killer: k}, s)
			time.Sleep(10 * time.Second)
			killed = k.Dead()
			p.end(killed)
			sizes, tokens := noted.pages()
			all, begins = append(all, sizes...), append(begins, tokens...)
		}
		// Two passes are empty: one before and one after the save that says that the second deletion was sent.
		if want := []int{20, 20, 20, 20, 10, 0, 0}; !slices.Equal(all, want) || kills != 7 {
			t.Errorf("pages: got %v by %d workers, want %v by one each", all, kills, want)
		}
		if len(begins) < 6 {
			t.Fatalf("pages: got %d, want at least 6", len(begins))
		}
		distinct := slices.Compact(slices.Sorted(slices.Values(begins[:5])))
		if begins[0] != "" || len(distinct) != 5 || begins[5] != "" {
			t.Errorf("places: got %q, want the beginning, four others, and the beginning", begins)
		}
		p := w.start(w.queue, w.site(nil))
		w.settle()
		p.end(false)
		w.mustBeRight("in the end")
	})
}

// A pass whose first pages had something is followed by another one, also if a worker that died has read those: posts may
// have come before the place since.
func TestWhatAWorkerBeforeHasFoundCounts(t *testing.T) {
	for _, found := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			c := w.create(10)
			first, err := w.posts.Query(t.Context(), table.Query{Top: 1})
			if err != nil {
				t.Fatal(err)
			}
			end := table.TokenFor(table.Key{Partition: first.Entities[0].Partition, Row: "9"})
			if _, err := producer.New[Deletion](w.queue, nil).Send(t.Context(), Deletion{c.Name, c.Incarnation, end, found, false, false}, nil); err != nil {
				t.Fatal(err)
			}
			s, noted := w.noting(nil)
			p := w.start(w.queue, s)
			time.Sleep(LateDelay / 2)
			sizes, _ := noted.pages()
			want := map[bool][]int{false: {0}, true: {0, 10, 0}}[found]
			if !slices.Equal(sizes, want) {
				t.Errorf("found before: %v: got pages of %v, want %v", found, sizes, want)
			}
			w.settle()
			p.end(false)
			w.mustBeRight("in the end")
		})
	}
}

// saves is a queue of a process that is killed at a save.
type saves struct {
	queue.Queue
	killer *killtest.Killer
	text   string // of the message as it came
}

func (q *saves) Dequeue(ctx context.Context, n int, visibility time.Duration) ([]queue.Message, error) {
	batch, err := q.Queue.Dequeue(ctx, n, visibility)
	for _, m := range batch {
		q.text = m.Text
	}
	return batch, err
}

func (q *saves) Update(ctx context.Context, l queue.Lease, text string, visibility time.Duration) (fresh queue.Lease, err error) {
	if bodyOf(text) == bodyOf(q.text) { // a renewal
		return q.Queue.Update(ctx, l, text, visibility)
	}
	err = q.killer.Step("save", func() error { fresh, err = q.Queue.Update(ctx, l, text, visibility); return err })
	return fresh, err
}

// bodyOf returns the deletion in the text of a message, whose head has counters that change too.
func bodyOf(text string) string {
	_, body, _, err := envelope.Open(text, codec.Envelope)
	if err != nil {
		return err.Error()
	}
	return string(body)
}

// A post that was written to the dead channel after its last pass is found by the second deletion, and seen by nobody.
func TestTheSecondDeletionFindsWhatCameLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		c := w.create(5)
		dead := &killtest.Killer{Kind: "insert", Nth: 1, After: true}
		slow := w.client()
		slow.Posts = &killtest.Table{Store: delayed{slow.Posts}, Killer: dead}
		go w.write(slow, c) // it has seen the channel before the mark, and dies after the insert
		synctest.Wait()
		w.request(c)
		p := w.start(w.queue, w.site(nil))
		time.Sleep(channels.WriteTimeout)
		if page, err := w.posts.Query(t.Context(), table.Query{}); err != nil || len(page.Entities) != 1 {
			t.Errorf("late posts: got %d, %v; want one", len(page.Entities), err)
		}
		w.settle()
		p.end(false)
		w.mustBeRight("in the end")
	})
}

// delayed is a table whose inserts take long.
type delayed struct{ table.Store }

func (d delayed) Insert(ctx context.Context, e table.Entity) (table.ETag, error) {
	time.Sleep(channels.WriteTimeout - time.Second)
	return d.Store.Insert(ctx, e)
}

// T-12: a table that is away for hours makes no message poison, and the deletion ends when it is back.
func TestAStoreThatIsAwayIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.request(w.create(30))
		var back atomic.Bool
		var requests atomic.Int64
		s, _ := w.noting(func() error {
			requests.Add(1)
			if !back.Load() {
				return errLost
			}
			return nil
		})
		p := w.start(w.queue, s)
		time.Sleep(2 * time.Hour)
		if n := requests.Load(); n < 1000 || w.depth("") != 1 {
			t.Errorf("requests: got %d with %d messages, want many and one message", n, w.depth(""))
		}
		if log := p.log.String(); !strings.Contains(log, "a deletion waits for a store") {
			t.Errorf("log: got %.300s, want that it waits", log)
		}
		back.Store(true)
		w.settle()
		p.end(false)
		w.mustBeRight("in the end")
	})
}

// An error that waiting does not mend is tried for hours, then the message is poison. Nobody sees the channel meanwhile,
// and a redrive goes on.
func TestADeletionThatFailsForGoodIsPoison(t *testing.T) {
	if testing.Short() {
		t.Skip("plays hours")
	}
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.request(w.create(30))
		var mended atomic.Bool
		s, _ := w.noting(func() error {
			if mended.Load() {
				return nil
			}
			return &table.Error{Kind: table.ErrUnauthorized}
		})
		p := w.start(w.queue, s)
		time.Sleep(6 * time.Hour)
		if w.depth("") != 1 {
			t.Errorf("messages after six hours: got %d, want one", w.depth(""))
		}
		time.Sleep(18 * time.Hour)
		if w.depth("") != 0 || w.depth(poison.Suffix) != 1 {
			t.Errorf("messages after a day: got %d and %d poison, want one that is poison", w.depth(""), w.depth(poison.Suffix))
		}
		if _, err := w.site(nil).Channel(t.Context(), theName); !errors.Is(err, channels.ErrNoChannel) {
			t.Errorf("channel: got %v, want ErrNoChannel", err)
		}
		mended.Store(true)
		if _, err := poison.Redrive(t.Context(), w.queue, nil); err != nil {
			t.Fatal(err)
		}
		w.settle()
		p.end(false)
		w.mustBeRight("in the end")
	})
}

// A worker none of whose saves arrives goes through all pages all the same, past those of a new channel too.
func TestADeletionNeedsNoSaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		old := w.create(50)
		if err := w.site(nil).BeginDeletion(t.Context(), theName, old.Incarnation); err != nil {
			t.Fatal(err)
		}
		w.create(50)
		role := &worker{site: w.site(nil), deletions: newProducer(w.queue, nil), page: 20, logger: slog.New(slog.DiscardHandler)}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		m := &listener.Message[Deletion]{Body: Deletion{Channel: theName, Incarnation: old.Incarnation}} // its saves fail
		if err := role.delete(ctx, m); err != nil {
			t.Errorf("got %v, want no error", err)
		}
		p := w.start(w.queue, w.site(nil))
		w.settle()
		p.end(false)
		w.mustBeRight("in the end")
	})
}

// Workers that die one after the other before they have done anything are no fault of the message.
func TestWorkersThatDieMakeNoPoison(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.request(w.create(30))
		for range 50 {
			k := &killtest.Killer{Kind: "apply", Nth: 1}
			p := w.startMortal(k)
			time.Sleep(6 * time.Second)
			if !k.Dead() {
				t.Fatal("a worker was not killed")
			}
			p.end(true)
		}
		p := w.start(w.queue, w.site(nil))
		w.settle()
		p.end(false)
		w.mustBeRight("in the end")
	})
}

// A message without the name or the incarnation of a channel is poison at once; one whose token is of another table is
// not: its pass begins again.
func TestMessagesThatAreNoneArePoison(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		c := w.create(30)
		messages := producer.New[Deletion](w.queue, nil)
		for _, d := range []Deletion{{Channel: theName}, {Incarnation: c.Incarnation}, {Channel: "\n", Incarnation: "x"}, {}} {
			if _, err := messages.Send(t.Context(), d, nil); err != nil {
				t.Fatal(err)
			}
		}
		p := w.start(w.queue, w.site(nil))
		time.Sleep(time.Minute)
		if n := w.depth(poison.Suffix); n != 4 {
			t.Errorf("poison: got %d, want 4", n)
		}
		if got, err := w.site(nil).Channel(t.Context(), theName); err != nil || got != c {
			t.Errorf("channel: got %v, %v; want %v", got, err, c)
		}
		if _, err := poison.Purge(t.Context(), w.queue, nil); err != nil {
			t.Fatal(err)
		}
		if _, err := messages.Send(t.Context(), Deletion{Channel: theName, Incarnation: c.Incarnation, Token: "bm8"}, nil); err != nil {
			t.Fatal(err)
		}
		time.Sleep(LateDelay / 2)
		if page, err := w.posts.Query(t.Context(), table.Query{}); err != nil || len(page.Entities) != 0 {
			t.Errorf("posts before the second deletion: got %d, %v; want none", len(page.Entities), err)
		}
		w.settle()
		p.end(false)
		w.mustBeRight("in the end")
	})
}

// A stop gives the message back at once, with its place.
func TestAStopLeavesTheRestToOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.request(w.create(90))
		s := w.site(nil)
		s.Posts = crawling{s.Posts}
		first := w.start(w.queue, s)
		time.Sleep(2500 * time.Millisecond) // it is in the third page
		begun := time.Now()
		first.end(false)
		if took := time.Since(begun); took > grace+time.Second {
			t.Errorf("the stop took %v, want %v", took, grace)
		}
		next, noted := w.noting(nil)
		second := w.start(w.queue, next)
		time.Sleep(3 * time.Second)
		if sizes, tokens := noted.pages(); len(tokens) == 0 || tokens[0] == "" || sizes[0] == 0 {
			t.Errorf("pages after the stop: got %v, want the rest, from a place", sizes)
		}
		w.settle()
		second.end(false)
		w.mustBeRight("in the end")
	})
}

// crawling is a table whose groups take a second.
type crawling struct{ table.Store }

func (c crawling) Apply(ctx context.Context, changes []table.Change) ([]table.ETag, error) {
	select {
	case <-time.After(time.Second):
		return c.Store.Apply(ctx, changes)
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func TestARequestNeedsAChannel(t *testing.T) {
	w := newWorld(t)
	r := NewRequester(w.queue, nil)
	for _, c := range []channels.Channel{{}, {Name: "a"}, {Incarnation: "i"}} {
		if err := r.Delete(t.Context(), c); err == nil {
			t.Errorf("%+v: got no error, want one", c)
		}
	}
	if n := w.depth(""); n != 0 {
		t.Errorf("messages: got %d, want none", n)
	}
	if err := r.Delete(t.Context(), channels.Channel{Name: strings.Repeat("🦀", channels.MaxName), Incarnation: "i"}); err != nil {
		t.Error(fmt.Errorf("the longest name: %w", err))
	}
}
