package poisonrecord

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/millrace/millrace/internal/request"
	"github.com/millrace/millrace/internal/retry"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/driver"
)

// Defaults of [Policy].
const (
	DefaultMaxAttempts = 5
	DefaultMaxLost     = 5
)

// Suffix is that of package poison.
const Suffix = "-poison"

// Policy has the fields of poison.Policy, so that each converts to the other.
type Policy struct {
	MaxAttempts int
	MaxLost     int
	Queue       queue.Queue
	Bare        bool
	Keep        bool
}

// WithDefaults returns p with the defaults for the queue q, or an error for an invalid policy.
func (p Policy) WithDefaults(q queue.Queue) (Policy, error) {
	if p.MaxAttempts < 0 || p.MaxLost < 0 {
		return p, fmt.Errorf("poison thresholds of %d attempts and %d lost starts must be at least 1", p.MaxAttempts, p.MaxLost)
	}
	p.MaxLost = cmp.Or(p.MaxLost, DefaultMaxLost)
	p.MaxAttempts = cmp.Or(p.MaxAttempts, DefaultMaxAttempts)
	if p.Keep {
		if p.Queue != nil {
			return p, errors.New("poison policy sets both Queue and Keep: set only one")
		}
		return p, nil
	}
	if p.Queue == nil {
		name := q.Name().Queue
		hasSibling := !strings.HasSuffix(name, Suffix) && driver.CheckName(name+Suffix) == nil
		if !hasSibling {
			p.Keep = true
			return p, nil
		}
		p.Queue = q.Sibling(Suffix)
	}
	if err := driver.CheckName(p.Queue.Name().Queue); err != nil {
		return p, fmt.Errorf("poison queue: %w", err)
	}
	if p.Queue.Name() == q.Name() {
		return p, fmt.Errorf("poison queue %v is the queue itself: its messages would be moved to itself for ever", q.Name())
	}
	return p, nil
}

// maxError is how many bytes of an error text are kept if the whole does not fit.
const maxError = 512

// Copy writes the record to the policy's queue; when it returns nil the copy is durable. The
// caller then deletes the original, never before. Transient failures are retried until ctx
// ends; a retry after an unknown outcome may leave two copies. The cause of its requests is
// request.CausePoison. A policy with Keep is an error.
func (p Policy) Copy(ctx context.Context, r Record) error {
	if p.Queue == nil {
		return errors.New("copy to a poison queue: the policy has none")
	}
	if request.CauseOf(ctx) != request.CausePoison { // a dispatcher has set it already
		ctx = request.WithCause(ctx, request.CausePoison)
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
// of the error, without it, with nothing but what cannot be derived, as parameters of the envelope,
// and the bare message text. The body is never shortened.
func (p Policy) texts(r Record) []string {
	if p.Bare {
		return []string{bareText(r.Text)}
	}
	var texts []string
	add := func() {
		if text, err := r.Encode(); err == nil && (len(texts) == 0 || len(text) < len(texts[len(texts)-1])) {
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
	r.Job, r.Host, r.Fingerprint, r.FirstSeen, r.LastSeen, r.Lost = "", "", "", time.Time{}, time.Time{}, 0
	add()
	return append(append(texts, r.movedTexts()...), r.Text)
}
