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

// BenchmarkCall measures one call without the network, with azqueue alone and with Queue.
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
			do   func(*testing.B, *Queue) error
		}{{"azqueue", op.azure}, {"queue", op.call}} {
			b.Run(op.name+"/"+way.name, func(b *testing.B) {
				q := openCanned(b, op.answer)
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

// The allocations of a call are bounded, without the transport's. azqueue needs 3,136, 195, and 89.
func TestAllocationsOfACall(t *testing.T) {
	list := string(queuexml.AppendMessages(nil, queuexml.Get, slices.Values(slices.Repeat(someMessages[:1], 32))))
	made := string(queuexml.AppendMessages(nil, queuexml.Put, slices.Values(someMessages[:1])))
	for op, c := range map[string]struct {
		answer canned
		do     func(*Queue) error
		most   float64
	}{
		"dequeue of 32": {instantly(200, list), func(q *Queue) error { _, err := q.Dequeue(t.Context(), 32, time.Second); return err }, 75},
		"enqueue":       {instantly(201, made), func(q *Queue) error { _, err := q.Enqueue(t.Context(), "x", nil); return err }, 45},
		"delete":        {instantly(204, ""), func(q *Queue) error { return q.Delete(t.Context(), someLease) }, 25},
	} {
		q := openCanned(t, c.answer)
		allocations := testing.AllocsPerRun(50, func() {
			if err := c.do(q); err != nil {
				t.Fatal(err)
			}
		})
		if allocations > c.most {
			t.Errorf("allocations of a %s: got %v, want at most %v", op, allocations, c.most)
		}
		t.Logf("%s: %v allocations", op, allocations)
	}
}
