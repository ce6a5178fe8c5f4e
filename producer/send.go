package producer

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/millrace/millrace/blob"
	"github.com/millrace/millrace/internal/envelope"
	"github.com/millrace/millrace/internal/request"
	"github.com/millrace/millrace/internal/retry"
	"github.com/millrace/millrace/internal/units"
	"github.com/millrace/millrace/internal/waiting"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/driver"
)

// SendOptions say more about one job. Nil and the zero value mean the defaults. What exceeds a
// limit is [queue.ErrInvalid], and nothing is sent.
type SendOptions struct {
	// Delay hides the job for this long, at most [queue.MaxVisibility] and less than TTL.
	// Defaults to 0, visible at once.
	Delay time.Duration

	// TTL is how long the job lives in the queue, at least 1 s, or [queue.Forever].
	// Defaults to Forever.
	TTL time.Duration

	// JobID is the id of the job, which stays the same when its message is moved or sent again.
	// At most 256 bytes; it needs an envelope. Defaults to a random id.
	JobID string

	// DedupeKey is equal for jobs that are the same job sent twice, so that workers can recognise
	// them; sending does not. At most 256 bytes; it needs an envelope. Defaults to
	// none.
	DedupeKey string

	// Key is what the job belongs to, such as a customer. A [queue.Sender] over several queues may
	// choose the queue by it. At most 256 bytes; it needs an envelope. Defaults to none.
	Key string
}

// Sent is a job that the service has accepted.
type Sent struct {
	// Lease has the message id, as the handler will see it unless the message is moved before, and the
	// receipt with which [Producer.Cancel] deletes the message until a worker takes it. Whoever has the
	// receipt can do so.
	queue.Lease

	// JobID is the id of the job, from its envelope. Empty for formats without one.
	JobID string

	// Queue is the queue that the message is in.
	Queue queue.Name

	// Inserted is when the message was accepted, by the service's clock.
	Inserted time.Time

	// MaybeTwice reports that the job may be there twice: it was sent again, to this queue or to another
	// one, because the response to an earlier request was lost, or by an interceptor. Both messages have
	// the same job id; Lease is that of the later one whose response came.
	MaybeTwice bool
}

// errZero is the error of the zero Producer.
var errZero = errors.New("send: the producer was not made with producer.New")

// errAccepted is why a job may be in the queue twice when an interceptor calls next again.
var errAccepted error = &queue.Error{Kind: queue.ErrOutcomeUnknown, Detail: "the job was accepted before"}

// Send sends one job and returns when the service has accepted it. A job that cannot be encoded,
// is too large ([queue.ErrTooLarge], unless there are Options.Claims) or has invalid options ([queue.ErrInvalid]) fails before
// anything is sent. The limits are [queue.MaxText], and [driver.MaxRequest] for the text escaped for
// XML, whatever the queue; an envelope must leave 110 bytes free, for attempts to be
// recorded in. After an error that matches [queue.ErrOutcomeUnknown] the job may be in the queue;
// after any other it is not.
func (p *Producer[T]) Send(ctx context.Context, job T, o *SendOptions) (Sent, error) {
	if err := p.ready(); err != nil {
		return Sent{}, err
	}
	return p.sendJob(ctx, job, o, p.wakeups.wake)
}

// sendJob is Send with another function that hears of the job.
func (p *Producer[T]) sendJob(ctx context.Context, job T, o *SendOptions, wake func(context.Context, []hints)) (Sent, error) {
	s, err := p.sending(ctx, o)
	var body []byte
	if err == nil {
		body, err = p.options.Codec.Encode(job)
	}
	return p.send(ctx, s, body, err, wake)
}

// send sends the body, or fails with the error with which it was made. If there may then be a message
// on the queue, wake is called.
func (p *Producer[T]) send(ctx context.Context, s *Sending, body []byte, err error, wake func(context.Context, []hints)) (Sent, error) {
	if err == nil {
		if p.options.Timeout > 0 {
			var cancel context.CancelFunc
			ctx, cancel = waiting.WithTimeout(ctx, p.options.Timeout)
			defer cancel()
		}
		err = p.intercepted(s, body)(ctx)
		if s.maybeSent != nil && p.wakeups != nil {
			wake(ctx, hintsFor(s))
		}
	}
	switch {
	case err == nil:
		return s.Sent, nil
	case s != nil && s.maybeSent != nil && !errors.Is(err, queue.ErrOutcomeUnknown):
		return Sent{}, fmt.Errorf("send to %v: %w; an earlier request may have taken effect: %w",
			p.queue.Name(), brief(err, "enqueue", p.queue.Name(), ""), s.maybeSent)
	}
	return Sent{}, fmt.Errorf("send to %v: %w", p.queue.Name(), brief(err, "enqueue", p.queue.Name(), ""))
}

