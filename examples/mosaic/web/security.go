package web

import (
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// policy allows what the page itself serves. Pictures that were chosen and not uploaded yet are shown from blob addresses.
const policy = "default-src 'self'; img-src 'self' blob:; object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"

// guarded refuses requests for a foreign host and of foreign pages, sets the headers that all responses have, and disconnects
// clients that do not read them.
func (s *Server) guarded(next http.Handler) http.Handler {
	origin := http.NewCrossOriginProtection()
	origin.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.fail(w, r, refuse(http.StatusForbidden, "this request comes from another page"))
	}))
	same := origin.Handler(next)
	return http.HandlerFunc(func(unbounded http.ResponseWriter, r *http.Request) {
		w := newSlowReader(unbounded)
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		if !s.knownHost(r.Host) {
			// Not a page: nothing of ours is shown under a foreign name.
			respond(w, http.StatusMisdirectedRequest, map[string]string{"error": "this server is not known by that name"})
			return
		}
		same.ServeHTTP(w, r)
	})
}

// knownHost reports whether a Host header names this server. A page of a foreign name that is made to resolve to this
// machine, to get around the rule of the same origin, has that name here. No such page can have an address.
func (s *Server) knownHost(hostport string) bool {
	host, _, err := net.SplitHostPort(hostport)
	if err != nil {
		host = hostport
	}
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	if _, err := netip.ParseAddr(strings.Trim(host, "[]")); err == nil {
		return true
	}
	if host == "localhost" || strings.HasSuffix(host, ".localhost") {
		return true
	}
	for _, h := range s.options.Hosts {
		if host == strings.ToLower(h) {
			return true
		}
	}
	return false
}
