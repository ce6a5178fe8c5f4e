package agent

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/internal/hook"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/wakeup"
)

// wakeInterval is how long after a measurement an event starts the next one at the earliest.
const wakeInterval = time.Second

// wakeups are the subscriptions of one pool. It has some while the pool has no instances: between processes an event reaches only one
// of those who are ready, so an agent that always listened would take events away from the workers. Only the goroutine of
// the pool uses it, but for waiting.
type wakeups struct {
	waiting       atomic.Bool // the pool has no instances: an event matters
	subscriptions []wakeup.Subscription
}

// watchForWork listens for events if the pool has no instances, and leaves them to the workers otherwise.
func (p *pool) watchForWork(none bool) {
	w := &p.wakeups
	if p.agent.options.Wakeups == nil || w.waiting.Load() == none {
		return
	}
	if !none {
		w.close()
		return
	}
	w.waiting.Store(true)
	for _, q := range p.Queues {
		if err := p.subscribe(q.Name()); err != nil {
			w.close()
			p.fail(&Error{
				Doing: subscribing, Queue: q.Name(), Err: err,
				Consequence: "work on the pool without instances is found at the next measurement", Hint: "use a source that can deliver the events of this queue",
			})
			return
		}
	}
}

func (p *pool) subscribe(name queue.Name) (err error) {
	var subscription wakeup.Subscription
	failure := hook.Run(func() {
		subscription, err = p.agent.options.Wakeups.Subscribe(name, wakeup.Subscriber{
			Event: func(e wakeup.Event) {
				if concerns(e, name) && !e.Due.After(time.Now()) {
					p.woken()
				}
			},
			// What was published before is not delivered, so a look is due.
			Listening: func(listening bool) {
				if listening {
					p.woken()
				}
			},
		})
	})
	if failure != nil {
		return panicked(failure)
	}
	if err == nil && subscription == nil {
		err = errors.New("the source returned no subscription")
	}
	if err == nil {
		p.wakeups.subscriptions = append(p.wakeups.subscriptions, subscription)
	}
	return err
}

// concerns reports whether the event is of the queue. An account that is not known may be ours.
func concerns(e wakeup.Event, name queue.Name) bool {
	return e.Queue.Queue == name.Queue && (e.Queue.Account == name.Account || e.Queue.Account == "" || name.Account == "")
}

func (w *wakeups) close() {
	w.waiting.Store(false)
	for _, s := range w.subscriptions {
		hook.Run(s.Close)
	}
	w.subscriptions = nil
}
