package azurequeue

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/queue"
)

// Requests are those of the Queue service REST API. Visibility timeout and TTL are always sent and
// rounded up, and an update always has its text.
func TestRequests(t *testing.T) {
	var got string
	q := openCanned(t, func(r *http.Request) (*http.Response, error) {
		query := r.URL.Query()
		for name := range query {
			if strings.HasPrefix(name, "s") {
				query.Del(name) // the signature's
			}
		}
		got = r.Method + " " + r.URL.EscapedPath() + "?" + query.Encode()
		if r.Body != nil {
			b, _ := io.ReadAll(r.Body)
			got += " " + strings.TrimPrefix(string(b), `<?xml version="1.0" encoding="UTF-8"?>`+"\n")
			got = strings.TrimSpace(got)
		}
		if len(r.Header["User-Agent"]) != 0 {
			t.Errorf("headers: got %v, want no User-Agent", r.Header)
		}
		return responding(503, "")(r)
	})
	ctx := t.Context()
	for want, do := range map[string]func(){
		"POST /orders/messages?messagettl=-1&visibilitytimeout=0 <QueueMessage><MessageText>a&lt;b</MessageText></QueueMessage>": func() { q.Enqueue(ctx, "a<b", nil) },
		"POST /orders/messages?messagettl=61&visibilitytimeout=3 <QueueMessage><MessageText></MessageText></QueueMessage>": func() {
			q.Enqueue(ctx, "", &queue.EnqueueOptions{TTL: time.Minute + 1, Delay: 2500 * time.Millisecond})
		},
		"GET /orders/messages?numofmessages=32&visibilitytimeout=31": func() { q.Dequeue(ctx, 32, 30*time.Second+time.Nanosecond) },
		"GET /orders/messages?numofmessages=1&visibilitytimeout=1":   func() { q.Dequeue(ctx, 1, time.Second) },
		"GET /orders/messages?numofmessages=7&peekonly=true":         func() { q.Peek(ctx, 7) },
		"PUT /orders/messages/0f7a-1?popreceipt=AgAAAAMAAAAAAAAA%2Frece%2Bipt%3D&visibilitytimeout=0 <QueueMessage><MessageText>x</MessageText></QueueMessage>": func() { q.Update(ctx, someLease, "x", 0) },
		"PUT /orders/messages/a%2Fb%3F?popreceipt=r&visibilitytimeout=2 <QueueMessage><MessageText></MessageText></QueueMessage>": func() {
			q.Update(ctx, queue.Lease{ID: "a/b?", Receipt: "r"}, "", 1500*time.Millisecond)
		},
		"DELETE /orders/messages/0f7a-1?popreceipt=AgAAAAMAAAAAAAAA%2Frece%2Bipt%3D": func() { q.Delete(ctx, someLease) },
		"GET /orders?comp=metadata":                     func() { q.Properties(ctx) },
		"PUT /orders?":                                  func() { q.Create(ctx, nil) },
		"PUT /orders?comp=metadata":                     func() { q.SetMetadata(ctx, nil) },
		"DELETE /orders/messages?":                      func() { q.Clear(ctx) },
		"DELETE /orders?":                               func() { q.Drop(ctx) },
		"DELETE /orders-poison/messages/1?popreceipt=r": func() { q.Sibling("-poison").Delete(ctx, queue.Lease{ID: "1", Receipt: "r"}) },
	} {
		got = ""
		if do(); got != want {
			t.Errorf("request: got %s\nwant %s", got, want)
		}
	}
}
