package queuetest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/suitetest"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/driver"
)

var queueTests = []test{
	{"CreateIsIdempotent", func(e *env) {
		e.create()
		e.enqueue("x", nil)
		e.ok(e.q.Create(e.ctx, nil))
		e.ok(e.q.Create(e.ctx, map[string]string{}))
		if m := e.one(long); m.Text != "x" {
			e.Errorf("message after a second create: got %q, want \"x\"", m.Text)
		}
		e.is(e.q.Create(e.ctx, map[string]string{"a": "1"}), queue.ErrQueueExists, "create with other metadata")
		e.metadata(nil, "after a refused create")
	}},
	{"CreateComparesMetadata", func(e *env) {
		e.ok(e.q.Create(e.ctx, map[string]string{"a": "1", "b": "2"}))
		e.ok(e.q.Create(e.ctx, map[string]string{"b": "2", "a": "1"}))
		e.is(e.q.Create(e.ctx, nil), queue.ErrQueueExists, "create with no metadata")
		e.is(e.q.Create(e.ctx, map[string]string{"a": "1"}), queue.ErrQueueExists, "create with fewer metadata")
		e.is(e.q.Create(e.ctx, map[string]string{"a": "1", "b": "3"}), queue.ErrQueueExists, "create with another value")
		e.metadata(map[string]string{"a": "1", "b": "2"}, "after refused creates")
	}},
	{"MissingQueue", func(e *env) {
		e.missing(queue.Lease{ID: "00000000-0000-4000-8000-000000000000", Receipt: "AgAAAAMAAAAAAAAA"})
	}},
	{"DropTakesEverything", func(e *env) {
		e.ok(e.q.Create(e.ctx, map[string]string{"a": "1"}))
		e.enqueue("x", nil)
		m := e.one(long)
		e.enqueue("y", nil)
		e.ok(e.q.Drop(e.ctx))
		e.missing(m.Lease)

		err := e.q.Create(e.ctx, nil)
		if why := e.h.Quirks.RecreateAtOnce; why != "" && err == nil {
			e.Logf("allowed: %s", why)
		} else {
			e.is(err, queue.ErrQueueBeingDeleted, "create right after a drop")
			e.until("the name is free again", func() bool { err = e.q.Create(e.ctx, nil); return err == nil })
		}
		e.none("after the queue was created again")
		e.metadata(nil, "after the queue was created again")
		e.is(e.q.Delete(e.ctx, m.Lease), queue.ErrMessageGone, "delete with a lease from the dropped queue")
	}},
	{"ClearDeletesAllMessages", func(e *env) {
		e.ok(e.q.Create(e.ctx, map[string]string{"a": "1"}))
		e.ok(e.q.Clear(e.ctx)) // of an empty queue
		e.enqueue("leased", nil)
		m := e.one(long)
		e.enqueue("visible", nil)
		e.enqueue("delayed", &queue.EnqueueOptions{Delay: time.Second})
		e.ok(e.q.Clear(e.ctx))
		e.depth(0, "after clear")
		e.none("after clear")
		e.is(e.q.Delete(e.ctx, m.Lease), queue.ErrMessageGone, "delete of a cleared message")
		e.metadata(map[string]string{"a": "1"}, "after clear")
		e.enqueue("new", nil)
		e.after(2 * time.Second)
		if got := texts(e.dequeue(queue.MaxBatch, long)); len(got) != 1 || got[0] != "new" {
			e.Errorf("messages after clear and one enqueue: got %q, want only \"new\"", got)
		}
	}},
}

