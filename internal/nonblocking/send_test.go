package nonblocking_test

import (
	"testing"

	"github.com/millrace/millrace/internal/nonblocking"
)

func TestASendDoesNotWait(t *testing.T) {
	c := make(chan int, 1)
	nonblocking.Send(c, 1)
	nonblocking.Send(c, 2) // dropped: the buffer is full
	if got := <-c; got != 1 || len(c) != 0 {
		t.Errorf("received %d and %d are left, want 1 and 0", got, len(c))
	}
	nonblocking.Send(make(chan int), 1) // nobody receives
	nonblocking.Send(nil, 1)
}
