package poison

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/millrace/millrace/codec"
	"github.com/millrace/millrace/internal/retry"
	"github.com/millrace/millrace/queue"
)

// Defaults of [Policy].
const (
	DefaultMaxAttempts = 5
	DefaultMaxLost     = 5
)

// Suffix is appended to the name of a queue for the name of its poison queue.
const Suffix = "-poison"

// Policy decides when a message is poison and where it is moved. The zero value is the default
// policy.
type Policy struct {
	// MaxAttempts is how many recorded failures make a message poison. For a message without an
	// envelope every delivery counts, also one whose worker died. Defaults to 5. Negative is an
	// error.
	MaxAttempts int

	// MaxLost is how many handlers in a row may be recorded to start without a result, because
	// the worker died or lost its lease, before the message is poison: the message itself may
	// kill the worker. The first start after each settlement is not recorded, so a job that kills its
	// worker runs MaxLost + 1 times. Deliveries that never reached a handler do not count, nor
	// do, in the same process, up to 20 handlers that returned without their lease. It applies
	// to messages with an envelope; if the text has no room for the record every delivery
	// counts. Defaults to 5. Negative is an error.
	MaxLost int

	// Queue is where poison is moved. It is created when missing. Defaults to the sibling of
	// the queue with [Suffix]. A queue that is itself a poison queue, or whose name is too long
	// for the suffix, has no default: see Keep.
	Queue queue.Queue

	// Bare copies only the body, as consumers of other frameworks expect it: no [Record], and no
	// envelope either. The body is as it is, or in Base64 if XML cannot carry it. A message that
	// has no envelope is copied unchanged, and so is one whose body is stored elsewhere. Why it is
	// poison, where it came from, and the kind of its job are lost. Defaults to false.
	Bare bool

	// Keep leaves a poison message in its queue, never handled, and hidden again each time it
	// becomes visible: for a minute at first, then for twice as long each time, up to a day, and
	// for at most half of its remaining life. Defaults to false, except where Queue has no
	// default.
	Keep bool
}

// WithDefaults returns p with the defaults for the queue q, or an error for an invalid policy.
func (p Policy) WithDefaults(q queue.Queue) (Policy, error) {
	if p.MaxAttempts < 0 || p.MaxLost < 0 {
		return p, fmt.Errorf("poison thresholds of %d attempts and %d lost starts must be at least 1", p.MaxAttempts, p.MaxLost)
	}
	if p.MaxLost == 0 {
		p.MaxLost = DefaultMaxLost
	}
	if p.MaxAttempts == 0 {
		p.MaxAttempts = DefaultMaxAttempts
	}
	if p.Keep {
		if p.Queue != nil {
			return p, errors.New("poison policy sets both Queue and Keep: set only one")
		}
		return p, nil
	}
	if p.Queue == nil {
		if !hasSibling(q.Name().Queue) {
			p.Keep = true
			return p, nil
		}
		p.Queue = q.Sibling(Suffix)
	}
	if p.Queue.Name() == q.Name() {
		return p, fmt.Errorf("poison queue %v is the queue itself: its messages would be moved to itself for ever", q.Name())
	}
	return p, nil
}

// hasSibling reports whether a queue can have a poison queue beside it.
func hasSibling(name string) bool {
	return !strings.HasSuffix(name, Suffix) && queue.CheckName(name+Suffix) == nil
}

// maxError is how many bytes of an error text are kept if the whole does not fit.
const maxError = 512

// Copy writes the record to the policy's queue; when it returns nil the copy is durable. The
// caller then deletes the original, never before. Transient failures are retried until ctx
// ends; a retry after an unknown outcome may leave two copies. The cause of its requests is
// [queue.CausePoison]. A policy with Keep is an error.
func (p Policy) Copy(ctx context.Context, r Record) error {
	if p.Queue == nil {
		return errors.New("copy to a poison queue: the policy has none")
	}
	if queue.CauseOf(ctx) != queue.CausePoison { // a dispatcher has set it already
		ctx = queue.WithCause(ctx, queue.CausePoison)
	}
	for _, text := range p.texts(r) {
		err := retry.Do(ctx, string(r.ID), queue.Transient, func(ctx context.Context) error { return p.put(ctx, text) })
		if errors.Is(err, queue.ErrTooLarge) {
			continue
		}
		if err != nil {
			return fmt.Errorf("copy message %s of %s/%s to its poison queue: %w", string(r.ID), r.Account, r.Queue, err)
		}
		return nil
	}
	// The original fitted into a message of the same service, so its bare text does too. Only
	// another service with a lower limit gets here.
	return fmt.Errorf("copy message %s of %s/%s to its poison queue: %w", string(r.ID), r.Account, r.Queue, queue.ErrTooLarge)
}

func (p Policy) put(ctx context.Context, text string) error {
	_, err := p.Queue.Enqueue(ctx, text, &queue.EnqueueOptions{TTL: queue.Forever})
	if !errors.Is(err, queue.ErrQueueMissing) {
		return err
	}
	if err := p.Queue.Create(ctx, nil); err != nil && !errors.Is(err, queue.ErrQueueExists) {
		return fmt.Errorf("it does not exist and could not be created; create %s, or allow this worker to: %w", p.Queue.Name().Queue, err)
	}
	_, err = p.Queue.Enqueue(ctx, text, &queue.EnqueueOptions{TTL: queue.Forever})
	return err
}

// texts returns the texts to try in order: the whole record, without the stack, with the beginning
// of the error, without it, with nothing but what cannot be derived, and the bare message text.
// The body is never shortened.
func (p Policy) texts(r Record) []string {
	if p.Bare {
		return []string{bareText(r.Text)}
	}
	var texts []string
	add := func() {
		if text, err := r.encode(); err == nil && (len(texts) == 0 || len(text) < len(texts[len(texts)-1])) {
			texts = append(texts, text)
		}
	}
	add()
	r.Stack = ""
	add()
	if len(r.Error) > maxError {
		r.Error = strings.ToValidUTF8(r.Error[:maxError], "") + " …"
		add()
	}
	r.Error = ""
	add()
	r = r.withoutDerived()
	add()
	return append(texts, r.Text)
}

// bareText returns what consumers that know no envelope read: the body, or Base64 of one that XML
// cannot carry. A text without an envelope stays as it is; so does one whose body is elsewhere or a
// group, or that this program cannot read.
func bareText(text string) string {
	head, body, _, err := open(text, codec.Envelope)
	if err != nil || head.Claim != "" || head.Items > 0 {
		return text
	}
	format := codec.Plain
	if queue.CheckText(string(body)) != nil {
		format = codec.Base64
	}
	bare, err := codec.Seal(codec.Head{}, body, format)
	if err != nil {
		return text
	}
	return bare
}
