package natswakeup

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/queue"
)

// hostile returns payloads that no publisher of ours sends.
func hostile() []string {
	later := time.Now().Add(queue.MaxVisibility + 2*maxSkew)
	return []string{
		"", "null", "[]", "{", "garbage", "\x00\xff", `{}`, `"text"`, `{"v":2}`, `{"v":0}`, `{"v":-1}`, `{"v":1e99}`, `{"v":"1"}`,
		`{"v":1,"bytes":-1}`, `{"v":1,"bytes":1e30}`, `{"v":1,"hops":-1}`, `{"v":1,"hops":21}`, `{"v":1,"hops":99999999}`,
		`{"v":1,"due":"tomorrow"}`, `{"v":1,"due":"9999-12-31T23:59:59Z"}`,
		fmt.Sprintf(`{"v":1,"due":%q}`, later.Format(time.RFC3339)),
		`{"v":1,"more":"` + strings.Repeat("x", maxPayload) + `"}`, strings.Repeat("x", 1<<20), strings.Repeat("[", maxPayload),
	}
}

func TestHostilePayloadsAreIgnored(t *testing.T) {
	s := serve(t, -1, nil)
	one, other := setup(t, s), setup(t, s)
	r := listener(t, one, orders)
	for _, data := range hostile() {
		if err := other.conn.Publish(subject("millrace.wakeup", orders), []byte(data)); err != nil {
			t.Fatal(err)
		}
	}
	publish(t, other, orders, 7, time.Time{})
	if got := receive(t, "an event", r.events); got.Bytes != 7 {
		t.Errorf("heard %+v, want only the event that is none of the hostile ones", got)
	}
}

// A flood costs events, but neither the connection nor those of other queues for long.
func TestAFloodIsSurvived(t *testing.T) {
	s := serve(t, -1, nil)
	one, other := setup(t, s), setup(t, s)
	r := listener(t, one, orders)
	letters := listener(t, one, queue.Name{Account: "acme", Queue: "letters"})
	for range 50_000 {
		if err := other.conn.Publish(subject("millrace.wakeup", orders), []byte("garbage")); err != nil {
			t.Fatal(err)
		}
	}
	if err := other.conn.Flush(); err != nil {
		t.Fatal(err)
	}
	if err := one.conn.Flush(); err != nil { // all that is not dropped has come
		t.Fatal(err)
	}
	for one.queued() > 0 {
		if err := one.conn.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	publish(t, other, orders, 1, time.Time{})
	publish(t, other, queue.Name{Account: "acme", Queue: "letters"}, 2, time.Time{})
	r.awaitEvent(t, 1)
	letters.awaitEvent(t, 2)
	if n := one.conn.Stats().Reconnects; n != 0 {
		t.Errorf("connected again %d times", n)
	}
}

// queued returns how many messages wait for the subscribers.
func (t *Transport) queued() int { return len(t.messages) }

// What is decoded is within bounds, and is decoded from what it is encoded to.
func FuzzDecode(f *testing.F) {
	for _, data := range hostile() {
		f.Add([]byte(data))
	}
	f.Add([]byte(`{"v":1,"bytes":7,"due":"2026-01-02T03:04:05.678Z","hops":3}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := decode(data)
		if err != nil {
			return
		}
		if p.Bytes < 0 || p.Hops < 0 || p.Hops > maxHops || time.Until(p.Due) > queue.MaxVisibility+maxSkew {
			t.Errorf("decoded %+v", p)
		}
		again, err := p.encode()
		if err != nil {
			t.Fatal(err)
		}
		if q, err := decode(again); err != nil || q.Bytes != p.Bytes || q.Hops != p.Hops || !q.Due.Equal(p.Due) {
			t.Errorf("%+v became %+v, %v", p, q, err)
		}
	})
}
