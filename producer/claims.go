package producer

import (
	"context"
	"errors"
	"fmt"

	"github.com/millrace/millrace/blob"
	"github.com/millrace/millrace/queue"
)

// Claims stores bodies that are too large for a message. Package claimcheck implements it.
// Implementations must be safe for concurrent use.
type Claims interface {
	// Limit returns the size of the largest body, in bytes, that stays in its message if it fits.
	Limit() int

	// Put stores a body and returns its claim, with which workers find it, at most
	// codec.MaxHeadText bytes.
	Put(ctx context.Context, body []byte) (claim string, err error)
}

// text returns the text that is sent. A body that is too large for it is stored first, once for
// all calls of the interceptors that send the same job.
func (p *Producer[T]) text(ctx context.Context, s *Sending, body []byte) (string, error) {
	if s.claim != "" && s.Head.Claim == s.claim {
		if s.claimed == jobOf(s) {
			return p.seal(s, nil)
		}
		s.Head.Claim = "" // an interceptor made another job of it, which needs its body when the first is done
	}
	if p.options.Claims == nil || s.Head.Claim != "" {
		return p.seal(s, body)
	}
	if len(body) <= p.options.Claims.Limit() {
		if text, err := p.seal(s, body); !errors.Is(err, queue.ErrTooLarge) {
			return text, err
		}
	}
	if _, err := p.seal(s, nil); err != nil { // nothing is stored for what cannot be sent
		return "", err
	}
	claim, err := p.options.Claims.Put(ctx, body)
	if err != nil {
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			err = fmt.Errorf("%w: %w", blob.ErrUnavailable, err)
		}
		return "", fmt.Errorf("store its body of %d bytes: %w", len(body), err)
	}
	s.claim, s.claimed, s.Head.Claim = claim, jobOf(s), claim
	return p.seal(s, nil)
}

func jobOf(s *Sending) [2]string { return [2]string{s.Head.ID, s.Head.Kind} }
