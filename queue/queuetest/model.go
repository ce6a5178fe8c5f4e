package queuetest

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"pgregory.net/rapid"

	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/driver"
)

var modelTests = []test{{"AnyHistoryFollowsTheModel", func(e *env) {
	if !e.h.Bubble {
		e.Skip("this needs a clock that obeys")
	}
	rapid.Check(noDeadline{e.T}, func(t *rapid.T) {
		m := &model{e: e, q: e.open(), messages: make(map[queue.ID]*modelled)}
		if err := m.q.Create(e.ctx, nil); err != nil {
			t.Fatal(err)
		}
		t.Repeat(map[string]func(*rapid.T){
			"enqueue": m.enqueue,
			"dequeue": m.dequeue,
			"peek":    m.peek,
			"update":  m.update,
			"delete":  m.remove,
			"clear":   m.clear,
			"pass":    m.pass,
			"":        m.depth,
		})
	})
}}}

// noDeadline hides the Deadline method, which rapid calls and a bubble does not support.
type noDeadline struct{ rapid.TB }

// model is a simple model of a queue's content. Time moves in whole seconds.
type model struct {
	e        *env
	q        queue.Manager
	messages map[queue.ID]*modelled
	leases   []queue.Lease // all leases ever returned
}

// modelled is a message of the model.
type modelled struct {
	text    string
	receipt queue.Receipt // the newest
	count   int64
	visible time.Time // from this time on
	expires time.Time // zero for never
}

// live returns the messages that have not expired, or only the visible ones.
func (m *model) live(visible bool) map[queue.ID]*modelled {
	live := make(map[queue.ID]*modelled)
	for id, one := range m.messages {
		if (one.expires.IsZero() || one.expires.After(time.Now())) && (!visible || !one.visible.After(time.Now())) {
			live[id] = one
		}
	}
	return live
}

func drawSeconds(t *rapid.T, from, to int, what string) time.Duration {
	return time.Duration(rapid.IntRange(from, to).Draw(t, what)) * time.Second
}

func (m *model) enqueue(t *rapid.T) {
	o := &queue.EnqueueOptions{Delay: drawSeconds(t, 0, 3, "delay")}
	one := &modelled{text: rapid.SampledFrom([]string{"", "a", "b<c>", " d\n"}).Draw(t, "text"), visible: time.Now().Add(o.Delay)}
	if rapid.Bool().Draw(t, "expires") {
		o.TTL = o.Delay + drawSeconds(t, 1, 6, "TTL beyond the delay")
		one.expires = time.Now().Add(o.TTL)
	}
	sent, err := m.q.Enqueue(m.e.ctx, one.text, o)
	if err != nil {
		t.Fatal(err)
	}
	one.receipt = sent.Receipt
	m.messages[sent.ID] = one
	m.leases = append(m.leases, sent.Lease)
}

func (m *model) dequeue(t *rapid.T) {
	n, visibility := rapid.IntRange(1, 5).Draw(t, "n"), drawSeconds(t, 1, 4, "visibility")
	batch, err := m.q.Dequeue(m.e.ctx, n, visibility)
	if err != nil {
		t.Fatal(err)
	}
	m.matches(t, batch, n)
	for _, got := range batch {
		one := m.messages[got.ID]
		if one.count++; got.DequeueCount != one.count {
			t.Fatalf("dequeue count of %s: got %d, want %d", got.ID, got.DequeueCount, one.count)
		}
		if got.Receipt == one.receipt || got.Receipt == "" {
			t.Fatalf("receipt of %s: got %q, want a new one", got.ID, got.Receipt)
		}
		one.receipt, one.visible = got.Receipt, time.Now().Add(visibility)
		m.leases = append(m.leases, got.Lease)
	}
}

func (m *model) peek(t *rapid.T) {
	n := rapid.IntRange(1, 5).Draw(t, "n")
	seen, err := m.q.Peek(m.e.ctx, n)
	if err != nil {
		t.Fatal(err)
	}
	m.matches(t, seen, n)
	for _, got := range seen {
		if one := m.messages[got.ID]; got.DequeueCount != one.count || got.Receipt != "" {
			t.Fatalf("peek: got %+v, want dequeue count %d and no receipt", got, one.count)
		}
	}
}

// matches checks that a batch has as many distinct visible messages as possible, with their
// texts.
func (m *model) matches(t *rapid.T, batch []queue.Message, n int) {
	visible := m.live(true)
	if len(batch) != min(n, len(visible)) {
		t.Fatalf("messages: got %d, want %d: asked for %d, %d are visible", len(batch), min(n, len(visible)), n, len(visible))
	}
	for _, got := range batch {
		one := visible[got.ID]
		if one == nil {
			t.Fatalf("got message %s, want each visible message at most once", got.ID)
		}
		if got.Text != one.text {
			t.Fatalf("text of %s: got %q, want %q", got.ID, got.Text, one.text)
		}
		delete(visible, got.ID)
	}
}

// draw returns one of all leases and the error that its use must give.
func (m *model) draw(t *rapid.T) (queue.Lease, *modelled, error) {
	if len(m.leases) == 0 {
		t.Skip("there is no lease yet")
	}
	l := rapid.SampledFrom(m.leases).Draw(t, "lease")
	switch one := m.live(false)[l.ID]; {
	case one == nil:
		return l, nil, queue.ErrMessageGone
	case one.receipt != l.Receipt:
		return l, nil, queue.ErrReceiptMismatch
	default:
		return l, one, nil
	}
}

