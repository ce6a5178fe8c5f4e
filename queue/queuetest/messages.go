package queuetest

import (
	"context"
	"errors"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/millrace/millrace/internal/suitetest"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/driver"
)

var lifeTests = []test{
	{"ForeverIsTheDefault", func(e *env) {
		e.create()
		for _, o := range []*queue.EnqueueOptions{nil, {}, {TTL: queue.Forever}, {Delay: time.Second}} {
			if m := e.enqueue("x", o); m.Expires.UTC().Year() != 9999 {
				e.Errorf("expiry with %+v: got %v, want the year 9999", o, m.Expires)
			}
		}
		if e.exactly(10 * 365 * 24 * time.Hour) {
			e.take(4, long)
		}
	}},
	{"ExpiredIsNeitherSeenNorTaken", func(e *env) {
		e.create()
		e.enqueue("short", &queue.EnqueueOptions{TTL: 2 * time.Second})
		e.enqueue("long", &queue.EnqueueOptions{TTL: long})
		if e.exactly(1900 * time.Millisecond) {
			if n := len(e.peek(queue.MaxBatch)); n != 2 {
				e.Errorf("messages 0.1 s before the first expires: got %d, want 2", n)
			}
			e.exactly(100 * time.Millisecond)
		}
		e.until("the first has expired", func() bool { return len(e.peek(queue.MaxBatch)) == 1 })
		if m := e.one(long); m.Text != "long" {
			e.Errorf("dequeue: got %q, want \"long\"", m.Text)
		}
		e.none("after the other")
	}},
	{"LifeIsCountedInWholeSeconds", func(e *env) {
		e.create()
		for ttl, want := range map[time.Duration]time.Duration{
			time.Second:             time.Second,
			1500 * time.Millisecond: 2 * time.Second,
			30 * 24 * time.Hour:     30 * 24 * time.Hour, // over seven days since 2017-07-29
		} {
			if m := e.enqueue("x", &queue.EnqueueOptions{TTL: ttl}); m.Expires.Sub(m.Inserted) != want {
				e.Errorf("message with TTL %v: got a life from %v to %v, want %v", ttl, m.Inserted, m.Expires, want)
			}
		}
	}},
	{"ALeaseDoesNotOutliveItsMessage", func(e *env) {
		// A dequeue may hide a message beyond its expiry, but does not extend its life.
		e.create()
		e.enqueue("x", &queue.EnqueueOptions{TTL: 3 * time.Second})
		batch := e.dequeue(1, long)
		e.after(3 * time.Second)
		if len(batch) == 0 { // it expired first: a real machine may be slow
			return
		}
		e.is(e.q.Delete(e.ctx, batch[0].Lease), queue.ErrMessageGone, "delete after expiry while leased")
		e.none("after expiry")
	}},
	{"UpdateKeepsTheExpiry", func(e *env) {
		e.create()
		sent := e.enqueue("x", &queue.EnqueueOptions{TTL: 2 * long})
		m := e.one(long)
		e.ok(errorOf(e.q.Update(e.ctx, m.Lease, "y", 0)))
		if got := e.one(long); !got.Expires.Equal(sent.Expires) || !got.Inserted.Equal(sent.Inserted) {
			e.Errorf("life after an update: got %v to %v, want unchanged %v to %v", got.Inserted, got.Expires, sent.Inserted, sent.Expires)
		}
	}},
	{"UpdatePastTheExpiry", func(e *env) {
		e.create()
		e.enqueue("x", &queue.EnqueueOptions{TTL: long})
		m := e.one(time.Minute)
		l, err := e.q.Update(e.ctx, m.Lease, "y", 2*long)
		if why := e.h.Quirks.UpdatePastExpiry; why != "" && err == nil {
			e.Logf("allowed: %s", why)
			e.ok(e.q.Delete(e.ctx, l))
			return
		}
		e.is(err, queue.ErrInvalid, "update that hides beyond the expiry")
		e.ok(e.q.Delete(e.ctx, m.Lease)) // the refused update kept the receipt valid
	}},
}