// missing checks that every operation fails if the queue does not exist.
func (e *env) missing(l queue.Lease) {
	e.Helper()
	e.is(errorOf(e.q.Enqueue(e.ctx, "x", nil)), queue.ErrQueueMissing, "enqueue")
	e.is(errorOf(e.q.Dequeue(e.ctx, 1, time.Second)), queue.ErrQueueMissing, "dequeue")
	e.is(errorOf(e.q.Peek(e.ctx, 1)), queue.ErrQueueMissing, "peek")
	e.is(errorOf(e.q.Update(e.ctx, l, "x", 0)), queue.ErrQueueMissing, "update")
	e.is(e.q.Delete(e.ctx, l), queue.ErrQueueMissing, "delete")
	e.is(errorOf(e.q.Properties(e.ctx)), queue.ErrQueueMissing, "properties")
	e.is(e.q.SetMetadata(e.ctx, map[string]string{"a": "1"}), queue.ErrQueueMissing, "set metadata")
	e.is(e.q.Clear(e.ctx), queue.ErrQueueMissing, "clear")
	e.is(e.q.Drop(e.ctx), queue.ErrQueueMissing, "drop")
}

// AccountHarness connects the suite of [RunAccount] to a backend. Open is required; the zero
// values of the other fields describe a backend that behaves like the service.
type AccountHarness struct {
	// Open returns an account. It may contain queues of other tests, even concurrent ones. In a
	// bubble everything that the account needs must be created here. Use t.Cleanup to clean up.
	Open func(t *testing.T) queue.Account

	// Bubble runs each test in a testing/synctest bubble, as in [Harness].
	Bubble bool

	// Requests returns the number of requests that the account and its queues have sent so far.
	// Defaults to nil, which skips checks of it.
	Requests func(a queue.Account) int

	// Secrets are texts that errors must not contain, such as keys. Defaults to none.
	Secrets []string

	// Quirks are known differences between the backend and the service.
	Quirks Quirks
}

// RunAccount runs the part of the suite for a [queue.Account].
func RunAccount(t *testing.T, h AccountHarness) {
	runAll(t, h.Bubble, accountTests, func(t *testing.T) *accountEnv {
		e := &accountEnv{
			env:     &env{T: t, h: Harness{Bubble: h.Bubble, Secrets: h.Secrets, Quirks: h.Quirks}, ctx: t.Context(), sent: func() int { return 0 }},
			account: h.Open(t),
			prefix:  fmt.Sprintf("conform-%08x-%d-", salt, names.Add(1)),
		}
		if h.Requests != nil {
			e.sent, e.counted = func() int { return h.Requests(e.account) }, true
		}
		return e
	})
}

// accountEnv is the environment of one account test.
type accountEnv struct {
	*env
	account queue.Account
	prefix  string // of all queue names of this test, and of no others
}

// make creates a queue whose name has this test's prefix.
func (e *accountEnv) make(name string, metadata map[string]string) queue.Manager {
	e.Helper()
	q, err := e.account.Open(e.prefix + name)
	e.ok(err)
	e.ok(q.Create(e.ctx, metadata))
	e.Cleanup(func() { _ = q.Drop(context.Background()) }) // some tests have dropped it
	return q
}

// page is one page of a list.
type page struct {
	queues []queue.Listed
	next   string
}

// page requests one page of this test's queues.
func (e *accountEnv) page(prefix, marker string, size int) page {
	e.Helper()
	queues, next, err := e.account.List(e.ctx, e.prefix+prefix, marker, size)
	e.ok(err)
	if size > 0 && len(queues) > size {
		e.Fatalf("queues on a page: got %d, want at most %d", len(queues), size)
	}
	return page{queues, next}
}

// walk requests all pages and returns the names without this test's prefix.
func (e *accountEnv) walk(prefix, marker string, size int) []string {
	e.Helper()
	var all []string
	for pages := 0; ; pages++ {
		page := e.page(prefix, marker, size)
		all = append(all, e.names(page)...)
		if page.next == "" {
			return all
		}
		if pages > 1000 {
			e.Fatalf("marker after 1000 pages: got %q, want the end of the list", page.next)
		}
		marker = page.next
	}
}

