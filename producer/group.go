package producer

import (
	"context"
	"errors"
	"fmt"

	"github.com/millrace/millrace/codec"
	"github.com/millrace/millrace/queue"
)

// SendGroup sends several jobs in one message, as [Producer.Send] sends one: they are put, fetched
// and deleted together, at the cost of one job. Workers handle and retry each by itself, under the
// options and the job id of the group: see listener.Each.
//
// A group must fit into a message, 64 KiB of text, with the room in which what has been done of it
// is recorded; otherwise it is [queue.ErrTooLarge], and nothing is sent. With Options.Claims a larger
// one is stored, in one piece. An empty group, one of more than codec.MaxItems jobs, and a format
// without an envelope are [queue.ErrInvalid].
func (p *Producer[T]) SendGroup(ctx context.Context, jobs []T, o *SendOptions) (Sent, error) {
	if err := p.ready(); err != nil {
		return Sent{}, err
	}
	s, err := p.sending(ctx, o)
	var body []byte
	if err == nil {
		err = p.checkGroup(len(jobs))
	}
	if err == nil {
		s.items, s.Head.Items = len(jobs), len(jobs)
		body, err = p.encodeGroup(jobs)
	}
	sent, err := p.send(ctx, s, body, err, p.wakeups.wake)
	if errors.Is(err, queue.ErrTooLarge) {
		err = fmt.Errorf("%w: a group of %d jobs, %d bytes together: send fewer at a time, or set Options.Claims", err, len(jobs), len(body))
	}
	return sent, err
}

// checkGroup refuses a group of this many jobs if it cannot be sent.
func (p *Producer[T]) checkGroup(jobs int) error {
	switch {
	case jobs < 1 || jobs > codec.MaxItems:
		return &queue.Error{Kind: queue.ErrInvalid, Detail: fmt.Sprintf("a group of %d jobs is outside 1…%d", jobs, codec.MaxItems)}
	case !p.options.Format.HasHead():
		return &queue.Error{Kind: queue.ErrInvalid, Hint: "leave Format at codec.Auto",
			Detail: fmt.Sprintf("a group needs an envelope, and the format %v has none", p.options.Format)}
	}
	return nil
}

func (p *Producer[T]) encodeGroup(jobs []T) ([]byte, error) {
	g := make(codec.Group, len(jobs))
	for i, job := range jobs {
		var err error
		if g[i], err = p.options.Codec.Encode(job); err != nil {
			return nil, fmt.Errorf("item %d of a group of %d: %w", i, len(jobs), err)
		}
	}
	return g.Encode(), nil
}
