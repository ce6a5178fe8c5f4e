package emulator

import (
	"net/url"
	"strings"
)

// secondarySuffix ends the name of an account's secondary location.
const secondarySuffix = "-secondary"

// locate parses the address: account, location, and the decoded parts of the path behind the
// account, of which there are count.
//
// In path style the account is the first part of the path, as in Azurite:
// http://127.0.0.1:10001/account/queue. In host style it is the first label of the host, as in
// the service: http://account.queue.localhost:10001/queue. The host decides: only host style has
// an account's name and "queue" in it.
func (c *call) locate() (parts [3]string, count int, f *failure) {
	c.resource = c.request.URL.EscapedPath()
	path, ok := strings.CutPrefix(c.resource, "/")
	if !ok && c.resource != "" {
		return parts, 0, errInvalidURI
	}
	path = strings.TrimSuffix(path, "/")
	if location, ok := c.server.inHost(c.request.Host); ok {
		c.hostStyle = true
		c.setAccount(location)
	} else {
		first, rest, more := strings.Cut(path, "/")
		location, err := url.PathUnescape(first)
		if err != nil || location == "" {
			return parts, 0, errInvalidURI
		}
		c.setAccount(location)
		if path = rest; !more {
			return parts, 0, nil
		}
	}
	if path == "" && c.hostStyle {
		return parts, 0, nil
	}
	for part := range strings.SplitSeq(path, "/") {
		part, err := url.PathUnescape(part)
		if err != nil || part == "" || count == len(parts) {
			return parts, 0, errInvalidURI
		}
		parts[count] = part
		count++
	}
	return parts, count, nil
}

func (c *call) setAccount(location string) {
	c.account, c.accountState = location, c.server.accounts[location]
	if c.accountState != nil {
		return
	}
	if name, ok := strings.CutSuffix(location, secondarySuffix); ok {
		c.account, c.accountState, c.secondary = name, c.server.accounts[name], true
	}
}

// inHost returns the location that a request's host names, if it is one of ours.
func (s *Server) inHost(host string) (location string, ok bool) {
	location, rest, ok := strings.Cut(host, ".")
	if !ok {
		return "", false
	}
	service, _, ok := strings.Cut(rest, ".")
	if !ok || !strings.EqualFold(service, "queue") {
		return "", false
	}
	location = strings.ToLower(location)
	return location, s.accounts[strings.TrimSuffix(location, secondarySuffix)] != nil || s.accounts[location] != nil
}

// endpoint returns the account's address as the client called it.
func (c *call) endpoint() string {
	scheme := "http://"
	if c.secure() {
		scheme = "https://"
	}
	if c.hostStyle {
		return scheme + c.request.Host + "/"
	}
	location := c.account
	if c.secondary {
		location += secondarySuffix
	}
	return scheme + c.request.Host + "/" + location
}

// secure reports whether the request came over TLS.
func (c *call) secure() bool { return c.request.TLS != nil }
