package millracetest_test

import (
	"testing"

	"github.com/millrace/millrace/millracetest"
)

func TestQueuesOfOneTestHaveDifferentNames(t *testing.T) {
	for _, want := range []string{"millracetest/jobs", "millracetest/jobs-2", "millracetest/jobs-3"} {
		if got := millracetest.Queue(t).Name().String(); got != want {
			t.Errorf("name: got %s, want %s", got, want)
		}
	}
	t.Run("another test", func(t *testing.T) {
		if got, want := millracetest.Queue(t).Name().String(), "millracetest/jobs"; got != want {
			t.Errorf("name: got %s, want %s", got, want)
		}
	})
}
