package web

import (
	"net/http"
	"reflect"
	"time"
)

// watchJob streams the events of a job: a snapshot, then what changes.
func (s *Server) watchJob(w http.ResponseWriter, r *http.Request) error {
	j, err := s.job(r)
	if err != nil {
		return err
	}
	out := newStream(w)
	seen, changed := j.look(s.options.Price)
	if err := out.send("snapshot", seen); err != nil {
		return nil // the client has left: nobody can be told
	}
	beat := time.NewTicker(heartbeat)
	defer beat.Stop()
	for {
		select {
		case <-changed:
			var now snapshot
			now, changed = j.look(s.options.Price)
			err = out.changes(seen, now)
			seen = now
		case <-beat.C:
			err = out.beat()
		case <-r.Context().Done():
			return nil
		case <-s.stopping:
			return nil
		}
		if err != nil {
			return nil // the client has left: nobody can be told
		}
	}
}

// changes sends what differs between two looks at a job: slices that were stored, and the whole if anything else changed.
func (s *stream) changes(before, now snapshot) error {
	if len(before.Slices) == len(now.Slices) {
		for i := range now.Slices {
			if now.Slices[i].Stored && !before.Slices[i].Stored {
				if err := s.send("slice", map[string]int{"index": i}); err != nil {
					return err
				}
			}
		}
	}
	if !sameBesideSlices(before, now) {
		return s.send("state", now)
	}
	return nil
}

// sameBesideSlices reports whether two looks differ in nothing but slices that were stored since.
func sameBesideSlices(before, now snapshot) bool {
	if len(before.Slices) != len(now.Slices) {
		return false
	}
	for i := range before.Slices {
		a, b := before.Slices[i], now.Slices[i]
		if a.First != b.First || a.End != b.End || a.Stored && !b.Stored {
			return false
		}
	}
	before.Slices, now.Slices, before.Stored, now.Stored = nil, nil, 0, 0
	return reflect.DeepEqual(before, now)
}
