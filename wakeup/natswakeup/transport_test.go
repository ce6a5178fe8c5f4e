package natswakeup

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"pgregory.net/rapid"

	"github.com/millrace/millrace/queue"
)

// What one process publishes arrives in order at each other, so the last event of each shows that all
// others have come.
func TestOneEventForManyIdleProcessesWakesOne(t *testing.T) {
	const processes, events = 20, 100
	s := serve(t, -1, nil)
	var all, last []*recorder
	lastOf := func(i int) queue.Name { return queue.Name{Account: "acme", Queue: fmt.Sprintf("last-%d", i)} }
	for i := range processes {
		one := setup(t, s)
		all, last = append(all, listener(t, one, orders)), append(last, listener(t, one, lastOf(i)))
	}
	publisher := setup(t, s)
	for range events {
		publish(t, publisher, orders, 1, time.Time{})
	}
	heard := 0
	for i := range processes {
		publish(t, publisher, lastOf(i), 2, time.Time{})
		last[i].awaitEvent(t, 2)
		heard += len(all[i].events)
	}
	if heard != events {
		t.Errorf("%d events were heard %d times", events, heard)
	}
}

func TestDifferentQueuesHaveDifferentSubjects(t *testing.T) {
	name := rapid.OneOf(rapid.String(), rapid.StringMatching(`[a=.*> %-]{0,4}`), rapid.Map(rapid.SliceOfN(rapid.Byte(), 0, 4), func(b []byte) string { return string(b) }))
	rapid.Check(t, func(t *rapid.T) {
		a := queue.Name{Account: name.Draw(t, "account"), Queue: name.Draw(t, "queue")}
		b := queue.Name{Account: name.Draw(t, "other account"), Queue: name.Draw(t, "other queue")}
		subjectA, subjectB := subject("p", a), subject("p", b)
		if (a == b) != (subjectA == subjectB) {
			t.Errorf("%q and %q have the subjects %s and %s", a, b, subjectA, subjectB)
		}
		parts := strings.Split(subjectA, ".")
		if len(parts) != 3 || strings.ContainsAny(subjectA, "*> \t\r\n\x00") || parts[1] == "" || parts[2] == "" {
			t.Errorf("%q has the invalid subject %q", a, subjectA)
		}
	})
}

// A queue with any name has events: the server accepts its subject.
func TestAnyNameWorks(t *testing.T) {
	s := serve(t, -1, nil)
	for _, name := range []queue.Name{{}, {Account: "a.b", Queue: "*"}, {Account: ">", Queue: "with space\n"}, {Account: "ü", Queue: "\xff"}} {
		r := listener(t, setup(t, s), name)
		publish(t, setup(t, s), name, 7, time.Time{})
		if got := receive(t, "an event", r.events); got.Queue != name {
			t.Errorf("published for %q, heard for %q", name, got.Queue)
		}
	}
	long := queue.Name{Queue: strings.Repeat("q", maxSubject)}
	if _, err := setup(t, s).Subscribe(long, nil, nil); err == nil || !strings.Contains(err.Error(), "1024") {
		t.Errorf("a name that is too long: %v", err)
	}
}

func TestABadPrefixIsRefused(t *testing.T) {
	s := serve(t, -1, nil)
	conn := setup(t, s).conn
	for _, prefix := range []string{".", "a.", ".a", "a..b", "*", "a.>", "a b", "a\n", strings.Repeat("p", maxSubject)} {
		if transport, err := New(conn, &Options{Prefix: prefix}); transport != nil || err == nil || !strings.Contains(err.Error(), "Prefix") {
			t.Errorf("prefix %.20q: got %v, %v", prefix, transport, err)
		}
	}
	if transport, err := New(nil, nil); transport != nil || err == nil || !strings.Contains(err.Error(), "pass the one that nats.Connect returned") {
		t.Errorf("a nil connection: got %v, %v", transport, err)
	}
}

// Systems with prefixes of their own do not hear each other.
func TestPrefixesSeparateSystems(t *testing.T) {
	s := serve(t, -1, nil)
	one := setup(t, s)
	other, err := New(one.conn, &Options{Prefix: "acme.test"})
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	a, b := listener(t, one, orders), listener(t, other, orders)
	for range 20 {
		publish(t, one, orders, 1, time.Time{})
		publish(t, other, orders, 2, time.Time{})
	}
	for range 20 {
		if x, y := receive(t, "an event", a.events), receive(t, "an event", b.events); x.Bytes != 1 || y.Bytes != 2 {
			t.Fatalf("heard %+v and %+v", x, y)
		}
	}
}

