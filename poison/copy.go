package poison

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/millrace/millrace/internal/retry"
	"github.com/millrace/millrace/queue"
)

// maxError is how much of an error text is kept when the whole does not fit.
const maxError = 512

// Copy puts the record into the policy's queue, durably when it returns nil. The
// caller then deletes the original, never before. Transient failures are repeated
// until ctx ends; repeating after an unknown outcome may leave two copies. It is
// an error to call it on a policy that keeps.
func (p Policy) Copy(ctx context.Context, r Record) error {
	if p.Queue == nil {
		return errors.New("copy to a poison queue: the policy has none")
	}
	for _, text := range p.texts(r) {
		err := retry.Do(ctx, string(r.ID), func(ctx context.Context) error { return p.put(ctx, text) })
		if errors.Is(err, queue.ErrTooLarge) {
			continue
		}
		if err != nil {
			return fmt.Errorf("copy message %s of %s/%s to its poison queue: %w", string(r.ID), r.Account, r.Queue, err)
		}
		return nil
	}
	// The original fitted into a message of the same service, so its bare text
	// does too: only a smaller service behind another account can bring us here.
	return fmt.Errorf("copy message %s of %s/%s to its poison queue: %w", string(r.ID), r.Account, r.Queue, queue.ErrTooLarge)
}

func (p Policy) put(ctx context.Context, text string) error {
	_, err := p.Queue.Enqueue(ctx, text, &queue.EnqueueOptions{TTL: queue.Forever})
	if !errors.Is(err, queue.ErrQueueMissing) {
		return err
	}
	if err := p.Queue.Create(ctx, nil); err != nil && !errors.Is(err, queue.ErrQueueExists) {
		return err
	}
	_, err = p.Queue.Enqueue(ctx, text, &queue.EnqueueOptions{TTL: queue.Forever})
	return err
}

// texts returns what to send, best first: with the whole error, with its
// beginning, without it, and the bare text.
func (p Policy) texts(r Record) []string {
	if p.Bare {
		return []string{r.Text}
	}
	var texts []string
	add := func() {
		if text, err := r.encode(); err == nil && (len(texts) == 0 || len(text) < len(texts[len(texts)-1])) {
			texts = append(texts, text)
		}
	}
	add()
	if len(r.Error) > maxError {
		r.Error = strings.ToValidUTF8(r.Error[:maxError], "") + " …"
		add()
	}
	r.Error = ""
	add()
	return append(texts, r.Text)
}