var argumentTests = []test{{"BadArgumentsSpendNoRequest", func(e *env) { // section 15 of the requirements
	e.create()
	m := e.enqueue("x", nil)
	before := e.sent()
	calls := 0
	refused := func(what string, kind, err error) {
		e.Helper()
		calls++
		e.is(err, kind, what)
		if now := e.sent(); now != before {
			e.Errorf("%s: requests: got %d, want 0", what, now-before)
			before = now
		}
	}
	enqueue := func(text string, o *queue.EnqueueOptions) error { _, err := e.q.Enqueue(e.ctx, text, o); return err }
	dequeue := func(n int, v time.Duration) error { _, err := e.q.Dequeue(e.ctx, n, v); return err }
	peek := func(n int) error { _, err := e.q.Peek(e.ctx, n); return err }
	update := func(l queue.Lease, text string, v time.Duration) error {
		_, err := e.q.Update(e.ctx, l, text, v)
		return err
	}

	for _, n := range []int{math.MinInt, -1, 0, queue.MaxBatch + 1, math.MaxInt} {
		refused("dequeue of a bad number", queue.ErrInvalid, dequeue(n, time.Second))
		refused("peek of a bad number", queue.ErrInvalid, peek(n))
	}
	for _, v := range []time.Duration{math.MinInt64, -1, 0, 1, time.Second - 1, queue.MaxVisibility + 1, queue.MaxVisibility + time.Second, math.MaxInt64} {
		refused("dequeue with a visibility of "+v.String(), queue.ErrInvalid, dequeue(1, v))
	}
	for _, v := range []time.Duration{math.MinInt64, -1, 1, time.Second - 1, queue.MaxVisibility + 1, math.MaxInt64} {
		refused("update with a visibility of "+v.String(), queue.ErrInvalid, update(m.Lease, "x", v))
		refused("enqueue with a delay of "+v.String(), queue.ErrInvalid, enqueue("x", &queue.EnqueueOptions{Delay: v}))
	}
	for _, ttl := range []time.Duration{math.MinInt64, -time.Second, -2, 1, time.Second - 1, math.MaxInt64} {
		refused("enqueue with a TTL of "+ttl.String(), queue.ErrInvalid, enqueue("x", &queue.EnqueueOptions{TTL: ttl}))
	}
	refused("enqueue delayed as long as it lives", queue.ErrInvalid, enqueue("x", &queue.EnqueueOptions{Delay: time.Minute, TTL: time.Minute}))
	refused("enqueue delayed longer than it lives, rounded up", queue.ErrInvalid, enqueue("x", &queue.EnqueueOptions{Delay: 1100 * time.Millisecond, TTL: 1900 * time.Millisecond}))

	for _, l := range []queue.Lease{{}, {ID: m.ID}, {Receipt: m.Receipt}} {
		refused("update without a lease", queue.ErrInvalid, update(l, "x", 0))
		refused("delete without a lease", queue.ErrInvalid, e.q.Delete(e.ctx, l))
	}

	big := strings.Repeat("x", queue.MaxText+1)
	refused("enqueue of 65,537 bytes", queue.ErrTooLarge, enqueue(big, nil))
	refused("update to 65,537 bytes", queue.ErrTooLarge, update(m.Lease, big, 0))
	for _, text := range []string{"\x00", "a\x1fb", "\x7f\x08", "\xff", "a\xc3", "\xed\xa0\x80", "\uFFFE", "\uFFFF"} {
		refused("enqueue of a text that XML cannot carry", queue.ErrInvalid, enqueue(text, nil))
		refused("update to a text that XML cannot carry", queue.ErrInvalid, update(m.Lease, text, 0))
	}

	for _, metadata := range []map[string]string{
		{"": "x"}, {"1a": "x"}, {"a-b": "x"}, {"a b": "x"}, {"ä": "x"}, {"a": " x"}, {"a": "x\n"}, {"a": "ä"},
		{"name": "x", "NAME": "y"}, {"a": strings.Repeat("x", driver.MaxMetadata)},
	} {
		refused("create with bad metadata", queue.ErrInvalid, e.q.Create(e.ctx, metadata))
		refused("set bad metadata", queue.ErrInvalid, e.q.SetMetadata(e.ctx, metadata))
	}
	if calls < 60 {
		e.Errorf("calls with bad arguments: got %d, want at least 60", calls)
	}

	if seen := e.peek(queue.MaxBatch); len(seen) != 1 || seen[0].Text != "x" || seen[0].DequeueCount != 0 {
		e.Errorf("queue after all refusals: got %+v, want its message unchanged", seen)
	}
}}}

