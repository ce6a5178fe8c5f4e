package emulator

import (
	"net/http"
	"net/url"
	"strings"

	"github.com/millrace/millrace/internal/queuexml"
	"github.com/millrace/millrace/queue"
)

// The versions of the protocol that are served: from the one that brought
// messages that never expire to the one that azqueue v2.1.0 speaks.
const (
	oldestVersion = "2017-07-29"
	newestVersion = "2026-04-06"
)

func (c *call) checkVersion() *failure {
	version := c.request.Header.Get("x-ms-version")
	if version == "" {
		return errMissingHeader.with(queuexml.Detail{Name: "HeaderName", Value: "x-ms-version"})
	}
	if !isVersion(version) || version < oldestVersion || version > newestVersion {
		return errInvalidHeaderValue.
			because("The value for one of the HTTP headers is not in the correct format. "+
				"This emulator serves the versions %s to %s.", oldestVersion, newestVersion).
			with(queuexml.Detail{Name: "HeaderName", Value: "x-ms-version"}, queuexml.Detail{Name: "HeaderValue", Value: version})
	}
	c.header["X-Ms-Version"] = []string{version}
	return nil
}

// isVersion reports whether s has the form 2006-01-02, which makes comparing
// texts comparing dates.
func isVersion(s string) bool {
	if len(s) != 10 || s[4] != '-' || s[7] != '-' {
		return false
	}
	for i := range len(s) {
		if i != 4 && i != 7 && (s[i] < '0' || s[i] > '9') {
			return false
		}
	}
	return true
}

// route reads the address and finds the operation: /account, /account/queue,
// /account/queue/messages and /account/queue/messages/id.
func (c *call) route() (f *failure) {
	path, ok := strings.CutPrefix(c.request.URL.EscapedPath(), "/")
	if !ok {
		return errInvalidURI
	}
	var parts [4]string
	count := 0
	for part := range strings.SplitSeq(strings.TrimSuffix(path, "/"), "/") {
		part, err := url.PathUnescape(part)
		if err != nil || part == "" || count == len(parts) {
			return errInvalidURI
		}
		parts[count] = part
		count++
	}
	if count > 2 && parts[2] != "messages" {
		return errInvalidURI
	}
	c.account, c.queue, c.message = parts[0], parts[1], parts[3]
	if c.query, f = parseQuery(c.request.URL.RawQuery); f != nil {
		return f
	}
	comp, _, f := c.query.get("comp")
	if f != nil {
		return f
	}
	switch count {
	case 1:
		return c.routeAccount(comp)
	case 2:
		return c.routeQueue(comp)
	case 3:
		return c.routeMessages()
	default:
		return c.routeMessage()
	}
}

func (c *call) routeAccount(comp string) *failure {
	switch {
	case comp != "list":
		return unsupported("comp", comp)
	case c.request.Method != http.MethodGet:
		return methods("GET")
	}
	return c.serve(ListQueues, (*call).listQueues)
}

func (c *call) routeQueue(comp string) *failure {
	switch comp {
	case "":
		switch c.request.Method {
		case http.MethodPut:
			return c.serve(CreateQueue, (*call).createQueue)
		case http.MethodDelete:
			return c.serve(DeleteQueue, (*call).deleteQueue)
		}
		return methods("DELETE, PUT")
	case "metadata":
		switch c.request.Method {
		case http.MethodGet, http.MethodHead:
			return c.serve(GetQueueMetadata, (*call).getMetadata)
		case http.MethodPut:
			return c.serve(SetQueueMetadata, (*call).setMetadata)
		}
		return methods("GET, HEAD, PUT")
	}
	return unsupported("comp", comp)
}

func (c *call) routeMessages() *failure {
	switch c.request.Method {
	case http.MethodPost:
		return c.serve(PutMessage, (*call).putMessage)
	case http.MethodGet:
		peek, found, f := c.query.get("peekonly")
		switch {
		case f != nil:
			return f
		case !found, strings.EqualFold(peek, "false"):
			return c.serve(GetMessages, (*call).getMessages)
		case strings.EqualFold(peek, "true"):
			return c.serve(PeekMessages, (*call).peekMessages)
		}
		return errInvalidQueryValue.with(
			queuexml.Detail{Name: "QueryParameterName", Value: "peekonly"},
			queuexml.Detail{Name: "QueryParameterValue", Value: peek},
			queuexml.Detail{Name: "Reason", Value: "It is neither true nor false."})
	case http.MethodDelete:
		return c.serve(ClearMessages, (*call).clearMessages)
	}
	return methods("DELETE, GET, POST")
}

func (c *call) routeMessage() *failure {
	switch c.request.Method {
	case http.MethodPut:
		return c.serve(UpdateMessage, (*call).updateMessage)
	case http.MethodDelete:
		return c.serve(DeleteMessage, (*call).deleteMessage)
	}
	return methods("DELETE, PUT")
}

func (c *call) serve(op Operation, handle func(*call) *failure) *failure {
	c.operation, c.handle = op, handle
	return nil
}

func unsupported(name, value string) *failure {
	return errUnsupportedQuery.with(
		queuexml.Detail{Name: "QueryParameterName", Value: name},
		queuexml.Detail{Name: "QueryParameterValue", Value: value})
}

// checkNames refuses a bad queue name in the two ways the service does.
func (c *call) checkNames() *failure {
	if c.operation == ListQueues || queue.CheckName(c.queue) == nil {
		return nil
	}
	if len(c.queue) < 3 || len(c.queue) > 63 {
		return errOutOfRangeInput
	}
	return errInvalidResourceName
}
