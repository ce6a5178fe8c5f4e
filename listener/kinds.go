package listener

import "github.com/millrace/millrace/queue"

// NewKinds returns a listener for a queue with jobs of several kinds, each with its type, its
// handler and its limits. Package kinds makes the kinds. The kind of a message is the name in its
// envelope.
//
// A message of a kind that is not among these is left to another worker, such as one of a newer
// release: it is given back without an attempt, for 3 or 4 s after each of its first 40 deliveries,
// and then for twice as long each time, up to an hour. So is a message without a kind, unless one of
// the kinds has no name. If it also has no envelope, it waits as after failures, and is poison after
// as many deliveries as attempts. A message of a known kind that cannot be decoded is poison
// immediately.
//
// A kind whose handlers keep failing gets a tenth of the slots: see [FailingSource].
//
// The options apply to all kinds together. Codec and TimeoutFor, which depend on the type, must not
// be set. NewKinds starts and sends nothing. The error names every invalid kind and option; a nil
// queue, no kinds, and two kinds with one name are errors too.
func NewKinds(q queue.Queue, kinds []Kind, o *Options[any]) (*Listener[any], error) {
	l := New[any](q, nil, o)
	l.kinds = append([]Kind{}, kinds...) // not nil; the caller may reuse its slice
	if err := l.Check(); err != nil {
		return nil, err
	}
	return l, nil
}
