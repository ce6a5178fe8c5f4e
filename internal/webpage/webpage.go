// Package webpage holds the common parts of all web fronts of this repository: protection against
// foreign pages, a base stylesheet, and static files that browsers need not fetch twice.
//
// A [Guard] refuses state-changing requests that come from a page of another origin, as
// [http.CrossOriginProtection] decides. Clients other than browsers are not restricted. It also
// refuses requests for an unknown Host, so that a foreign name that resolves to this machine does
// not share its origin. Its headers forbid browsers to guess types, to send referrers, and to show
// pages in frames.
//
// [Static] serves /static/base.css, the stylesheet that all pages start from, beside the files of a front.
//
// # Concurrency
//
// All handlers are safe for concurrent use.
package webpage

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	_ "embed"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"
)

//go:embed base.css
var base []byte

// Base is the name that [Static] serves the base stylesheet under.
const Base = "base.css"

// Static returns a handler of GET and HEAD requests for the files at the top of a file system and for [Base]. It
// reads all of them now. A pattern with the wildcard {file} routes to it, such as "/static/{file}". Browsers revalidate a file by
// its ETag before each use. Unknown names go to notFound.
func Static(files fs.FS, notFound http.Handler) (http.Handler, error) {
	type file struct {
		content []byte
		etag    string
	}
	all := map[string]file{}
	add := func(name string, content []byte) {
		all[name] = file{content, fmt.Sprintf(`"%x"`, sha256.Sum256(content))}
	}
	add(Base, base)
	entries, err := fs.ReadDir(files, ".")
	if err != nil {
		return nil, fmt.Errorf("read the static files: %w", err)
	}
	for _, entry := range entries {
		content, err := fs.ReadFile(files, entry.Name())
		if err != nil {
			return nil, fmt.Errorf("read the static files: %w", err)
		}
		add(entry.Name(), content)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := r.PathValue("file")
		f, found := all[name]
		if !found {
			notFound.ServeHTTP(w, r)
			return
		}
		w.Header().Set("ETag", f.etag)
		w.Header().Set("Cache-Control", "no-cache") // revalidated, and rarely sent again
		http.ServeContent(w, r, name, time.Time{}, bytes.NewReader(f.content))
	}), nil
}

// Guard protects a web front.
type Guard struct {
	// Policy is the Content-Security-Policy of all responses. It must forbid frame-ancestors. Defaults to one
	// that allows nothing.
	Policy string

	// Hosts are names of this server, besides localhost and addresses. Defaults to an empty list.
	Hosts []string

	// Foreign answers requests that come from another page. It sets the status. Defaults to 403 with a line of text.
	Foreign http.Handler
}

// nothing is a policy that allows nothing.
const nothing = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// Handler returns a handler that guards another one.
func (g Guard) Handler(next http.Handler) http.Handler {
	g.Policy = cmp.Or(g.Policy, nothing)
	origin := http.NewCrossOriginProtection()
	origin.SetDenyHandler(g.Foreign)
	same := origin.Handler(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", g.Policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("X-Frame-Options", "DENY") // for browsers that do not know frame-ancestors
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		if !g.known(r.Host) {
			http.Error(w, "This server is not known by that name.", http.StatusMisdirectedRequest)
			return
		}
		same.ServeHTTP(w, r)
	})
}

// known reports whether a Host header names this server. No page can have an address, so every address may.
func (g Guard) known(hostport string) bool {
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
	return slices.ContainsFunc(g.Hosts, func(h string) bool { return host == strings.ToLower(h) })
}
