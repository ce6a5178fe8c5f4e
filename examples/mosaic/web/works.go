package web

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/millrace/millrace/examples/mosaic/roles"
	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/poison"
	"github.com/millrace/millrace/queue"
)

// Status has the current figures of the queues and the processes.
type Status struct {
	Queues     []QueueStatus     `json:"queues"`
	Requests   int64             `json:"requests"` // since the program began
	Processors []ProcessorStatus `json:"processors"`
	Busy       bool              `json:"busy"`    // the queue server answers 503, because somebody asked for it
	Slow       bool              `json:"slow"`    // the processors wait before they store a slice
	Answers    bool              `json:"answers"` // the queue server does
}

// QueueStatus describes one queue.
type QueueStatus struct {
	Name      string  `json:"name"`
	Depth     int64   `json:"depth"`     // messages, hidden ones too
	Poison    int64   `json:"poison"`    // messages of its poison queue
	PerSecond float64 `json:"perSecond"` // messages that this program's processes handle
}

// sampler reads the figures of the queues, at most once an interval, however many people look.
type sampler struct {
	server *Server

	mu      sync.Mutex
	last    Status           // guarded by mu
	at      time.Time        // of last; guarded by mu
	handled map[string]int64 // by queue; guarded by mu
	busy    bool             // guarded by mu
}

// interval is the time between figures. The server of somebody else charges for its requests.
func (s *sampler) interval() time.Duration {
	if s.server.options.Busy == nil {
		return 5 * time.Second
	}
	return time.Second
}

// sample returns the figures of about now.
func (s *sampler) sample(ctx context.Context) Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	passed := time.Since(s.at)
	if !s.at.IsZero() && passed < s.interval()*9/10 {
		return s.last
	}
	o := s.server.options
	next := Status{Requests: o.Requests(), Processors: []ProcessorStatus{}, Busy: s.busy, Answers: !s.busy}
	states := o.System.States()
	slices := int64(0)
	if o.Processors != nil {
		next.Processors, next.Slow = o.Processors.Status(), o.Processors.Slowed() > 0
		for _, p := range next.Processors {
			slices += p.Handled
		}
	}
	// The client may leave meanwhile, but the figures are for all clients.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 3*time.Second)
	defer cancel()
	for i, name := range roles.QueueNames() {
		q := QueueStatus{Name: name}
		var err error
		if q.Depth, q.Poison, err = s.depths(ctx, name); err != nil {
			next.Answers = false
			if i < len(s.last.Queues) {
				q = s.last.Queues[i]
			}
		}
		handled := states[name].Outcomes[listener.Deleted] + states[name].Outcomes[listener.Discarded]
		if name == roles.ProcessorQueue {
			handled += slices
		}
		if !s.at.IsZero() {
			q.PerSecond = max(0, math.Round(10*float64(handled-s.handled[name])/passed.Seconds())/10)
		}
		s.handled[name] = handled
		next.Queues = append(next.Queues, q)
	}
	s.last, s.at = next, time.Now()
	return next
}

// depths returns how many messages a queue and its poison queue have. For a missing queue both are
// 0.
func (s *sampler) depths(ctx context.Context, name string) (depth, bad int64, err error) {
	q, err := s.server.options.Queue(name)
	if err != nil {
		return 0, 0, err
	}
	found, err := q.Properties(ctx)
	if err != nil && !errors.Is(err, queue.ErrQueueMissing) {
		return 0, 0, err
	}
	poisoned, err := q.Sibling(poison.Suffix).Properties(ctx)
	if errors.Is(err, queue.ErrQueueMissing) {
		err = nil
	}
	return found.Depth, poisoned.Depth, err
}

type queueView struct {
	QueueStatus
	Most int64 // the depth of a full bar
}

func queueFigures(now Status, name string) queueView {
	i := slices.IndexFunc(now.Queues, func(q QueueStatus) bool { return q.Name == name })
	return queueView{now.Queues[i], max(8, now.Queues[i].Depth)}
}

