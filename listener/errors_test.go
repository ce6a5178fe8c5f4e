package listener

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/dispatcher"
)

// nilError is an error whose text cannot be read if it is a nil pointer.
type nilError struct{ text string }

func (e *nilError) Error() string { return e.text }

// A nil pointer in a non-nil error is a failed attempt, alone, in [dispatcher.All], in a batch and in
// another result. The other messages are handled.
func TestANilPointerAsErrorIsAFailedAttempt(t *testing.T) {
	handler := func(_ context.Context, m *Message[job]) error {
		switch {
		case m.Attempt > 1 || m.Body.N%4 == 0:
			return nil
		case m.Body.N%4 == 1:
			return dispatcher.Discard((*nilError)(nil))
		}
		return (*nilError)(nil)
	}
	for name, h := range map[string]Handler[job]{
		"alone": handler,
		"all":   dispatcher.All(handler, nothing, handler),
		"batch": dispatcher.Batch(func(ctx context.Context, ms []*Message[job]) (results []error) {
			for _, m := range ms {
				results = append(results, handler(ctx, m))
			}
			return results
		}, 4, time.Second),
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(b *bundle) {
				b.put(40)
				var reported errorList
				o := options()
				o.OnError = reported.add
				l := New(b.queue, h, o)
				b.run(l)
				advance(10 * time.Minute)
				b.mustFinish()
				if text := reported.text(); strings.Count(text, "handler panicked: ") != 30 || !strings.Contains(text, "nil pointer") {
					b.Errorf("got errors %s, want 30 panics of a nil pointer", text)
				}
				if st := l.State(); st.Outcomes[Deleted] != 40 || st.Outcomes[Retried] != 30 {
					b.Errorf("got state %+v; want Succeeded 40, Retried 30", st)
				}
			})
		})
	}
}