func TestClose(t *testing.T) {
	s := serve(t, -1, nil)
	before := int(s.NumSubscriptions())
	one := setup(t, s)
	r := listener(t, one, orders)
	for range 2 {
		one.Close()
	}
	settle(t, s, []*Transport{one}, before)
	if _, err := one.Subscribe(orders, nil, nil); !errors.Is(err, ErrClosed) {
		t.Errorf("subscribe: %v", err)
	}
	if err := one.Publish(t.Context(), orders, 0, time.Time{}); !errors.Is(err, ErrClosed) {
		t.Errorf("publish: %v", err)
	}
	r.Ready(true)
	r.More()
	r.Close()
	if !one.conn.IsConnected() {
		t.Error("the connection was closed")
	}
	again, err := New(one.conn, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	listener(t, again, orders)
}

func TestAClosedConnectionIsAnError(t *testing.T) {
	s := serve(t, -1, nil)
	one := setup(t, s)
	r := listener(t, one, orders)
	one.conn.Close()
	r.awaitListening(t, false)
	if err := one.Publish(t.Context(), orders, 0, time.Time{}); !errors.Is(err, nats.ErrConnectionClosed) {
		t.Errorf("publish: %v", err)
	}
	if _, err := one.Subscribe(orders, nil, nil); !errors.Is(err, nats.ErrConnectionClosed) {
		t.Errorf("subscribe: %v", err)
	}
	r.Ready(false)
	r.Ready(true)
	r.Close()
}

// A subscriber that may not subscribe must not believe that it listens, because it would not poll.
func TestADeniedSubscriptionNeverListens(t *testing.T) {
	for denied, listens := range map[string]bool{"millrace.wakeup.acme.*": false, "*.*.*.orders": false, "foreign.>": true} {
		s := serve(t, -1, func(o *server.Options) {
			o.Users = []*server.User{{Username: "worker", Password: "secret", Permissions: &server.Permissions{
				Subscribe: &server.SubjectPermission{Deny: []string{denied}},
			}}}
		})
		one := setup(t, s, nats.UserInfo("worker", "secret"))
		r := subscribe(t, one, orders)
		// A second queue, whose subscriptions are allowed or denied alike, shows that the first was decided.
		if listens {
			r.awaitListening(t, true)
			continue
		}
		if err := one.conn.Flush(); err != nil {
			t.Fatal(err)
		}
		for range 20 { // each is a round trip of the controller
			r.Ready(false)
			r.Ready(true)
			if err := one.conn.Flush(); err != nil {
				t.Fatal(err)
			}
		}
		r.Close()
		one.Close()
		if len(r.listening) != 0 {
			t.Errorf("with %s denied it listens", denied)
		}
	}
}

// Of several refusals the connection keeps the last, and later errors replace it: neither makes a
// subscriber listen.
func TestNoneOfSeveralDeniedSubscriptionsListens(t *testing.T) {
	s := serve(t, -1, func(o *server.Options) {
		o.Users = []*server.User{{Username: "worker", Password: "secret", Permissions: &server.Permissions{
			Subscribe: &server.SubjectPermission{Deny: []string{"millrace.wakeup.acme.*"}},
			Publish:   &server.SubjectPermission{Deny: []string{"millrace.wakeup.>"}},
		}}}
	})
	var refusals atomic.Int64
	one := setup(t, s, nats.UserInfo("worker", "secret"), nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
		if strings.Contains(err.Error(), "Subscription to") {
			refusals.Add(1)
		}
	}))
	var denied []*recorder
	for i := range 10 {
		denied = append(denied, subscribe(t, one, queue.Name{Account: "acme", Queue: fmt.Sprint(i)}))
	}
	for i := range 20 {
		allowed := queue.Name{Account: "other", Queue: fmt.Sprint(i)}
		r := listener(t, one, allowed)
		publish(t, one, allowed, 0, time.Time{}) // refused: another error, of the same subject
		if err := one.conn.Flush(); err != nil {
			t.Fatal(err)
		}
		r.Ready(false)
		r.Ready(true)
		r.awaitListening(t, true)
	}
	for _, r := range denied {
		if len(r.listening) != 0 {
			t.Error("a denied subscriber listens")
		}
	}
	if n := refusals.Load(); n > 40 { // one together and one alone for each of the ten
		t.Errorf("the server refused %d subscriptions: what it has refused is asked for again and again", n)
	}
}

func TestOnlyTheRefusalOfASubscriptionIsOne(t *testing.T) {
	for text, want := range map[string]bool{
		`Permissions Violation for Subscription to "p.a.q" using queue "millrace"`: true,
		`Permissions Violation for Subscription to "p.a.other" using queue "q"`:    false,
		`Permissions Violation for Publish to "p.a.q"`:                             false,
	} {
		if got := isRefused(fmt.Errorf("%w: %s", nats.ErrPermissionViolation, text), "p.a.q"); got != want {
			t.Errorf("%s: got %v, want %v", text, got, want)
		}
	}
	if isRefused(nil, "p.a.q") || isRefused(nats.ErrSlowConsumer, "p.a.q") {
		t.Error("another error counts as a refusal")
	}
}

