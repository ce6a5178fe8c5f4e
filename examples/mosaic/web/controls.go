package web

import (
	"net/http"
	"sync"
	"time"
)

// Controls break what belongs to this program, and mend it. The functions and the zero value mean that it cannot be broken.
type Controls struct {
	// Busy makes the queue server answer every request with 503, or stop that.
	Busy func(on bool) error

	// Slow makes processors wait before they store a slice. 0 ends that.
	Slow func(delay time.Duration)

	// Processors are the processors that were started by this program. Defaults to none.
	Processors *Processors

	mu   sync.Mutex
	made Faults // guarded by mu
}

// slowness is how long a slow processor waits for a slice.
const slowness = 3 * time.Second

func (c *Controls) faults() Faults {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.made
}

// delay is how long processors wait for a slice.
func (f Faults) delay() time.Duration {
	if f.Slow {
		return slowness
	}
	return 0
}

// setFaults is POST /faults.
func (s *Server) setFaults(w http.ResponseWriter, r *http.Request) error {
	kind, err := formValue(w, r, "kind")
	if err != nil {
		return err
	}
	own := s.options.Own
	if own == nil {
		return refuse(http.StatusConflict, "the queue server does not belong to this program, so it cannot be broken here")
	}
	if kind == "damage" {
		return s.damage(w, r) // without the lock: it waits for the queue server and the blobs
	}
	on := r.FormValue("on") != "0"
	own.mu.Lock()
	defer own.mu.Unlock()
	switch {
	case kind == "busy" && own.Busy != nil:
		if err := own.Busy(on); err != nil {
			return err
		}
		own.made.Busy = on
	case kind == "slow" && own.Slow != nil:
		own.made.Slow = on
		own.Slow(own.made.delay())
	case kind == "none":
		if own.made.Busy {
			if err := own.Busy(false); err != nil {
				return err
			}
		}
		if own.made.Slow {
			own.Slow(0)
		}
		own.made = Faults{}
	case kind == "busy" || kind == "slow":
		return refuse(http.StatusConflict, "this cannot be broken here: it does not belong to this program")
	default:
		return refuse(http.StatusBadRequest, "kind %.20q is neither busy, slow, damage nor none", kind)
	}
	answer(w, r, http.StatusOK, own.made, "/")
	return nil
}

// formValue returns a field of a small form.
func formValue(w http.ResponseWriter, r *http.Request, name string) (string, error) {
	r.Body = http.MaxBytesReader(w, r.Body, 64<<10)
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(patience)) // a recorder has none
	if err := r.ParseMultipartForm(64 << 10); err != nil && r.Form == nil {
		return "", refuse(http.StatusBadRequest, "the form cannot be read")
	}
	return r.FormValue(name), nil
}

// killProcessor is POST /processors/{id}/kill.
func (s *Server) killProcessor(w http.ResponseWriter, r *http.Request) error {
	own := s.options.Own
	if own == nil || own.Processors == nil {
		return refuse(http.StatusConflict, "the processors were not started by this program")
	}
	id, err := number(r, "id", 1<<20)
	if err != nil {
		return err
	}
	pid, ok := own.Processors.Kill(id)
	if !ok {
		return refuse(http.StatusConflict, "this processor does not run: it is started again in a moment")
	}
	answer(w, r, http.StatusOK, map[string]int{"killed": pid}, "/")
	return nil
}

// damage overwrites a slice of the newest job that is at work, as a faulty disk would: its message becomes poison.
func (s *Server) damage(w http.ResponseWriter, r *http.Request) error {
	for _, j := range s.shelf.all() {
		j.mu.Lock()
		order, id := j.order, j.ID
		j.mu.Unlock()
		if order == nil {
			continue
		}
		hit, err := order.Damage(r.Context())
		if err != nil {
			s.logger.Debug("a job cannot be damaged", "job", id, "error", err) // its slices are not there yet
		}
		if hit {
			answer(w, r, http.StatusOK, map[string]string{"damaged": id}, "/jobs/"+id)
			return nil
		}
	}
	return refuse(http.StatusConflict, "no mosaic is at work: start one first, and make the slices slow to have time")
}