// watchStatus is GET /events: the figures while somebody looks.
func (s *Server) watchStatus(w http.ResponseWriter, r *http.Request) error {
	return s.stream(w, r, "status", s.sampler.interval(), func() (any, <-chan struct{}) { return s.sampler.sample(r.Context()), nil })
}

// redrive is POST /queues/{name}/redrive: it sends the poison messages of a queue back to it.
func (s *Server) redrive(w http.ResponseWriter, r *http.Request) error {
	name := r.PathValue("name")
	if !slices.Contains(roles.QueueNames(), name) {
		return errNotFound
	}
	q, err := s.options.Queue(name)
	if err != nil {
		return err
	}
	report, err := poison.Redrive(r.Context(), q, nil)
	if err != nil && !errors.Is(err, queue.ErrQueueMissing) {
		s.logger.Warn("a redrive has ended early", "queue", name, "error", err)
		return refuse(http.StatusServiceUnavailable, "%d messages were sent back, then the queue server did not answer: try again", report.Done)
	}
	answer(w, r, http.StatusOK, map[string]any{"redriven": report.Done}, back(r))
	return nil
}

// back is the page that a form was on, which it names.
func back(r *http.Request) string {
	if id := r.FormValue("job"); id != "" {
		return "/jobs/" + displayName(id)
	}
	return "/"
}

// killProcessor is POST /processors/{id}/kill.
func (s *Server) killProcessor(w http.ResponseWriter, r *http.Request) error {
	if s.options.Processors == nil {
		return refuse(http.StatusConflict, "this program has not started processors, so it cannot kill one")
	}
	id, err := number(r, "id", len(s.options.Processors.all))
	if err != nil {
		return err
	}
	pid, ok := s.options.Processors.Kill(id)
	if !ok {
		return refuse(http.StatusConflict, "this processor does not run: it is started again in a moment")
	}
	answer(w, r, http.StatusOK, map[string]int{"killed": pid}, back(r))
	return nil
}

// slowness is how much longer a slice takes while processors are slow.
const slowness = 3 * time.Second

// setFaults is POST /faults.
func (s *Server) setFaults(w http.ResponseWriter, r *http.Request) error {
	_ = http.NewResponseController(w).SetReadDeadline(timeFor(0)) // a recorder has no deadline
	r.Body = http.MaxBytesReader(w, r.Body, form64k)
	if err := r.ParseMultipartForm(form64k); err != nil && !errors.Is(err, http.ErrNotMultipart) {
		return badForm(err)
	}
	kind, on := r.FormValue("kind"), r.FormValue("on") != "0"
	switch {
	case kind == "damage":
		return s.damage(w, r)
	case kind == "busy" && s.options.Busy != nil:
		if err := s.options.Busy(on); err != nil {
			return err
		}
		s.sampler.mu.Lock()
		s.sampler.busy, s.sampler.at = on, time.Time{}
		s.sampler.mu.Unlock()
	case kind == "slow" && s.options.Processors != nil:
		slow := slowness
		if !on {
			slow = 0
		}
		s.options.Processors.Slow(slow)
	default:
		return refuse(http.StatusConflict, "this program cannot break %.40q: the queue server or the processors belong to somebody else", kind)
	}
	answer(w, r, http.StatusOK, map[string]any{kind: on}, back(r))
	return nil
}

// damage overwrites a slice of the newest job that is at work, as a faulty disk would: its message becomes poison.
func (s *Server) damage(w http.ResponseWriter, r *http.Request) error {
	for _, j := range s.shelf.all() {
		j.mu.Lock()
		order := j.order
		j.mu.Unlock()
		if order == nil {
			continue
		}
		hit, err := order.Damage(r.Context())
		if err != nil {
			return fmt.Errorf("damage a slice of job %s: %w", j.ID, err)
		}
		if hit {
			answer(w, r, http.StatusOK, map[string]string{"damaged": j.ID}, "/jobs/"+j.ID)
			return nil
		}
	}
	return refuse(http.StatusConflict, "no mosaic has slices left to damage: start one first, and make the slices slow to have time")
}
