package emulator

import (
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/millrace/millrace/internal/queuexml"
)

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
	for i := range len(text) {
		if text[i] < ' ' || text[i] > '~' {
			return false
		}
	}
	return true
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
