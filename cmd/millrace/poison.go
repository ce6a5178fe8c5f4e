package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"strings"
	"time"

	"github.com/millrace/millrace/poison"
	"github.com/millrace/millrace/queue"
)

func poisonCommand() *command {
	return &command{name: "poison", args: "VERB QUEUE", does: "show messages that failed, and put them right", flags: newFlags("poison"), more: poisonMore,
		verbs: []*command{poisonListCommand(), poisonShowCommand(), poisonStatsCommand(), poisonRedriveCommand(), poisonPurgeCommand()}}
}

const poisonMore = `QUEUE is a poison queue, or the queue that it belongs to: orders means orders-poison. See
millrace help poison VERB for the flags of each.
`

const beyondUsage = `read further than the 32 messages that the service shows, by taking
messages and giving them back: one request per message, their order
changes, and messages without an envelope get one more delivery`

type poisonFlags struct {
	account accountFlag
	exact   bool
	asJSON  bool
	reason  string
	id      string
	filter  poison.Filter
}

func (p *poisonFlags) add(f *flag.FlagSet) {
	p.account.add(f)
	f.BoolVar(&p.exact, "exact", false, "QUEUE is the name of the poison queue itself, which need not end in "+poison.Suffix)
	f.BoolVar(&p.asJSON, "json", false, "print JSON")
	f.StringVar(&p.reason, "reason", "", "only messages with this `reason`: "+reasons())
	f.StringVar(&p.filter.Fingerprint, "fingerprint", "", "only messages with this `error`; numbers and ids in it do not matter")
	f.StringVar(&p.filter.Match, "match", "", "only messages with this `text` in the error, the stack or the body")
	f.StringVar(&p.filter.Job, "job", "", "only messages of the job with this `id`")
	f.StringVar(&p.filter.Kind, "kind", "", "only messages of jobs of this `kind`")
	f.StringVar(&p.id, "id", "", "only the message with this `id`, here or in the queue that it came from")
	f.Var(duration{&p.filter.Older}, "older", "only messages that have been here for at least this `duration`, such as 1h")
	f.Var(duration{&p.filter.Newer}, "newer", "only messages that have been here for at most this `duration`, such as 20m")
}

// allReasons are the reasons in the order of the help.
var allReasons = []poison.Reason{
	poison.ReasonAttempts, poison.ReasonLost, poison.ReasonOutlived, poison.ReasonUndecodable,
	poison.ReasonRejected, poison.ReasonExpiring, poison.ReasonBlobGone,
}

func reasons() string {
	var all []string
	for _, r := range allReasons {
		all = append(all, string(r))
	}
	return strings.Join(all, ", ")
}

// check refuses a filter that contradicts itself or has an unknown reason.
func (p *poisonFlags) check() error {
	p.filter.Reason, p.filter.ID = poison.Reason(p.reason), queue.ID(p.id)
	for name, d := range map[string]time.Duration{"-older": p.filter.Older, "-newer": p.filter.Newer} {
		if d < 0 {
			return usageError{fmt.Errorf("%s %v is negative: specify an age, such as 1h", name, d)}
		}
	}
	if p.filter.Newer > 0 && p.filter.Older > p.filter.Newer {
		return usageError{fmt.Errorf("no message is older than -older %v and newer than -newer %v", p.filter.Older, p.filter.Newer)}
	}
	if p.reason == "" {
		return nil
	}
	for _, r := range allReasons {
		if p.filter.Reason == r {
			return nil
		}
	}
	return usageError{fmt.Errorf("-reason %s is not known: the reasons are %s", quote(p.reason), reasons())}
}

func (c *console) onPoison(ctx context.Context, p *poisonFlags, name string, do func(ctx context.Context, t *task, q queue.Manager) error) error {
	if err := checkName(name); err != nil {
		return err
	}
	if err := p.check(); err != nil {
		return err
	}
	source, whole := strings.CutSuffix(name, poison.Suffix)
	if !whole && !p.exact {
		name += poison.Suffix
	}
	return c.onQueue(ctx, &p.account, name, func(ctx context.Context, t *task, q queue.Manager) error {
		if of, err := t.account.Open(source); err == nil && (whole || !p.exact) {
			q = poisonQueue{q, of, !whole}
		}
		return do(ctx, t, q)
	})
}

// poisonQueue is the poison queue of a queue. Until a worker creates it, it counts as empty.
type poisonQueue struct {
	queue.Manager
	source queue.Queue
	named  bool // the user named the source
}

// unlessMissing returns nil instead of the error that the poison queue is missing, if its source
// exists.
func (q poisonQueue) unlessMissing(ctx context.Context, err error) error {
	if !errors.Is(err, queue.ErrQueueMissing) {
		return err
	}
	_, found := q.source.Properties(ctx)
	switch {
	case found == nil:
		return nil
	case q.named && errors.Is(found, queue.ErrQueueMissing):
		return found
	}
	return err
}

// Properties implements [queue.Queue].
func (q poisonQueue) Properties(ctx context.Context) (queue.Properties, error) {
	p, err := q.Manager.Properties(ctx)
	return p, q.unlessMissing(ctx, err)
}

// Peek implements [queue.Queue].
func (q poisonQueue) Peek(ctx context.Context, n int) ([]queue.Message, error) {
	messages, err := q.Manager.Peek(ctx, n)
	return messages, q.unlessMissing(ctx, err)
}

// Dequeue implements [queue.Queue].
func (q poisonQueue) Dequeue(ctx context.Context, n int, visibility time.Duration) ([]queue.Message, error) {
	messages, err := q.Manager.Dequeue(ctx, n, visibility)
	return messages, q.unlessMissing(ctx, err)
}