// briefError is an error whose text does not repeat the queue and the message that stand before it.
type briefError struct {
	error
	text string
}

func (e *briefError) Error() string { return e.text }
func (e *briefError) Unwrap() error { return e.error }

// brief returns the error of a request behind a text that names this operation, queue and message.
func brief(err error, op string, name queue.Name, id queue.ID) error {
	e, plain := err.(*queue.Error) //nolint:errorlint // an error around it has more to say
	if !plain || e.Op != op || e.Queue != name || e.Message != id {
		return err
	}
	without := *e
	without.Op = ""
	return &briefError{err, without.Error()}
}

// ready returns an error for a producer that cannot send.
func (p *Producer[T]) ready() error {
	if p == nil || p.queue == nil {
		return errZero
	}
	if err := units.Wait("Timeout", p.options.Timeout); err != nil {
		return fmt.Errorf("send to %v: %w", p.queue.Name(), err)
	}
	if p.options.WakeupDepth < 0 {
		return fmt.Errorf("send to %v: WakeupDepth %d is negative", p.queue.Name(), p.options.WakeupDepth)
	}
	if p.options.Claims != nil && !envelope.HasHead(p.options.Format) {
		return fmt.Errorf("send to %v: Claims needs an envelope, and the format %v has none: leave Format at codec.Auto", p.queue.Name(), p.options.Format)
	}
	return p.checkSender()
}

func (p *Producer[T]) sending(ctx context.Context, o *SendOptions) (*Sending, error) {
	s := &Sending{Queue: p.queue.Name(), Kind: p.options.Kind, enqueued: time.Now()}
	if o != nil {
		if err := p.checkEnvelope("JobID", o.JobID, "DedupeKey", o.DedupeKey, "Key", o.Key); err != nil {
			return nil, err
		}
		s.SendOptions = *o
	}
	if s.JobID == "" {
		s.JobID = rand.Text()
	}
	if f := p.options.Trace; f != nil && envelope.HasHead(p.options.Format) {
		if s.Trace, s.TraceState = f(ctx); len(s.TraceState) > envelope.MaxTraceState {
			s.TraceState = ""
		}
	}
	return s, nil
}

// checkEnvelope refuses the values, each after its name, that only an envelope can carry, if the
// format has none.
func (p *Producer[T]) checkEnvelope(pairs ...string) error {
	for i := 0; i < len(pairs) && !envelope.HasHead(p.options.Format); i += 2 {
		if pairs[i+1] != "" {
			return &queue.Error{Kind: queue.ErrInvalid, Hint: "leave it out, or leave Format at codec.Auto",
				Detail: fmt.Sprintf("%s %.60q needs an envelope, and the format %v has none", pairs[i], pairs[i+1], p.options.Format)}
		}
	}
	return nil
}

// lastRequest is how long before the deadline the last request may begin. A later one could be accepted when
// its sender has given up.
const lastRequest = time.Second

func (p *Producer[T]) enqueue(ctx context.Context, s *Sending, body []byte) error {
	deadline, bounded := ctx.Deadline()
	if s.least == 0 {
		s.least = min(lastRequest, time.Until(deadline)/2)
	}
	late := func() bool { return bounded && time.Until(deadline) < s.least }
	text, err := p.text(ctx, s, body)
	if err != nil {
		return err
	}
	all := ctx
	var last error
	again := func(err error) bool { return queue.Transient(err) && !late() }
	return retry.Do(request.WithCause(ctx, request.CauseSend), s.JobID, again, func(ctx context.Context) (err error) {
		if late() {
			return cmp.Or(last, p.tooLate(deadline))
		}
		defer func() { last = err }()
		err = p.try(ctx, s, text)
		if !p.options.Create || !errors.Is(err, queue.ErrQueueMissing) {
			return err
		}
		created := p.queue.(creator).Create(request.WithCause(all, request.CauseCreate), nil)
		if created != nil && !errors.Is(created, queue.ErrQueueExists) {
			return created
		}
		err = p.try(ctx, s, text)
		if created != nil && errors.Is(err, queue.ErrQueueMissing) { // of several queues one exists, and another one could not be created
			return fmt.Errorf("%w; create: %w", err, created)
		}
		return err
	})
}

// tooLate returns the error of a send that has too little time for its first request.
func (p *Producer[T]) tooLate(deadline time.Time) error {
	return &queue.Error{
		Op: "enqueue", Queue: p.queue.Name(), Err: context.DeadlineExceeded, Hint: "give it a longer Timeout",
		Detail: fmt.Sprintf("nothing was sent: only %v was left for the request", max(0, time.Until(deadline)).Round(time.Millisecond)),
	}
}

