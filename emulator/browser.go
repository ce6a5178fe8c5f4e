package emulator

import (
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
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

// preflight responds to a browser that asks whether a page of another origin may send a request
// (Preflight Queue Request, CORS support for Azure Storage). The first matching rule decides. The
// resource need not exist.
func (c *call) preflight() *failure {
	asked := c.request.Header
	origin, method := asked.Get("Origin"), asked.Get("Access-Control-Request-Method")
	for _, required := range []struct{ name, value string }{{"Origin", origin}, {"Access-Control-Request-Method", method}} {
		if required.value == "" {
			return errInvalidHeaderValue.because("A required CORS header is not present.").with(
				queuexml.Detail{Name: "HeaderName", Value: required.name})
		}
	}
	headers := strings.Join(asked.Values("Access-Control-Request-Headers"), ",")
	if c.accountState == nil || !isPrintableASCII(origin+method+headers) {
		return errPreflight
	}
	rules, f := c.rules()
	if f != nil {
		return f
	}
	for _, r := range rules {
		if !allowsOrigin(r, origin) || !allowsMethod(r, method) || !allowsHeaders(r, headers) {
			continue
		}
		h := c.header
		h["Access-Control-Allow-Origin"] = []string{origin}
		h["Access-Control-Allow-Methods"] = []string{method}
		if headers != "" {
			h["Access-Control-Allow-Headers"] = []string{headers}
		}
		h["Access-Control-Max-Age"] = []string{strconv.Itoa(r.MaxAge)}
		h["Access-Control-Allow-Credentials"] = []string{"true"}
		c.status = http.StatusOK
		return nil
	}
	return errPreflight
}

// rules returns the account's CORS rules.
func (c *call) rules() ([]queuexml.CORSRule, *failure) {
	p, f := c.properties()
	if f != nil || p.CORS == nil {
		return nil, f
	}
	return *p.CORS, nil
}

// setCORSHeaders sets the headers that let a page of another origin read the response if a rule
// allows it, and that keep caches from reusing it for other origins. Without account properties
// it costs one look-up.
func (c *call) setCORSHeaders() {
	origin := firstValue(c.request.Header, "Origin")
	// Without an Origin, only responses that can be cached need Vary.
	cached := c.request.Method == http.MethodGet || c.request.Method == http.MethodHead
	if c.accountState == nil || c.operation == Preflight || origin == "" && !cached || !isPrintableASCII(origin) {
		return
	}
	rules, f := c.rules()
	if f != nil || len(rules) == 0 {
		return // no CORS headers
	}
	for _, r := range rules {
		if !allowsMethod(r, c.request.Method) {
			continue
		}
		switch {
		case slices.Contains(splitList(r.Origins), "*"):
			c.header["Access-Control-Allow-Origin"] = []string{"*"}
		case origin != "" && allowsOrigin(r, origin):
			c.header["Access-Control-Allow-Origin"] = []string{origin}
			c.header["Access-Control-Allow-Credentials"] = []string{"true"}
			if cached {
				c.header["Vary"] = []string{"Origin"}
			}
		default:
			continue
		}
		if names := exposed(r, c.header); names != "" {
			c.header["Access-Control-Expose-Headers"] = []string{names}
		}
		return
	}
	if cached {
		c.header["Vary"] = []string{"Origin"}
	}
}

// allowsOrigin reports whether a rule allows an origin. It is case-sensitive.
func allowsOrigin(r queuexml.CORSRule, origin string) bool {
	return slices.ContainsFunc(splitList(r.Origins), func(o string) bool { return o == "*" || o == origin })
}

func allowsMethod(r queuexml.CORSRule, method string) bool {
	return slices.Contains(splitList(r.Methods), method)
}

// allowsHeaders reports whether a rule allows all headers of the list.
func allowsHeaders(r queuexml.CORSRule, headers string) bool {
	allowed := splitList(r.Headers)
	return !slices.ContainsFunc(splitList(headers), func(h string) bool {
		return !slices.ContainsFunc(allowed, func(a string) bool { return matches(a, h) })
	})
}

// isPrintableASCII reports whether a text may be returned in a header.
func isPrintableASCII(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r > '~' })
}

// matches reports whether a rule's header name, or its prefix before an asterisk, matches a
// header.
func matches(allowed, header string) bool {
	if prefix, ok := strings.CutSuffix(allowed, "*"); ok {
		return len(header) >= len(prefix) && strings.EqualFold(header[:len(prefix)], prefix)
	}
	return strings.EqualFold(allowed, header)
}

// exposed returns the response headers that a page may read, separated by commas: all full names
// of the rule, and the present headers that match its prefixes.
func exposed(r queuexml.CORSRule, response http.Header) string {
	var names []string
	for _, rule := range splitList(r.Exposed) {
		if !strings.HasSuffix(rule, "*") {
			names = append(names, rule)
			continue
		}
		for _, name := range slices.Sorted(maps.Keys(response)) {
			if matches(rule, name) {
				names = append(names, name)
			}
		}
	}
	return strings.Join(names, ",")
}