// More asks for one other process, however often the transport has something else to do.
func TestMoreAsksOnce(t *testing.T) {
	s := serve(t, -1, nil)
	one, other := setup(t, s), setup(t, s)
	r, woken := listener(t, one, orders), listener(t, other, orders)
	all, err := other.conn.SubscribeSync(subject("millrace.wakeup", orders)) // hears what any process may get
	if err != nil {
		t.Fatal(err)
	}
	if err := other.conn.Flush(); err != nil {
		t.Fatal(err)
	}
	r.More()
	receive(t, "an event", woken.events)
	for range 5 {
		r.Ready(false)
		r.Ready(true)
		r.awaitListening(t, true)
	}
	if err := other.conn.Flush(); err != nil {
		t.Fatal(err)
	}
	asked := 0
	for {
		m, err := all.NextMsg(time.Millisecond) // the flush has brought them all
		if err != nil {
			break
		}
		if p, err := decode(m.Data); err != nil || p.Hops == 0 {
			asked++
		}
	}
	if asked != 1 {
		t.Errorf("asked %d times for another process, want once", asked)
	}
}

// NATS may choose the process that asks. If it is alone its question ends all the same.
func TestMoreOfTheOnlyProcessEnds(t *testing.T) {
	s := serve(t, -1, nil)
	one, other := setup(t, s), setup(t, s)
	r := listener(t, one, orders)
	all, err := other.conn.SubscribeSync(subject("millrace.wakeup", orders))
	if err != nil {
		t.Fatal(err)
	}
	if err := other.conn.Flush(); err != nil {
		t.Fatal(err)
	}
	r.More()
	for hops := range maxHops + 1 {
		m, err := all.NextMsg(30 * time.Second)
		if err != nil {
			t.Fatal(err)
		}
		if p, err := decode(m.Data); err != nil || p.Hops != hops || p.From != one.id {
			t.Fatalf("heard %s, %v, want that it was handed on %d times", m.Data, err, hops)
		}
	}
	// What the process sends next comes next.
	publish(t, one, orders, 7, time.Time{})
	r.awaitEvent(t, 7)
	m, err := all.NextMsg(30 * time.Second)
	if err != nil {
		t.Fatal(err)
	}
	if p, err := decode(m.Data); err != nil || p.Bytes != 7 || len(r.events) != 0 {
		t.Errorf("heard %s, %v, and %d events; want only the one that was published", m.Data, err, len(r.events))
	}
}

// Permissions may change while the connection is down.
func TestADeniedSubscriptionIsTriedAgainOnTheNextConnection(t *testing.T) {
	worker := func(deny ...string) func(*server.Options) {
		return func(o *server.Options) {
			o.Users = []*server.User{{Username: "worker", Password: "secret", Permissions: &server.Permissions{
				Subscribe: &server.SubjectPermission{Deny: deny},
			}}}
		}
	}
	s := serve(t, -1, worker("millrace.wakeup.acme.*"))
	port := portOf(s)
	one := setup(t, s, nats.UserInfo("worker", "secret"))
	r := subscribe(t, one, orders)
	listener(t, one, queue.Name{Account: "other", Queue: "orders"})
	s.Shutdown()
	s.WaitForShutdown()
	serve(t, port, worker("foreign.>"))
	r.awaitListening(t, true)
	publish(t, one, orders, 7, time.Time{})
	r.awaitEvent(t, 7)
}

// An event that reaches a process which has just lost its room is handed on.
func TestAnEventWithoutRoomIsHandedOn(t *testing.T) {
	s := serve(t, -1, nil)
	full, free, publisher := setup(t, s), setup(t, s), setup(t, s)
	a := listener(t, full, orders)
	b := listener(t, free, orders)
	full.mu.Lock() // the server does not know yet that there is no room
	a.Subscription.(*subscription).ready = false
	full.mu.Unlock()
	for i := range int64(20) {
		publish(t, publisher, orders, i+1, time.Time{})
		b.awaitEvent(t, i+1)
	}
	if len(a.events) != 0 {
		t.Errorf("%d events were heard without room", len(a.events))
	}
}

func TestDeliveriesAreNotLateForDueTimes(t *testing.T) {
	s := serve(t, -1, nil)
	r := listener(t, setup(t, s), orders)
	due := time.Now().Add(time.Hour)
	publish(t, setup(t, s), orders, 1, due)
	if got := receive(t, "an event", r.events); !got.Due.Equal(due) {
		t.Errorf("due at %v, want %v", got.Due, due)
	}
}