// seal checks what is to be sent, after the interceptors have had their say, and returns its text.
func (p *Producer[T]) seal(s *Sending, body []byte) (string, error) {
	s.request = queue.EnqueueOptions{Delay: s.Delay, TTL: s.TTL, Key: s.Key}
	if err := driver.CheckEnqueue(&s.request); err != nil {
		return "", err
	}
	head := envelope.Head{
		ID: s.JobID, Enqueued: s.enqueued, Trace: s.Trace, TraceState: s.TraceState,
		Kind: s.Kind, Key: s.Key, Dedupe: s.DedupeKey, Claim: s.claim, Items: s.items,
	}
	room := 0
	if envelope.HasHead(p.options.Format) {
		if err := head.Check(); err != nil {
			return "", &queue.Error{Kind: queue.ErrInvalid, Detail: err.Error()}
		}
		room = head.Room()
	} else if err := p.checkEnvelope("Kind", s.Kind); err != nil {
		return "", err
	}
	text, err := envelope.Seal(head, body, p.options.Format)
	if err != nil {
		return "", err
	}
	return text, driver.CheckRequest(text, room)
}

func (p *Producer[T]) try(ctx context.Context, s *Sending, text string) error {
	accepted, err := p.queue.Enqueue(ctx, text, &s.request)
	s.bytes = int64(len(text))
	switch {
	case err == nil:
		s.Sent = Sent{Lease: accepted.Lease, Queue: cmp.Or(accepted.Queue, p.queue.Name()), Inserted: accepted.Inserted, MaybeTwice: s.maybeSent != nil || accepted.MaybeTwice}
		p.maybeIn(s, s.Sent.Queue)
		if envelope.HasHead(p.options.Format) {
			s.Sent.JobID = s.JobID
		}
		s.maybeSent = errAccepted
	case errors.Is(err, queue.ErrOutcomeUnknown):
		name := p.queue.Name() // or the one that the error of a sender over several says
		if e := (*queue.Error)(nil); errors.As(err, &e) {
			name = cmp.Or(e.Queue, name)
		}
		p.maybeIn(s, name)
		s.maybeSent = err
		s.Sent.MaybeTwice = s.Sent.ID != "" // an interceptor has sent again what was accepted
	}
	return err
}

// maybeIn records a queue whose workers have to be told of the message.
func (p *Producer[T]) maybeIn(s *Sending, name queue.Name) {
	if p.wakeups != nil && !slices.Contains(s.where, name) {
		s.where = append(s.where, name)
	}
}

// Claims stores bodies that are too large for a message. Package claimcheck implements it.
// Implementations must be safe for concurrent use.
type Claims interface {
	// Limit returns the size of the largest body, in bytes, that stays in its message if it fits.
	Limit() int

	// Put stores a body and returns its claim, with which workers find it, at most
	// 256 bytes.
	Put(ctx context.Context, body []byte) (claim string, err error)
}

// text returns the text that is sent. A body that is too large for it is stored first, once for
// all calls of the interceptors that send the same job.
func (p *Producer[T]) text(ctx context.Context, s *Sending, body []byte) (string, error) {
	if s.claim != "" && s.claimed == jobOf(s) {
		return p.seal(s, nil)
	}
	s.claim = "" // an interceptor made another job of it, which needs its body when the first is done
	if p.options.Claims == nil {
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
	storing := ctx
	if deadline, bounded := ctx.Deadline(); bounded { // later it would be of no use
		var cancel context.CancelFunc
		storing, cancel = context.WithDeadline(ctx, deadline.Add(-s.least))
		defer cancel()
	}
	claim, err := p.options.Claims.Put(storing, body)
	if err != nil {
		if errors.Is(storing.Err(), context.DeadlineExceeded) {
			err = fmt.Errorf("%w: %w", blob.ErrUnavailable, err)
		}
		return "", fmt.Errorf("store its body of %d bytes: %w", len(body), err)
	}
	s.claim, s.claimed = claim, jobOf(s)
	return p.seal(s, nil)
}

func jobOf(s *Sending) [2]string { return [2]string{s.JobID, s.Kind} }

// SendGroup sends several jobs in one message, as [Producer.Send] sends one: they are put, fetched
// and deleted together, at the cost of one job. Workers handle and retry each by itself, under the
// options and the job id of the group: see listener.EachItem.
//
// A group must fit into a message, 64 KiB of text, with the room in which what has been done of it
// is recorded; otherwise it is [queue.ErrTooLarge], and nothing is sent. With Options.Claims a larger
// one is stored, in one piece. An empty group, one of more than 65,536 jobs, and a format
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
		s.items, s.Items = len(jobs), len(jobs)
		g := make(envelope.Group, len(jobs))
		for i := 0; i < len(jobs) && err == nil; i++ {
			if g[i], err = p.options.Codec.Encode(jobs[i]); err != nil {
				err = fmt.Errorf("item %d of a group of %d: %w", i, len(jobs), err)
			}
		}
		if err == nil {
			body = g.Encode()
		}
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
	case jobs < 1 || jobs > envelope.MaxItems:
		return &queue.Error{Kind: queue.ErrInvalid, Detail: fmt.Sprintf("a group of %d jobs is outside 1…%d", jobs, envelope.MaxItems)}
	case !envelope.HasHead(p.options.Format):
		return &queue.Error{Kind: queue.ErrInvalid, Hint: "leave Format at codec.Auto",
			Detail: fmt.Sprintf("a group needs an envelope, and the format %v has none", p.options.Format)}
	}
	return nil
}

