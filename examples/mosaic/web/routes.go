package web

import (
	"net/http"
	"strconv"
)

// routes are the addresses; see the package comment.
func (s *Server) routes() http.Handler {
	mux := http.NewServeMux()
	handle := func(pattern string, h func(http.ResponseWriter, *http.Request) error) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			if err := h(w, r); err != nil {
				s.fail(w, r, err)
			}
		})
	}
	handle("GET /{$}", s.index)
	handle("GET /events", s.watchStatus)
	handle("POST /jobs", s.newJob)
	handle("GET /jobs/{id}", s.jobPage)
	handle("GET /jobs/{id}/events", s.watchJob)
	handle("GET /jobs/{id}/original", s.original)
	handle("GET /jobs/{id}/slices/{i}", s.slicePreview)
	handle("GET /jobs/{id}/mosaic", s.mosaic)
	handle("GET /jobs/{id}/zoom", s.zoomLevels)
	handle("GET /jobs/{id}/zoom/{level}/{x}/{y}", s.zoomSquare)
	handle("GET /jobs/{id}/cells/{x}/{y}", s.cell)
	handle("GET /jobs/{id}/delete", s.askDeleteJob)
	handle("POST /jobs/{id}/delete", s.deleteJob)
	handle("POST /jobs/{id}/retry", s.retryJob)
	handle("GET /previews/{library}/{n}", s.preview)
	handle("POST /libraries", s.newLibrary)
	handle("GET /libraries/{key}/delete", s.askDeleteLibrary)
	handle("POST /libraries/{key}/delete", s.deleteLibrary)
	handle("POST /queues/{name}/redrive", s.redrive)
	handle("POST /processors/{id}/kill", s.killProcessor)
	handle("POST /faults", s.setFaults)
	handle("GET /static/{file...}", s.static)
	handle("/", func(_ http.ResponseWriter, r *http.Request) error {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			return refuse(http.StatusMethodNotAllowed, "this address cannot be used with %s", r.Method)
		}
		return errNotFound
	})
	return mux
}

var (
	errNotFound  = refuse(http.StatusNotFound, "there is nothing at this address")
	errNoLibrary = refuse(http.StatusNotFound, "there is no uploaded library of that name: it may have been deleted")
)

// job returns the job that a request names.
func (s *Server) job(r *http.Request) (*job, error) {
	if j := s.shelf.find(r.PathValue("id")); j != nil {
		return j, nil
	}
	return nil, refuse(http.StatusNotFound, "there is no such job: it may have been deleted")
}

// number returns a number of the path, 0 or more and below a bound.
func number(r *http.Request, name string, bound int) (int, error) {
	text := r.PathValue(name)
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 || n >= bound || strconv.Itoa(n) != text {
		return 0, errNotFound
	}
	return n, nil
}

// answer ends a request that changed something: with JSON, or for a person with the page.
func answer(w http.ResponseWriter, r *http.Request, status int, v any, page string) {
	if wantsPage(r) {
		w.Header().Set("Cache-Control", "no-store")
		http.Redirect(w, r, page, http.StatusSeeOther)
		return
	}
	respond(w, status, v)
}
