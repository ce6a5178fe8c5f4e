package perkey

import "time"

// turns are those of the jobs of one key while it is held. All fields are guarded by Keys.mu.
type turns struct {
	since   time.Time     // when the job began that holds the key
	waiters []*waiter     // in the order in which they came
	typical time.Duration // how long jobs of this key hold it, on average; of all keys until one has ended
	lineEnd time.Time     // when the turn is over, as expected, of the job that was postponed last
}

// waiter is a job that waits in its slot.
type waiter struct {
	turn chan struct{} // closed when it holds the key
}

// length returns how long a turn is expected to last. A job that runs already for longer than others has
// shown that they can.
func (t *turns) length(now time.Time) time.Duration { return max(t.typical, now.Sub(t.since)) }

// expected returns after how long those that are in the process now are expected to be done. A job that has
// run for longer than others takes as long again, as far as anybody knows.
func (t *turns) expected(now time.Time) time.Duration {
	ran := now.Sub(t.since)
	rest := t.typical - ran
	if rest <= 0 {
		rest = ran
	}
	return rest + time.Duration(len(t.waiters))*t.length(now)
}

// join gives a job the next place in the line of those that are to come again. It returns after how long its
// turn is expected, at least a second and at most maxDelay. What is beyond that has no place yet.
func (t *turns) join(now time.Time, step, maxDelay time.Duration) time.Duration {
	turn := now.Add(t.expected(now))
	if t.lineEnd.After(turn) {
		turn = t.lineEnd
	}
	delay := turn.Sub(now)
	if delay >= maxDelay {
		return maxDelay
	}
	t.lineEnd = turn.Add(step)
	return max(delay, time.Second)
}