// awkward are texts that a faulty XML round trip would change.
var awkward = map[string]string{
	"empty":             "",
	"blank":             " ",
	"blanks around":     "  a  ",
	"tabs and newlines": "\ta\nb\n",
	"carriage returns":  "a\rb\r\nc\r",
	"only newlines":     "\n\n",
	"quotes":            `{"a":"b",'c':'d'}`,
	"markup":            "<QueueMessage><MessageText>x</MessageText></QueueMessage>",
	"entities":          "&amp;&lt;&#65;&#x41;&nosuch;&",
	"end of CDATA":      "<![CDATA[x]]>]]>",
	"comment":           "<!-- x --><?xml version=\"1.0\"?>",
	"emoji":             "héllo 世界 🚀 \U0001F468\u200D\U0001F469",
	"edges of XML":      "\u0020\uD7FF\uE000\uFFFD\U00010000\U0010FFFF",
	"byte order mark":   "\uFEFFx\uFEFF",
	"C1 controls":       "\u007f\u0080\u0085\u009f\u2028",
	"combining":         "e\u0301 é", // must not be normalised
	"Base64":            "AAECAwQFBgcICQ==",
	"percent and plus":  "%41+%2B%%",
	"null word":         "null",
	"largest":           strings.Repeat("x", queue.MaxText),
	largeUnicode:        strings.Repeat("🚀", queue.MaxText/4),
	"much markup":       strings.Repeat(`"`, 20_000),
}

// largeUnicode is a text that a server must not decode in pieces.
const largeUnicode = "largest, outside ASCII"

// texts returns the awkward texts that the backend supports.
func (e *env) texts() map[string]string {
	all := maps.Clone(awkward)
	if why := e.h.Quirks.LargeUnicode; why != "" {
		e.Logf("left out %s: %s", largeUnicode, why)
		delete(all, largeUnicode)
	}
	return all
}

var textTests = []test{
	{"TextRoundTrip", func(e *env) {
		e.create()
		for name, text := range e.texts() {
			if sent := e.enqueue(text, nil); sent.Text != text {
				e.Errorf("%s: text of the enqueued message: got %q, want %q", name, short(sent.Text), short(text))
			}
			if seen := e.peek(1); len(seen) != 1 || seen[0].Text != text {
				e.Errorf("%s: peek: got %+v, want %q", name, seen, short(text))
			}
			m := e.one(long)
			if m.Text != text {
				e.Errorf("%s: dequeue: got %q, want %q", name, short(m.Text), short(text))
			}
			e.ok(e.q.Delete(e.ctx, m.Lease))
		}
	}},
	{"TextRoundTripThroughUpdate", func(e *env) {
		e.create()
		e.enqueue("x", nil)
		for name, text := range e.texts() {
			m := e.one(long)
			e.ok(errorOf(e.q.Update(e.ctx, m.Lease, text, 0)))
			m = e.one(long)
			if m.Text != text {
				e.Errorf("%s: dequeue after an update: got %q, want %q", name, short(m.Text), short(text))
			}
			e.ok(errorOf(e.q.Update(e.ctx, m.Lease, "x", 0)))
		}
	}},
	{"EscapedTextIsBoundedToo", func(e *env) {
		// 64 KiB of quotes become 320 KiB of XML, more than the limit of a request.
		e.create()
		_, err := e.q.Enqueue(e.ctx, strings.Repeat(`"`, queue.MaxText), nil)
		if e.h.HTTP {
			e.is(err, queue.ErrTooLarge, "enqueue of 65,536 quotes")
			e.none("after the refusal")
			m := e.enqueue("x", nil)
			_, err := e.q.Update(e.ctx, m.Lease, strings.Repeat(`"`, queue.MaxText), 0)
			e.is(err, queue.ErrTooLarge, "update to 65,536 quotes")
			return
		}
		e.ok(err)
	}},
	{"EqualTextsAreDifferentMessages", func(e *env) {
		e.create()
		a, b := e.enqueue("same", nil), e.enqueue("same", nil)
		if a.ID == b.ID || a.ID == "" {
			e.Errorf("ids: got %q and %q, want two", a.ID, b.ID)
		}
		batch := e.take(2, long)
		if batch[0].ID == batch[1].ID {
			e.Errorf("dequeue: got message %s twice, want two messages", batch[0].ID)
		}
	}},
}