// maxSkew is how far this machine's clock may be from the service's where a job counts as hidden.
const maxSkew = time.Minute

// Cancel deletes a job that was sent, if no worker has taken it yet: the usual use is a job with a
// delay. When it returns nil the message of sent is gone and no worker handles it. An error that
// matches [queue.ErrLeaseLost] means that it is too late: a worker has taken the job, whatever
// became of it, or it has expired. After one that matches [queue.ErrOutcomeUnknown] the message may be
// gone; after any other it is not. If sent says MaybeTwice there may be a second message, which Cancel
// does not reach.
//
// A program that cancels later keeps the lease. The id and the receipt are enough, except when the
// response to a delete is lost and the next one finds the message gone: only Until tells that the job
// was still hidden, for a minute at least by this machine's clock, and that no worker can have taken it.
// With a sender over several queues the Queue is needed too. Transient failures are retried within
// Options.Timeout.
func (p *Producer[T]) Cancel(ctx context.Context, sent Sent) error {
	if err := p.ready(); err != nil {
		return err
	}
	name := cmp.Or(sent.Queue, p.queue.Name())
	q, err := p.deleterOf(sent)
	switch {
	case sent.ID == "":
		return fmt.Errorf("cancel a message of %v: %w", name, &queue.Error{
			Kind: queue.ErrInvalid, Detail: "its lease has no id", Hint: "keep the Sent that Send returned",
		})
	case err != nil:
		return fmt.Errorf("cancel message %s of %v: %w", string(sent.ID), name, err)
	}
	if p.options.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, p.options.Timeout)
		defer cancel()
	}
	unknown, gone := false, false // whether a try may have deleted the message; whether a later one found it gone
	err = retry.Do(request.WithCause(ctx, request.CauseCancel), string(sent.ID), queue.Transient, func(ctx context.Context) error {
		err := q.Delete(ctx, sent.Lease)
		gone = unknown && errors.Is(err, queue.ErrMessageGone)
		unknown = unknown || errors.Is(err, queue.ErrOutcomeUnknown)
		return err
	})
	switch {
	case gone && time.Until(sent.Until) > maxSkew:
		return nil // the try without a response deleted it
	case gone:
		return fmt.Errorf("cancel message %s of %v: it is gone: a request without a response has deleted it, or a worker has handled it: %w",
			string(sent.ID), name, queue.ErrOutcomeUnknown)
	case errors.Is(err, queue.ErrLeaseLost):
		return fmt.Errorf("cancel message %s of %v: a worker has taken it, or it has expired: %w", string(sent.ID), name, brief(err, "delete", name, sent.ID))
	case err != nil && unknown && !errors.Is(err, queue.ErrOutcomeUnknown):
		return fmt.Errorf("cancel message %s of %v: %w; an earlier request may have deleted it: %w",
			string(sent.ID), name, brief(err, "delete", name, sent.ID), queue.ErrOutcomeUnknown)
	case err != nil:
		return fmt.Errorf("cancel message %s of %v: %w", string(sent.ID), name, brief(err, "delete", name, sent.ID))
	}
	return nil
}

// deleterOf returns the queue that a message was sent to.
func (p *Producer[T]) deleterOf(sent Sent) (deleter, error) {
	one := queueNamed(p.queue, sent.Queue)
	if q, can := one.(deleter); can {
		return q, nil
	}
	_, several := p.queue.(finder)
	_, can := p.queue.(deleter)
	switch {
	case !several && !can:
		return nil, fmt.Errorf("a %T cannot delete", p.queue)
	case sent.Queue == (queue.Name{}):
		return nil, errors.New("it is in one of several queues: keep Sent.Queue, which says in which")
	}
	return nil, fmt.Errorf("the producer sends to %v, and has no queue of that name", p.queue.Name())
}
