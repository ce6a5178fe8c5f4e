package tokens

import "time"

const (
	// lingering is how long a process keeps tokens that it does not need.
	lingering = 5 * time.Second

	// minTurn is how long a process keeps a token that it needs, at least. After that others may have it.
	minTurn = time.Minute

	// drainShare is the share of a turn in which its token may be half used, because it is about to be given back.
	drainShare = 20

	// yieldFor is for how long a process does not ask for tokens after it has given one back for others.
	yieldFor = 2 * time.Second
)

// turns decides which tokens a process gives back. Those that it does not need go back soon. Of those that it needs
// one goes back from time to time, unless there are some to be had, so that no process starves while another has them all: who
// gives one back does not ask for a moment, and nobody can tell whether others wait. ConcurrencyLimit.mu guards it.
type turns struct {
	peak  int       // the most jobs at once since then
	since time.Time // when peak began to be measured

	leaving *heldToken    // to be given back as soon as the jobs have room under the others; nil for none
	looking bool          // a request is under way that tells whether there are others
	began   time.Time     // when it was chosen
	next    time.Time     // when one is chosen next
	length  time.Duration // of a turn
}

// begin begins a turn with the first token.
func (t *turns) begin(now time.Time) {
	t.since, t.next = now, now.Add(t.length)
}

// left notes that the leaving token was given back, and that the process had so many. Tokens that take long to come
// free are given back more rarely: a turn is so long that drainShare of them would fit in.
func (t *turns) left(now time.Time, held int) {
	t.length = max(minTurn, drainShare*now.Sub(t.began))
	t.leaving = nil
	t.later(now, held)
}

// later sets when the next of so many tokens is chosen.
func (t *turns) later(now time.Time, held int) {
	t.next = now.Add(max(t.length/time.Duration(max(held, 1)), 2*yieldFor))
}

// surplus returns how many of the tokens, each worth perToken, were not needed for a while.
func (t *turns) surplus(now time.Time, tokens, perToken, used int, atOnce bool) int {
	if !atOnce && now.Sub(t.since) < lingering {
		return 0
	}
	need := used
	if !atOnce {
		need = max(need, t.peak)
	}
	t.peak, t.since = used, now
	return max(tokens-(need+perToken-1)/perToken, 0)
}