var peekTests = []test{
	{"PeekHidesNothingAndCountsNothing", func(e *env) {
		e.create()
		sent := e.enqueue("x", nil)
		for range 3 {
			seen := e.peek(queue.MaxBatch)
			if len(seen) != 1 {
				e.Fatalf("peek: got %d messages, want 1", len(seen))
			}
			m := seen[0]
			if m.ID != sent.ID || m.Text != "x" || m.DequeueCount != 0 || !m.Inserted.Equal(sent.Inserted) || !m.Expires.Equal(sent.Expires) {
				e.Errorf("peek: got %+v, want, with dequeue count 0, %+v", m, sent)
			}
			if m.Receipt != "" || !m.Until.IsZero() {
				e.Errorf("lease of a peeked message: got %#v, want only the id", m.Lease)
			}
		}
		if m := e.one(long); m.DequeueCount != 1 {
			e.Errorf("dequeue count after three peeks and a dequeue: got %d, want 1", m.DequeueCount)
		}
	}},
	{"PeekShowsOnlyVisibleMessages", func(e *env) {
		e.create()
		e.enqueue("leased", nil)
		leased := e.one(long)
		e.enqueue("delayed", &queue.EnqueueOptions{Delay: long})
		e.enqueue("visible", nil)
		if got := texts(e.peek(queue.MaxBatch)); !slices.Equal(got, []string{"visible"}) {
			e.Errorf("peek: got %q, want only \"visible\"", got)
		}
		e.ok(errorOf(e.q.Update(e.ctx, leased.Lease, "released", 0)))
		seen := e.peek(queue.MaxBatch)
		if got := texts(seen); !slices.Equal(got, []string{"released", "visible"}) {
			e.Errorf("peek after the release: got %q, want \"released\" and \"visible\"", got)
		}
		for _, m := range seen {
			if m.Text == "released" && m.DequeueCount != 1 {
				e.Errorf("peeked dequeue count after one delivery: got %d, want 1", m.DequeueCount)
			}
		}
	}},
	{"PeekedMessageCannotBeSettled", func(e *env) {
		e.create()
		e.enqueue("x", nil)
		m := e.peek(1)[0]
		e.is(e.q.Delete(e.ctx, m.Lease), queue.ErrInvalid, "delete of a peeked message")
		e.is(errorOf(e.q.Update(e.ctx, m.Lease, "y", time.Second)), queue.ErrInvalid, "update of a peeked message")
	}},
	{"PeekTakesNoMoreThanAskedFor", func(e *env) {
		e.create()
		for range 3 {
			e.enqueue("x", nil)
		}
		if n := len(e.peek(2)); n != 2 {
			e.Errorf("peek of 2 in a queue of 3: got %d messages, want 2", n)
		}
	}},
}

