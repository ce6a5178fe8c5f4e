package web

import (
	"net/http"

	"github.com/millrace/millrace/internal/webpage"
)

// policy allows what the page itself serves. Pictures that were chosen and not uploaded yet are shown from blob addresses.
const policy = "default-src 'self'; img-src 'self' blob:; object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"

// guarded refuses requests for a foreign host and of foreign pages, sets the headers that all responses have, and disconnects
// clients that do not read them.
func (s *Server) guarded(next http.Handler) http.Handler {
	guard := webpage.Guard{
		Policy: policy, Hosts: s.options.Hosts,
		Foreign: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			s.fail(w, r, refuse(http.StatusForbidden, "this request comes from another page"))
		}),
		// Not a page: nothing of ours is shown under a foreign name.
		Unknown: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			respond(w, http.StatusMisdirectedRequest, map[string]string{"error": "this server is not known by that name"})
		}),
	}
	handler := guard.Handler(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { handler.ServeHTTP(newSlowReader(w), r) })
}
