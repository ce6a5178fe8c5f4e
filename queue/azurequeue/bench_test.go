package azurequeue

import (
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/queuexml"
)

// instantly responds without a network, so that only the client is measured.
func instantly(status int, body string) canned {
	header := http.Header{"X-Ms-Request-Id": {"rid-1"}, "X-Ms-Version": {"2026-04-06"}, "Date": {"Sat, 01 Jan 2000 00:00:00 GMT"}}
	return func(r *http.Request) (*http.Response, error) {
		if r.Body != nil {
			if _, err := io.Copy(io.Discard, r.Body); err != nil {
				return nil, err
			}
		}
		answer := &http.Response{StatusCode: status, Header: header, Body: http.NoBody, ContentLength: int64(len(body)), Request: r}
		if body != "" {
			answer.Body = io.NopCloser(strings.NewReader(body))
		}
		return answer, nil
	}
}

// BenchmarkCall measures one call without the network: "azqueue" is the SDK called directly, "plain"
// is Queue without the decoding policy, "decoding" is Queue.
func BenchmarkCall(b *testing.B) {
	message := someMessages[0]
	message.Text = strings.Repeat("x", 1024)
	list := func(part queuexml.Part, n int) string {
		return string(queuexml.AppendMessages(nil, part, slices.Values(slices.Repeat([]queuexml.Message{message}, n))))
	}
	id, receipt := url.PathEscape(string(someLease.ID)), string(someLease.Receipt)
	for _, op := range []struct {
		name   string
		answer canned
		azure  func(*testing.B, *Queue) error
		call   func(*testing.B, *Queue) error
	}{
		{
			"dequeue32", instantly(200, list(queuexml.Get, 32)),
			func(b *testing.B, q *Queue) error { _, err := client(q).DequeueMessages(b.Context(), nil); return err },
			func(b *testing.B, q *Queue) error { _, err := q.Dequeue(b.Context(), 32, 30*time.Second); return err },
		},
		{
			"dequeue1", instantly(200, list(queuexml.Get, 1)),
			func(b *testing.B, q *Queue) error { _, err := client(q).DequeueMessages(b.Context(), nil); return err },
			func(b *testing.B, q *Queue) error { _, err := q.Dequeue(b.Context(), 1, 30*time.Second); return err },
		},
		{
			"enqueue", instantly(201, list(queuexml.Put, 1)),
			func(b *testing.B, q *Queue) error {
				_, err := client(q).EnqueueMessage(b.Context(), message.Text, nil)
				return err
			},
			func(b *testing.B, q *Queue) error { _, err := q.Enqueue(b.Context(), message.Text, nil); return err },
		},
		{
			"delete", instantly(204, ""),
			func(b *testing.B, q *Queue) error {
				_, err := client(q).DeleteMessage(b.Context(), id, receipt, nil)
				return err
			},
			func(b *testing.B, q *Queue) error { return q.Delete(b.Context(), someLease) },
		},
	} {
		for _, way := range []struct {
			name string
			open func(testing.TB, canned) *Queue
			do   func(*testing.B, *Queue) error
		}{{"azqueue", openPlain, op.azure}, {"plain", openPlain, op.call}, {"decoding", openCanned, op.call}} {
			b.Run(op.name+"/"+way.name, func(b *testing.B) {
				q := way.open(b, op.answer)
				b.ReportAllocs()
				for b.Loop() {
					if err := way.do(b, q); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// TestDequeueAllocations limits the allocations of a dequeue of 32 messages, including the request.
// With the SDK's decoder there were 3,150.
func TestDequeueAllocations(t *testing.T) {
	message := someMessages[0]
	body := string(queuexml.AppendMessages(nil, queuexml.Get, slices.Values(slices.Repeat([]queuexml.Message{message}, 32))))
	q := openCanned(t, instantly(200, body))
	allocations := testing.AllocsPerRun(50, func() {
		if batch, err := q.Dequeue(t.Context(), 32, time.Second); err != nil || len(batch) != 32 {
			t.Fatalf("dequeue: got %d messages, %v; want 32", len(batch), err)
		}
	})
	if allocations > 200 {
		t.Errorf("allocations of a dequeue of 32: got %v, want at most 200", allocations)
	}
	t.Logf("%v allocations", allocations)
}
