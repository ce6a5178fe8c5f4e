package internal_test

import (
	"testing"

	"github.com/millrace/millrace/internal/waiting"
)

func TestASendDoesNotWait(t *testing.T) {
	c := make(chan int, 1)
	waiting.Signal(c, 1)
	waiting.Signal(c, 2) // dropped: the buffer is full
	if got := <-c; got != 1 || len(c) != 0 {
		t.Errorf("received %d and %d are left, want 1 and 0", got, len(c))
	}
	waiting.Signal(make(chan int), 1) // nobody receives
	waiting.Signal(nil, 1)
}
