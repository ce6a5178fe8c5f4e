package millracetest

import (
	"testing"

	"github.com/millrace/millrace/producer"
	"github.com/millrace/millrace/queue"
)

// Send puts jobs on a queue as a producer.Producer with its defaults does, or fails the
// test at once. For another codec, a delay or a TTL use a producer.
func Send[T any](t testing.TB, q queue.Queue, jobs ...T) {
	t.Helper()
	p := producer.New[T](q, nil)
	for _, job := range jobs {
		if _, err := p.Send(t.Context(), job, nil); err != nil {
			t.Fatalf("millracetest: %v", err)
		}
	}
}