// names returns the names of a page's queues without this test's prefix.
func (e *accountEnv) names(of page) []string {
	e.Helper()
	var all []string
	for _, q := range of.queues {
		name, ours := strings.CutPrefix(q.Name, e.prefix)
		if !ours {
			e.Errorf("listed queue: got %q, want the prefix %q", q.Name, e.prefix)
		}
		all = append(all, name)
	}
	return all
}

// same compares names with the expected ones.
func (e *accountEnv) same(got, want []string, what string) {
	e.Helper()
	if !slices.Equal(got, want) {
		e.Errorf("%s: got %q, want %q", what, got, want)
	}
}

var accountTests = []testOf[*accountEnv]{
	{"OpenReturnsTheQueueOfTheAccount", func(e *accountEnv) {
		before := e.sent()
		q, err := e.account.Open(e.prefix + "x")
		e.ok(err)
		if want := (queue.Name{Account: e.account.Name(), Queue: e.prefix + "x"}); want.Account == "" || q.Name() != want {
			e.Errorf("name of the queue: got %+v, want %+v", q.Name(), want)
		}
		if n := e.sent() - before; n != 0 {
			e.Errorf("requests sent by Open: got %d, want 0", n)
		}
		e.is(q.Drop(e.ctx), queue.ErrQueueMissing, "drop of a queue that was only opened")
		e.make("x", nil)
		if _, err := q.Enqueue(e.ctx, "text", nil); err != nil {
			e.Error(err)
		}
		again, err := e.account.Open(e.prefix + "x")
		e.ok(err)
		if seen, err := again.Peek(e.ctx, 1); err != nil || len(seen) != 1 || seen[0].Text != "text" {
			e.Errorf("peek of the queue opened again: got %+v, %v; want its message", seen, err)
		}
	}},
	{"OpenRefusesBadNames", func(e *accountEnv) {
		before := e.sent()
		for _, name := range []string{"", "ab", "Orders", "or--ders", "-orders", "or/ders", "or?ders", "..", strings.Repeat("x", 64)} {
			q, err := e.account.Open(name)
			e.is(err, queue.ErrInvalid, fmt.Sprintf("open %q", name))
			if q != nil {
				e.Errorf("open %q: got a queue beside the error, want nil", name)
			}
		}
		if n := e.sent() - before; n != 0 {
			e.Errorf("requests sent by Open: got %d, want 0", n)
		}
	}},
	{"ListOfNone", func(e *accountEnv) {
		if page := e.page("", "", 0); len(page.queues) != 0 || page.next != "" {
			e.Errorf("list: got %+v, want no queues", page)
		}
	}},
	{"ListHasQueuesThatExistWithTheirMetadata", func(e *accountEnv) {
		e.make("b", map[string]string{"owner": "ada", "empty": ""})
		e.make("a", nil)
		gone := e.make("c", nil)
		page := e.page("", "", 0)
		e.same(e.names(page), []string{"a", "b", "c"}, "the list")
		if len(page.queues) == 3 {
			if got := page.queues[0].Metadata; len(got) != 0 {
				e.Errorf("metadata of a: got %v, want none", got)
			}
			if got := page.queues[1].Metadata; !maps.Equal(got, map[string]string{"owner": "ada", "empty": ""}) {
				e.Errorf("metadata of b: got %v, want owner ada and empty", got)
			}
		}
		e.ok(gone.Drop(e.ctx))
		e.same(e.names(e.page("", "", 0)), []string{"a", "b"}, "the list after a drop")
	}},
	{"ListAllAreTheQueuesWithThePrefix", func(e *accountEnv) {
		for _, name := range []string{"or", "orders", "orders-poison", "os", "a"} {
			e.make(name, nil)
		}
		for prefix, want := range map[string][]string{
			"":          {"a", "or", "orders", "orders-poison", "os"},
			"or":        {"or", "orders", "orders-poison"},
			"orders":    {"orders", "orders-poison"},
			"orders-":   {"orders-poison"},
			"orders-x":  nil,
			"rders":     nil,
			"or%ders":   nil,
			"orders&x=": nil,
		} {
			before := e.sent()
			var all []string
			for q, err := range queue.ListAll(e.ctx, e.account, e.prefix+prefix) {
				e.ok(err)
				all = append(all, strings.TrimPrefix(q.Name, e.prefix))
			}
			e.same(all, want, fmt.Sprintf("with the prefix %q", prefix))
			if n := e.sent() - before; e.counted && n != 1 {
				e.Errorf("requests of one page: got %d, want 1", n)
			}
		}
	}},
	{"PagesHaveEveryQueueOnce", func(e *accountEnv) {
		var want []string
		for i := range 7 {
			want = append(want, fmt.Sprintf("q%d", i))
			e.make(want[i], nil)
		}
		e.make("z", nil)
		for size := 1; size <= 8; size++ {
			before := e.sent()
			e.same(e.walk("q", "", size), want, fmt.Sprintf("in pages of %d", size))
			if minimum := (len(want) + size - 1) / size; e.counted && e.sent()-before < minimum {
				e.Errorf("requests with pages of %d: got %d, want at least %d", size, e.sent()-before, minimum)
			}
		}
	}},
	{"AMarkerOutlivesItsQueue", func(e *accountEnv) {
		all := map[string]queue.Manager{}
		for _, name := range []string{"a", "b", "c", "d", "e"} {
			all[name] = e.make(name, nil)
		}
		page := e.page("", "", 2)
		e.same(e.names(page), []string{"a", "b"}, "the first page")
		if page.next == "" {
			e.Fatal("marker of the first page: got none, want one")
		}
		e.ok(all["b"].Drop(e.ctx)) // before the page
		e.ok(all["c"].Drop(e.ctx)) // with which it begins
		e.same(e.walk("", page.next, 2), []string{"d", "e"}, "what follows after the drops")
		e.same(e.names(e.page("", page.next, 1)), []string{"d"}, "the same marker again")
		if why := e.h.Quirks.ListWhileCreating; why != "" {
			e.Logf("left out: %s", why)
			return
		}
		e.make("dd", nil)
		e.same(e.walk("", page.next, 2), []string{"d", "dd", "e"}, "what follows after a create")
	}},
	{"BadListsSpendNoRequest", func(e *accountEnv) {
		before := e.sent()
		for _, size := range []int{-1, driver.MaxPage + 1, math.MaxInt} {
			page, _, err := e.account.List(e.ctx, "", "", size)
			e.is(err, queue.ErrInvalid, fmt.Sprintf("a page of %d", size))
			if known := (*queue.Error)(nil); errors.As(err, &known) && (known.Op != "list" || known.Queue != queue.Name{Account: e.account.Name()}) {
				e.Errorf("error: got operation %q on %v, want list on %s", known.Op, known.Queue, e.account.Name())
			}
			if len(page) != 0 {
				e.Errorf("page beside an error: got %+v, want none", page)
			}
		}
		for how, ctx := range suitetest.EndedContexts(e.ctx) {
			_, _, err := e.account.List(ctx, "", "", 0)
			e.ended(err, ctx, "list with a context "+how)
			_, _, err = e.account.List(ctx, "", "", -1)
			e.is(err, queue.ErrInvalid, "bad list with a context "+how)
		}
		if n := e.sent() - before; n != 0 {
			e.Errorf("requests: got %d, want 0", n)
		}
		if _, _, err := e.account.List(e.ctx, e.prefix, "", driver.MaxPage); err != nil {
			e.Errorf("the largest page: got the error %v, want none", err)
		}
	}},
	{"AnyPrefixInPagesOfAnySize", func(e *accountEnv) {
		all := []string{"a", "a-a", "a-b", "a0", "aa", "aaa", "b", "b-a", "ba", "c"} // as bytes sort
		for _, name := range all {
			e.make(name, nil)
		}
		sizes := []int{1, 3, len(all), len(all) + 1}
		for _, prefix := range append(all, "", "a-", "b-", "0", "ab", "a-a-", "d") {
			want := slices.DeleteFunc(slices.Clone(all), func(name string) bool { return !strings.HasPrefix(name, prefix) })
			for _, size := range sizes {
				e.same(e.walk(prefix, "", size), want, fmt.Sprintf("with the prefix %q in pages of %d", prefix, size))
			}
		}
	}},
}

