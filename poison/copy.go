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
