package producer

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"iter"

	"github.com/millrace/millrace/internal/bodytext"
	"github.com/millrace/millrace/internal/envelope"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/driver"
)

// pack is the encoded jobs of a message that is being filled.
type pack struct {
	bodies  envelope.Group
	indexes []int // of the jobs
	size    int   // of the group
	request int   // the same escaped for XML
	binary  bool  // whether the group is sent in Base64
}

// headRoom is what a message leaves free for the head of its envelope and for the record of attempts.
// Few heads need more. A message that does not fit because of its head is divided.
const headRoom = 1 << 10

// add adds a job. It returns false if the job does not fit beside the others, in a group of at most so many bytes. The
// first job always fits.
func (p *pack) add(body []byte, index, most int) bool {
	n := len(body) + len("0:\n") // as envelope.Group.Encode writes it
	for length := len(body); length > 9; length /= 10 {
		n++
	}
	size, request := p.size+n, p.request+n+bodytext.EscapesOf(body)+bodytext.Escapes("\n")
	binary := p.binary || !bodytext.IsXMLText(body)
	if len(p.bodies) > 0 {
		text, escaped := size, request
		if binary {
			text = base64.StdEncoding.EncodedLen(size)
			escaped = text
		}
		room := headRoom + len(p.bodies)/2 // the record takes three bits for each job, in Base64
		if size > most || text+room > queue.MaxText || escaped+room > driver.MaxRequest {
			return false
		}
	}
	*p = pack{append(p.bodies, body), append(p.indexes, index), size, request, binary}
	return true
}

// pack takes jobs and sends them packed. It returns why it took no more before the sequence ended,
// or nil.
func (s *sendAll[T]) pack(ctx context.Context, jobs iter.Seq[T]) (ended error) {
	most := queue.MaxText // bytes of a group; a larger one would have a claim
	if c := s.producer.options.Claims; c != nil {
		most = c.Limit()
	}
	var m message[T] // the one that is being filled, for which a slot was acquired
	flush := func() error {
		s.start(ctx, m)
		m = message[T]{}
		return s.acquire(ctx)
	}
	for job := range jobs {
		i, o := s.take(job)
		body, err := s.producer.options.Codec.Encode(job)
		switch {
		case err != nil:
			_, err = s.producer.send(ctx, nil, nil, err, nil) // which sends nothing, and says what failed
			s.record(Result{Index: i, Err: err})
		case len(m.packed.bodies) > 0 && share(m.options, o) && m.packed.add(body, i, most):
		default:
			if len(m.packed.bodies) > 0 {
				ended = flush()
			}
			m.options = o
			m.packed.add(body, i, most)
		}
		if ended == nil {
			ended = s.mayTake(ctx)
		}
		if ended == nil && len(m.packed.bodies) == s.options.PerMessage {
			ended = flush()
		}
		if ended != nil {
			break
		}
	}
	if ended == nil && len(m.packed.bodies) > 0 {
		if ended = s.mayTake(ctx); ended == nil {
			s.start(ctx, m)
			return nil
		}
	}
	for _, i := range m.packed.indexes {
		s.record(Result{Index: i, Err: fmt.Errorf("send to %v: nothing was sent: %w", s.producer.queue.Name(), ended)})
	}
	return ended
}

// share reports whether jobs with these options may be in one message.
func share(a, b *SendOptions) bool {
	if a == nil || b == nil {
		return a == b
	}
	return *a == *b && a.JobID == "" && a.DedupeKey == ""
}

// sendPacked sends jobs in one message and records what became of each. Jobs that turn out not to
// fit into it, because of a large head, are sent in two halves.
func (s *sendAll[T]) sendPacked(ctx context.Context, o *SendOptions, bodies envelope.Group, indexes []int) {
	n, body := len(bodies), bodies[0]
	sending, err := s.producer.sending(ctx, o)
	if n > 1 {
		body = bodies.Encode()
		if err == nil {
			sending.items, sending.Items = n, n
		}
	}
	sent, err := s.producer.send(ctx, sending, body, err, s.collector.add)
	if n > 1 && errors.Is(err, queue.ErrTooLarge) && !errors.Is(err, queue.ErrOutcomeUnknown) {
		s.sendPacked(ctx, o, bodies[:n/2], indexes[:n/2])
		s.sendPacked(ctx, o, bodies[n/2:], indexes[n/2:])
		return
	}
	for i, index := range indexes {
		r := Result{Index: index, Sent: sent, Err: err}
		if n > 1 && err == nil {
			r.Item, r.Items = i, n
		}
		s.record(r)
	}
}
