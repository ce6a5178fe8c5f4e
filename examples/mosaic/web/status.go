package web

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/millrace/millrace/examples/mosaic/roles"
	"github.com/millrace/millrace/poison"
	"github.com/millrace/millrace/queue"
)

// Status is what the queues and the processes do.
type Status struct {
	Queues     []QueueStatus     `json:"queues"`
	Requests   int64             `json:"requests"` // since the program began
	Cost       string            `json:"cost"`     // "" if the price is unknown
	Price      string            `json:"price"`
	Processors []ProcessorStatus `json:"processors"`
	Faults     Faults            `json:"faults"`
	Server     ServerStatus      `json:"server"`
}

// QueueStatus describes one queue. Loops, Handlers and PerSecond are those of this program's processes.
type QueueStatus struct {
	Name      string  `json:"name"`
	Depth     int64   `json:"depth"`  // messages, hidden ones too
	Poison    int64   `json:"poison"` // messages of its poison queue
	Loops     int     `json:"loops"`
	Handlers  int     `json:"handlers"`
	PerSecond float64 `json:"perSecond"` // messages handled
}

// ServerStatus describes the queue server.
type ServerStatus struct {
	Answers bool   `json:"answers"`
	Own     bool   `json:"own"`             // it is part of this program
	Error   string `json:"error,omitempty"` // why it does not answer
}

// Faults are what was broken on purpose.
type Faults struct {
	Busy bool `json:"busy"` // the queue server answers 503
	Slow bool `json:"slow"` // the processors wait before they store a slice
}

// sampler reads the figures of the queues, at most once a second whoever asks.
type sampler struct {
	options Options
	turn    chan struct{} // held while figures are read; a channel, so that waiting ends with the context
	last    Status        // guarded by turn
	at      time.Time     // of last; guarded by turn
	handled map[string]int64
}

func newSampler(o Options) *sampler {
	return &sampler{options: o, turn: make(chan struct{}, 1), handled: make(map[string]int64)}
}

const (
	// every is the interval of figures.
	every = time.Second

	// costly is that of figures that cost requests.
	costly = 5 * time.Second

	// sampleTimeout is how long a queue server may take to answer.
	sampleTimeout = 3 * time.Second
)

// sample returns the figures of about now.
func (s *sampler) sample(ctx context.Context) Status {
	free, err := take(ctx, s.turn)
	if err != nil {
		return Status{}
	}
	defer free()
	now := time.Now()
	passed := now.Sub(s.at)
	if !s.at.IsZero() && passed < every*9/10 {
		return s.last
	}
	next := Status{Requests: s.options.Requests(), Price: s.options.Price.String(), Processors: []ProcessorStatus{}}
	next.Server.Own = s.options.OwnServer
	next.Cost = s.options.Price.of(next.Requests)
	if own := s.options.Own; own != nil {
		next.Faults = own.faults()
		if own.Processors != nil {
			next.Processors = own.Processors.Status()
		}
	}
	s.queues(ctx, &next, passed)
	s.last, s.at = next, now
	return next
}

// latest returns the figures for a page, which does not wait for those of a server elsewhere.
func (s *sampler) latest(ctx context.Context) Status {
	if s.options.OwnServer {
		return s.sample(ctx)
	}
	free, err := take(ctx, s.turn)
	if err != nil {
		return Status{}
	}
	defer free()
	return s.last
}

// queues reads the figures of the queues.
func (s *sampler) queues(ctx context.Context, next *Status, passed time.Duration) {
	// Whoever asked may leave meanwhile; the figures are for all.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), sampleTimeout)
	defer cancel()
	states := s.options.System.States()
	next.Server.Answers = !next.Faults.Busy
	for i, name := range roles.QueueNames() {
		q := QueueStatus{Name: name}
		depth, err := s.depth(ctx, name, "")
		if err == nil {
			q.Poison, err = s.depth(ctx, name, poison.Suffix)
		}
		q.Depth = depth
		if err != nil {
			next.Server.Answers, next.Server.Error = false, withoutPaths(err.Error())
			if i < len(s.last.Queues) {
				q.Depth, q.Poison = s.last.Queues[i].Depth, s.last.Queues[i].Poison
			}
		}
		state := states[name]
		q.Loops, q.Handlers = state.Loops, state.Running
		handled := state.Succeeded + state.Discarded
		for _, p := range next.Processors {
			if name == roles.ProcessorQueue {
				q.Loops += p.Loops
				q.Handlers += p.Handlers
				handled += p.Handled
			}
		}
		if !s.at.IsZero() {
			q.PerSecond = max(0, float64(handled-s.handled[name])/passed.Seconds())
		}
		s.handled[name] = handled
		next.Queues = append(next.Queues, q)
	}
}

// depth returns how many messages a queue has. One that does not exist has none.
func (s *sampler) depth(ctx context.Context, name, suffix string) (int64, error) {
	q, err := s.options.Queue(name)
	if err != nil {
		return 0, err
	}
	if suffix != "" {
		q = q.Sibling(suffix)
	}
	found, err := q.Properties(ctx)
	if errors.Is(err, queue.ErrQueueMissing) {
		return 0, nil
	}
	return found.Depth, err
}

// watchStatus streams the figures while somebody looks.
func (s *Server) watchStatus(w http.ResponseWriter, r *http.Request) error {
	out := newStream(w)
	interval := costly
	if s.options.OwnServer {
		interval = every
	}
	tick := time.NewTicker(cmp.Or(s.options.Interval, interval))
	defer tick.Stop()
	for {
		if err := out.send("status", s.status.sample(r.Context())); err != nil {
			return nil // the client has left: nobody can be told
		}
		select {
		case <-tick.C:
		case <-r.Context().Done():
			return nil
		case <-s.stopping:
			return nil
		}
	}
}
