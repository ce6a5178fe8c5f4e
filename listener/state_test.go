package listener

import (
	"errors"
	"testing"
	"time"
)

func TestAListenerIsReadyWhileItRunsAndPollsSucceed(t *testing.T) {
	polled := time.Now()
	for _, c := range []struct {
		state State
		want  bool
	}{
		{State{Phase: Running, LastPoll: polled}, true},
		{State{Phase: Running}, false}, // the first response is awaited
		{State{Phase: Running, LastPoll: polled, PollError: errors.New("refused")}, false},
		{State{Phase: Draining, LastPoll: polled}, false},
	} {
		if got := c.state.Ready(); got != c.want {
			t.Errorf("%+v: got Ready %v, want %v", c.state, got, c.want)
		}
	}
}