var siblingTests = []test{
	{"Name", func(e *env) {
		n := e.q.Name()
		if n.Account == "" || !strings.HasPrefix(n.Queue, "conform-") {
			e.Errorf("name: got %+v, want an account and the queue that was opened", n)
		}
	}},
	{"SiblingIsAQueueOfItsOwn", func(e *env) {
		s := e.q.Sibling("-poison")
		if got, want := s.Name(), (queue.Name{Account: e.q.Name().Account, Queue: e.q.Name().Queue + "-poison"}); got != want {
			e.Fatalf("name of the sibling: got %v, want %v", got, want)
		}
		e.create()
		e.is(errorOf(s.Enqueue(e.ctx, "x", nil)), queue.ErrQueueMissing, "enqueue into a sibling that does not exist")
		e.ok(s.Create(e.ctx, map[string]string{"a": "1"}))
		e.ok(errorOf(s.Enqueue(e.ctx, "poison", nil)))
		e.none("with a message in the sibling")
		e.enqueue("good", nil)
		batch, err := s.Dequeue(e.ctx, queue.MaxBatch, long)
		e.ok(err)
		if got := texts(batch); len(got) != 1 || got[0] != "poison" {
			e.Fatalf("messages of the sibling: got %q, want only \"poison\"", got)
		}
		// A lease is valid only in its queue.
		e.is(e.q.Delete(e.ctx, batch[0].Lease), queue.ErrLeaseLost, "delete of the sibling's message")
		e.metadata(nil, "with metadata on the sibling")
		m, ok := s.(queue.Manager)
		if !ok {
			e.Fatalf("sibling of a queue.Manager: got %T, want a queue.Manager too", s)
		}
		e.ok(m.Drop(e.ctx))
		if m := e.one(long); m.Text != "good" {
			e.Errorf("message after the sibling was dropped: got %q, want \"good\"", m.Text)
		}
	}},
	{"SiblingOfASibling", func(e *env) {
		s := e.q.Sibling("-a").Sibling("-b")
		if got, want := s.Name().Queue, e.q.Name().Queue+"-a-b"; got != want {
			e.Errorf("name: got %q, want %q", got, want)
		}
		if got := e.q.Sibling("").Name(); got != e.q.Name() {
			e.Errorf("name of the sibling without a suffix: got %v, want %v", got, e.q.Name())
		}
	}},
	{"BadSiblingNameIsRefusedAtTheFirstCall", func(e *env) {
		before := e.sent()
		for _, suffix := range []string{"-" + strings.Repeat("x", 63), "-", "--x", "-Poison", "_x", "/../x", "?x"} {
			s := e.q.Sibling(suffix)
			for op, err := range map[string]error{
				"create":  s.Create(e.ctx, nil),
				"dequeue": errorOf(s.Dequeue(e.ctx, 1, long)),
				"enqueue": errorOf(s.Enqueue(e.ctx, "x", nil)),
			} {
				if !errors.Is(err, queue.ErrInvalid) {
					e.Errorf("%s on the sibling %q: got %v, want %v", op, suffix, err, queue.ErrInvalid)
				}
			}
		}
		if n := e.sent() - before; n != 0 {
			e.Errorf("requests with bad names: got %d, want 0", n)
		}
	}},
}

func errorOf[T any](_ T, err error) error { return err }