var updateTests = []test{
	{"UpdateReplacesTheText", func(e *env) {
		e.create()
		e.enqueue("before", nil)
		m := e.one(long)
		l, err := e.q.Update(e.ctx, m.Lease, "between", long)
		e.ok(err)
		if l.Until.Sub(m.Inserted) < long-time.Second {
			e.Errorf("lease after an update: got the end %v, want at least %v after %v", l.Until, long-time.Second, m.Inserted)
		}
		e.none("while leased")
		e.ok(errorOf(e.q.Update(e.ctx, l, "after", 0)))
		if again := e.one(long); again.Text != "after" || again.ID != m.ID || again.DequeueCount != 2 {
			e.Errorf("dequeue after two updates: got %q as delivery %d, want \"after\" as 2", again.Text, again.DequeueCount)
		}
	}},
	{"VisibilityZeroReleasesAtOnce", func(e *env) {
		e.create()
		e.enqueue("x", nil)
		m := e.one(long)
		e.ok(errorOf(e.q.Update(e.ctx, m.Lease, m.Text, 0)))
		if batch := e.dequeue(1, long); len(batch) != 1 || batch[0].ID != m.ID {
			e.Errorf("dequeue right after the release: got %+v, want the message", batch)
		}
	}},
	{"UpdateExtendsTheLease", func(e *env) {
		e.create()
		e.enqueue("x", nil)
		m := e.one(3 * time.Second)
		e.exactly(2 * time.Second)
		l, err := e.q.Update(e.ctx, m.Lease, m.Text, long)
		e.ok(err)
		e.after(4 * time.Second)
		e.none("after the first lease would have ended")
		e.ok(e.q.Delete(e.ctx, l))
	}},
	{"UpdateCountsFromNow", func(e *env) {
		// It does not count from the end of the old lease, so an update can also shorten a lease.
		e.create()
		e.enqueue("x", nil)
		m := e.one(long)
		e.ok(errorOf(e.q.Update(e.ctx, m.Lease, m.Text, 1500*time.Millisecond)))
		if e.exactly(1900 * time.Millisecond) {
			e.none("1.9 s into a visibility of 1.5 s, which is 2 s on the wire,")
			e.exactly(100 * time.Millisecond)
			if batch := e.dequeue(1, long); len(batch) != 1 {
				e.Errorf("2 s into a visibility of 1.5 s: got %d messages, want 1", len(batch))
			}
			return
		}
		e.one(long)
	}},
	{"UpdateWithEmptyTextErases", func(e *env) {
		// The empty text is a text like any other. To keep the text, an update must send it again.
		e.create()
		e.enqueue("x", nil)
		m := e.one(long)
		e.ok(errorOf(e.q.Update(e.ctx, m.Lease, "", 0)))
		if m := e.one(long); m.Text != "" {
			e.Errorf("text: got %q, want it empty", m.Text)
		}
	}},
}

var errorTests = []test{{"ErrorsSayWhatWhereAndWhy", func(e *env) { // B-05
	missing := errorOf(e.q.Enqueue(e.ctx, "x", nil))
	e.create()
	m := e.enqueue("x", nil)
	taken := e.one(long)
	stale := errorOf(e.q.Update(e.ctx, m.Lease, "x", 0))
	e.ok(e.q.Delete(e.ctx, taken.Lease))
	gone := e.q.Delete(e.ctx, taken.Lease)
	conflict := e.q.Create(e.ctx, map[string]string{"a": "1"})

	for _, c := range []struct {
		err    error
		op     string
		id     queue.ID
		status int
		code   string
	}{
		{missing, "enqueue", "", 404, "QueueNotFound"},
		{stale, "update", m.ID, 400, "PopReceiptMismatch"},
		{gone, "delete", m.ID, 404, "MessageNotFound"},
		{conflict, "create", "", 409, "QueueAlreadyExists"},
		{errorOf(e.q.Peek(e.ctx, 0)), "peek", "", 0, ""},
		{errorOf(e.q.Dequeue(e.ctx, 0, 0)), "dequeue", "", 0, ""},
		{e.q.SetMetadata(e.ctx, map[string]string{"": "1"}), "set metadata", "", 0, ""},
		{e.q.Delete(e.ctx, queue.Lease{ID: m.ID}), "delete", m.ID, 0, ""},
	} {
		known := (*queue.Error)(nil)
		if !errors.As(c.err, &known) {
			e.Errorf("%s: error: got %v, want a *queue.Error", c.op, c.err)
			continue
		}
		e.written(c.err)
		if known.Op != c.op || known.Queue != e.q.Name() || known.Message != c.id || known.Kind == nil {
			e.Errorf("%s: error: got %q on %v of %q, kind %v; want %q on %v of %q, any kind", c.op, known.Op, known.Queue, known.Message, known.Kind, c.op, e.q.Name(), c.id)
		}
		for _, receipt := range []queue.Receipt{m.Receipt, taken.Receipt} {
			if strings.Contains(c.err.Error(), string(receipt)) {
				e.Errorf("%s: error: got %v, want it without the receipt", c.op, c.err)
			}
		}
		if e.h.HTTP && (known.Status != c.status || known.Code != c.code || (known.RequestID == "") != (c.status == 0)) {
			e.Errorf("%s: error: got status %d, code %q and request id %q; want %d and %q", c.op, known.Status, known.Code, known.RequestID, c.status, c.code)
		}
	}
}}}

