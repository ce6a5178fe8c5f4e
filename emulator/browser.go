package emulator

import (
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/millrace/millrace/internal/queuexml"
)

// A web page can make its visitor's browser send requests to this machine, and sign them with
// the development account's public key. The browser marks them: with Origin for fetch, forms
// and WebSockets, and with Sec-Fetch-Site for everything, including images and links (Fetch
// Metadata Request Headers). A page whose host name is later pointed to 127.0.0.1 has the
// endpoint's origin; only the Host gives it away (DNS rebinding).
//
// Endpoints check all three. Other clients send neither header and use the endpoint's address,
// so they are not affected.

var (
	errForeignHost = newFailure(403, "AuthorizationFailure", "This request is not authorized to perform this operation.")
	errForeignPage = newFailure(403, "AuthorizationFailure", "This request is not authorized to perform this operation. "+
		"A browser sent it for a web page of another origin, and no CORS rule of the account's Queue service allows that origin and method "+
		"(Set Queue Service Properties adds one).")
)

// checkPage refuses a browser's request for a page of another origin, unless a CORS rule of the
// account allows it or it is a preflight.
func (c *call) checkPage() *failure {
	f := c.server.checkPage(c.request)
	if f != errForeignPage { // compares the pointer
		return f
	}
	origins := c.request.Header["Origin"]
	if len(origins) != 1 || origins[0] == "" {
		return f
	}
	if c.request.Method == http.MethodOptions || c.allowsPage(origins[0]) {
		return nil
	}
	return f.with(queuexml.Detail{Name: "Origin", Value: shorten(origins[0])})
}

// allowsPage reports whether a CORS rule of the account allows the origin to send requests with
// this method.
func (c *call) allowsPage(origin string) bool {
	if c.accountState == nil || !isPrintableASCII(origin) {
		return false
	}
	rules, f := c.rules()
	return f == nil && slices.ContainsFunc(rules, func(r queuexml.CORSRule) bool {
		return allowsOrigin(r, origin) && allowsMethod(r, c.request.Method)
	})
}

// checkPage refuses a request to a foreign host, and a browser's request for a page of another
// origin, the latter with [errForeignPage].
func (s *Server) checkPage(r *http.Request) *failure {
	if !s.acceptsHost(r.Host) {
		return errForeignHost.because("%s This server does not accept the host %s: use 127.0.0.1, localhost or a name below "+
			"localhost, or allow that host (millrace serve -host, or Options.Hosts of package emulator).", errForeignHost.message, quoteShort(r.Host))
	}
	if origins := r.Header["Origin"]; len(origins) > 0 && (len(origins) > 1 || !isOwnOrigin(r, origins[0])) {
		return errForeignPage
	}
	sites := r.Header["Sec-Fetch-Site"]
	switch {
	case len(sites) == 0, len(sites) == 1 && (sites[0] == "none" || sites[0] == "same-origin"):
		return nil
	case s.isFrontRequest(r) && r.Method == http.MethodGet && r.URL.Path == "/" && slices.Equal(r.Header["Sec-Fetch-Mode"], []string{"navigate"}):
		return nil // a link to the front page: the linking page cannot read it
	}
	return errForeignPage
}

// isOwnOrigin reports whether an origin is the endpoint's, as the client called it.
func isOwnOrigin(r *http.Request, origin string) bool {
	scheme := "http://"
	if r.TLS != nil {
		scheme = "https://"
	}
	host, ok := strings.CutPrefix(origin, scheme)
	return ok && r.Host != "" && strings.EqualFold(host, r.Host)
}

// acceptsHost reports whether the server accepts this Host: a name of this machine, or an allowed
// one. A public server accepts any, unless some are configured.
func (s *Server) acceptsHost(host string) bool {
	if s.public && len(s.hosts) == 0 {
		return true
	}
	name, ok := hostName(host)
	return ok && (isLocal(name) || slices.ContainsFunc(s.hosts, func(h string) bool { return strings.EqualFold(h, name) }))
}

// hostName returns a Host without port, IPv6 brackets and trailing dot. ok is false if it is not
// a valid host.
func hostName(host string) (name string, ok bool) {
	var port string
	if rest, bracketed := strings.CutPrefix(host, "["); bracketed {
		if name, port, ok = strings.Cut(rest, "]"); !ok || !strings.Contains(name, ":") {
			return "", false
		}
		if port, ok = strings.CutPrefix(port, ":"); !ok && port != "" {
			return "", false
		}
	} else {
		name, port, _ = strings.Cut(host, ":")
		name = strings.TrimSuffix(name, ".")
	}
	return name, name != "" && (port == "" || isDigits(port))
}

// isLocal reports whether a host name always means this machine: a loopback address, localhost,
// or a name below it (RFC 6761, section 6.3).
func isLocal(name string) bool {
	const local = "localhost"
	if below := len(name) - len(local); below >= 0 && strings.EqualFold(name[below:], local) {
		return below == 0 || name[below-1] == '.' && isDNSName(name)
	}
	at, err := netip.ParseAddr(name)
	return err == nil && at.Zone() == "" && at.Unmap().IsLoopback()
}

// isDNSName reports whether a text consists of labels of letters, digits, hyphens and
// underscores.
func isDNSName(text string) bool {
	for label := range strings.SplitSeq(text, ".") {
		if label == "" {
			return false
		}
		for i := range len(label) {
			switch b := lower(label[i]); {
			case 'a' <= b && b <= 'z', '0' <= b && b <= '9', b == '-', b == '_':
			default:
				return false
			}
		}
	}
	return true
}

// checkHosts returns an error if a host is neither a name nor an address.
func checkHosts(hosts []string) error {
	for _, h := range hosts {
		if _, err := netip.ParseAddr(h); err != nil && !isDNSName(h) {
			return fmt.Errorf("emulator: Options.Hosts: %s is neither a name nor an address: give it without a port, such as millrace", quoteShort(h))
		}
	}
	return nil
}

// shorten truncates client input for an error.
func shorten(text string) string {
	const enough = 100
	if len(text) > enough {
		return strings.ToValidUTF8(text[:enough], "") + "…"
	}
	return text
}
