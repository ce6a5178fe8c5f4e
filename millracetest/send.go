package millracetest

import (
	"testing"

	"github.com/millrace/millrace/producer"
	"github.com/millrace/millrace/queue"
)

// Send sends jobs to a queue with a default producer.Producer, or ends the test. Use a producer
// for another codec, a delay or a TTL.
func Send[T any](t testing.TB, q queue.Queue, jobs ...T) {
	t.Helper()
	p := producer.New[T](q, nil)
	for _, job := range jobs {
		if _, err := p.Send(t.Context(), job, nil); err != nil {
			t.Fatalf("millracetest: %v", err)
		}
	}
}