var contextTests = []test{
	{"EndedContextDoesNothing", func(e *env) { // section 15 of the requirements
		e.create()
		e.enqueue("held", nil)
		held := e.one(long)
		e.enqueue("visible", nil)
		before := e.sent()
		for how, ctx := range suitetest.EndedContexts(e.ctx) {
			for op, err := range map[string]error{
				"enqueue":      errorOf(e.q.Enqueue(ctx, "x", nil)),
				"dequeue":      errorOf(e.q.Dequeue(ctx, 1, long)),
				"peek":         errorOf(e.q.Peek(ctx, 1)),
				"update":       errorOf(e.q.Update(ctx, held.Lease, "x", 0)),
				"delete":       e.q.Delete(ctx, held.Lease),
				"properties":   errorOf(e.q.Properties(ctx)),
				"create":       e.q.Create(ctx, nil),
				"set metadata": e.q.SetMetadata(ctx, map[string]string{"a": "1"}),
				"clear":        e.q.Clear(ctx),
				"drop":         e.q.Drop(ctx),
			} {
				e.ended(err, ctx, op+" with a context "+how)
			}
			e.is(errorOf(e.q.Peek(ctx, 0)), queue.ErrInvalid, "bad peek with a context "+how)
			e.is(e.q.Sibling("-Bad").Create(ctx, nil), queue.ErrInvalid, "create of a bad name with a context "+how)
		}
		if n := e.sent() - before; n != 0 {
			e.Errorf("requests with ended contexts: got %d, want 0", n)
		}
		e.depth(2, "after calls with ended contexts")
		if got := texts(e.peek(queue.MaxBatch)); len(got) != 1 || got[0] != "visible" {
			e.Errorf("after calls with ended contexts %q are visible", got)
		}
		e.metadata(nil, "after calls with ended contexts")
		e.ok(e.q.Delete(e.ctx, held.Lease))
	}},
	{"ContextThatEndsDuringACall", func(e *env) {
		const calls = 50
		e.create()
		failed, ended := suitetest.EndDuring(e.ctx, calls, func(ctx context.Context) error { return errorOf(e.q.Enqueue(ctx, "x", nil)) })
		unknown := 0
		for _, err := range failed {
			if errors.Is(err, queue.ErrOutcomeUnknown) {
				unknown++
			}
			e.matches(err, ended, "enqueue with a context that ends")
		}
		p, err := e.q.Properties(e.ctx)
		e.ok(err)
		if least := int64(calls - len(failed)); p.Depth < least || p.Depth > least+int64(unknown) {
			e.Errorf("depth after %d calls: got %d, want %d accepted and at most %d of an unknown outcome", calls, p.Depth, least, unknown)
		}
	}},
}

// ended checks the error of a call whose context had ended before.
func (e *env) ended(err error, ctx suitetest.EndedContext, doing string) {
	e.Helper()
	e.matches(err, ctx, doing)
	if errors.Is(err, queue.ErrOutcomeUnknown) {
		e.Errorf("%s: got %v, want an error other than ErrOutcomeUnknown", doing, err)
	}
}

// matches checks that an error says how and why its context ended.
func (e *env) matches(err error, ctx suitetest.EndedContext, doing string) {
	e.Helper()
	for _, want := range ctx.Errors {
		e.is(err, want, doing)
	}
}