func (m *model) update(t *rapid.T) {
	l, one, want := m.draw(t)
	visibility := drawSeconds(t, 0, 4, "visibility")
	if one != nil && !one.expires.IsZero() && !time.Now().Add(visibility).Before(one.expires) {
		t.Skip("UpdatePastTheExpiry tests that")
	}
	text := rapid.SampledFrom([]string{"", "e", `"f"`}).Draw(t, "text")
	renewed, err := m.q.Update(m.e.ctx, l, text, visibility)
	if !errors.Is(err, want) {
		t.Fatalf("update: got %v, want %v", err, want)
	}
	if err == nil {
		if renewed.ID != l.ID || renewed.Receipt == l.Receipt {
			t.Fatalf("renewed lease: got id %s, receipt %q; want id %s and a new receipt", renewed.ID, renewed.Receipt, l.ID)
		}
		one.text, one.receipt, one.visible = text, renewed.Receipt, time.Now().Add(visibility)
		m.leases = append(m.leases, renewed)
	}
}

func (m *model) remove(t *rapid.T) {
	l, one, want := m.draw(t)
	if err := m.q.Delete(m.e.ctx, l); !errors.Is(err, want) {
		t.Fatalf("delete: got %v, want %v", err, want)
	}
	if one != nil {
		delete(m.messages, l.ID)
	}
}

func (m *model) clear(t *rapid.T) {
	if rapid.IntRange(0, 9).Draw(t, "rarely") > 0 {
		t.Skip("the queue would be empty most of the time")
	}
	if err := m.q.Clear(m.e.ctx); err != nil {
		t.Fatal(err)
	}
	clear(m.messages)
}

func (m *model) pass(t *rapid.T) {
	m.e.exactly(drawSeconds(t, 1, 3, "time"))
}

// depth checks after every step that the depth is at least the number of live messages, and at
// most that plus expired ones.
func (m *model) depth(t *rapid.T) {
	p, err := m.q.Properties(m.e.ctx)
	if err != nil {
		t.Fatal(err)
	}
	if live := len(m.live(false)); p.Depth < int64(live) || p.Depth > int64(len(m.messages)) {
		t.Fatalf("depth: got %d, want %d to %d: %s", p.Depth, live, len(m.messages), m)
	}
}

// String lists the messages for people.
func (m *model) String() string {
	var lines []string
	for id, one := range m.messages {
		lines = append(lines, fmt.Sprintf("%s %q visible %v expires %v", id, one.text, one.visible, one.expires))
	}
	slices.Sort(lines)
	return strings.Join(lines, "; ")
}

// depth waits for a depth, which is approximate but never too low.
func (e *env) depth(want int64, when string) {
	e.Helper()
	e.until("depth is right "+when, func() bool {
		p, err := e.q.Properties(e.ctx)
		e.ok(err)
		if p.Depth < want {
			e.Fatalf("depth %s: got %d, want at least %d", when, p.Depth, want)
		}
		return p.Depth == want
	})
}

// metadata checks the queue's metadata. Names lose their case in HTTP headers.
func (e *env) metadata(want map[string]string, when string) {
	e.Helper()
	p, err := e.q.Properties(e.ctx)
	e.ok(err)
	got := make(map[string]string)
	for name, value := range p.Metadata {
		got[strings.ToLower(name)] = value
	}
	lower := make(map[string]string)
	for name, value := range want {
		lower[strings.ToLower(name)] = value
	}
	if !maps.Equal(got, lower) || len(got) != len(p.Metadata) {
		e.Errorf("metadata %s: got %v, want %v", when, p.Metadata, want)
	}
}

var propertyTests = []test{
	{"DepthCountsHiddenMessagesToo", func(e *env) {
		e.create()
		e.depth(0, "at first")
		for range 3 {
			e.enqueue("x", nil)
		}
		e.enqueue("later", &queue.EnqueueOptions{Delay: long})
		e.depth(4, "with a delayed one")
		batch := e.take(2, long)
		e.depth(4, "with two leased")
		e.ok(e.q.Delete(e.ctx, batch[0].Lease))
		e.depth(3, "with one deleted")
	}},
	{"MetadataRoundTrip", func(e *env) {
		want := map[string]string{
			"visibility":      "30",
			"PoisonThreshold": "5",
			"_x9":             `punctuation !"#$%&'()*+,-./:;<=>?@[\]^_{|}~`,
			"blanks":          "a b c",
			"nothing":         "",
			"a":               strings.Repeat("v", 1000),
		}
		e.ok(e.q.Create(e.ctx, want))
		e.metadata(want, "after create")
		e.enqueue("x", nil)
		e.metadata(want, "after an enqueue")
	}},
	{"SetMetadataReplacesTheWholeSet", func(e *env) {
		e.ok(e.q.Create(e.ctx, map[string]string{"a": "1", "b": "2"}))
		e.ok(e.q.SetMetadata(e.ctx, map[string]string{"b": "3", "c": "4", "d": ""}))
		e.metadata(map[string]string{"b": "3", "c": "4", "d": ""}, "after a set")
		e.ok(e.q.SetMetadata(e.ctx, nil))
		e.metadata(nil, "after a set of none")
	}},
	{"MetadataLimit", func(e *env) {
		e.create()
		largest := map[string]string{}
		for _, name := range []string{"a", "b", "c", "d"} {
			largest[name] = strings.Repeat("x", driver.MaxMetadata/4-1)
		}
		e.ok(e.q.SetMetadata(e.ctx, largest))
		e.metadata(largest, "at the limit")
		largest["d"] += "x"
		e.is(e.q.SetMetadata(e.ctx, largest), queue.ErrInvalid, "a byte over the limit")
	}},
}
