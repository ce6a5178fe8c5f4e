package emulator

import (
	"net/http"
	"net/url"
	"strings"

	"github.com/millrace/millrace/internal/queuexml"
	"github.com/millrace/millrace/queue/driver"
)

// Operation is an operation of the service, under the name in its storage logs and bills.
type Operation string

// The operations.
const (
	ListQueues       Operation = "ListQueues"
	CreateQueue      Operation = "CreateQueue"
	DeleteQueue      Operation = "DeleteQueue"
	GetQueueMetadata Operation = "GetQueueMetadata"
	SetQueueMetadata Operation = "SetQueueMetadata"
	PutMessage       Operation = "PutMessage"
	GetMessages      Operation = "GetMessages"
	PeekMessages     Operation = "PeekMessages"
	ClearMessages    Operation = "ClearMessages"
	UpdateMessage    Operation = "UpdateMessage"
	DeleteMessage    Operation = "DeleteMessage"
	GetQueueACL      Operation = "GetQueueAcl"
	SetQueueACL      Operation = "SetQueueAcl"

	GetServiceProperties Operation = "GetQueueServiceProperties"
	SetServiceProperties Operation = "SetQueueServiceProperties"
	GetServiceStats      Operation = "GetQueueServiceStats"
	GetDelegationKey     Operation = "GetUserDelegationKey"
	Preflight            Operation = "QueuePreflightRequest"

	// These are Millrace's own. They are not billed, and have no faults.
	OpenWakeups  Operation = "OpenWakeups"
	ReadyWakeups Operation = "ReadyWakeups"
	GetFaults    Operation = "GetFaults"
	SetFaults    Operation = "SetFaults"
	ClearFaults  Operation = "ClearFaults"

	Unknown Operation = "Unknown" // any other request
)

// operations are all operations in display order.
var operations = []Operation{PutMessage, GetMessages, PeekMessages, UpdateMessage, DeleteMessage, ClearMessages,
	ListQueues, CreateQueue, DeleteQueue, GetQueueMetadata, SetQueueMetadata, GetQueueACL, SetQueueACL,
	GetServiceProperties, SetServiceProperties, GetServiceStats, GetDelegationKey, Preflight, OpenWakeups, ReadyWakeups, GetFaults, SetFaults, ClearFaults, Unknown}

// isBilled reports whether a request of the operation is a transaction: the service has neither wake-ups
// nor faults on demand.
func (op Operation) isBilled() bool {
	return op != OpenWakeups && op != ReadyWakeups && !op.isControl()
}

// isControl reports whether the operation controls the server itself. Neither faults nor quotas stop
// it, because it must be possible to end them.
func (op Operation) isControl() bool {
	return op == GetFaults || op == SetFaults || op == ClearFaults
}

// The supported protocol versions: from the first with messages that never expire to that of
// azqueue v2.1.0.
const (
	oldestVersion = "2017-07-29"
	newestVersion = "2026-04-06"
)

// checkVersion determines the protocol version (Versioning for the Azure Storage services): that
// of the header or, with a shared access signature, its api-version or the version that it was
// signed in. A request without credentials needs no version and gets the oldest.
func (c *call) checkVersion() *failure {
	version := firstValue(c.request.Header, "X-Ms-Version")
	if version == "" {
		return c.impliedVersion()
	}
	if !isServedVersion(version) {
		return errInvalidHeaderValue.
			because("The value for one of the HTTP headers is not in the correct format. "+
				"This emulator serves the versions %s to %s.", oldestVersion, newestVersion).
			with(queuexml.Detail{Name: "HeaderName", Value: "x-ms-version"}, queuexml.Detail{Name: "HeaderValue", Value: version})
	}
	c.setVersion(version)
	return nil
}

func (c *call) impliedVersion() *failure {
	c.version = oldestVersion
	if !c.query.has("sig") {
		if firstValue(c.request.Header, "Authorization") == "" {
			return nil
		}
		return errMissingHeader.with(queuexml.Detail{Name: "HeaderName", Value: "x-ms-version"})
	}
	for _, name := range []string{"api-version", "sv"} {
		version, found, f := c.query.get(name)
		switch {
		case f != nil:
			return f
		case found && isServedVersion(version):
			c.setVersion(version)
			return nil
		case found:
			return errInvalidQueryValue.
				because("Value for one of the query parameters specified in the request URI is invalid. "+
					"This emulator serves the versions %s to %s; give one in x-ms-version.", oldestVersion, newestVersion).
				with(queuexml.Detail{Name: "QueryParameterName", Value: name}, queuexml.Detail{Name: "QueryParameterValue", Value: version})
		}
	}
	return nil
}

func (c *call) setVersion(version string) {
	c.version = version
	if version != newestVersion { // which begin has set
		c.set("X-Ms-Version", version)
	}
}

func isServedVersion(version string) bool {
	return isVersion(version) && version >= oldestVersion && version <= newestVersion
}

// isVersion reports whether s has the form 2006-01-02, so that comparing texts compares dates.
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

// route parses the address and determines the operation. Behind the account there is nothing, a
// queue, its messages, or one message.
func (c *call) route() *failure {
	parts, count, f := c.locate()
	if f != nil {
		return f
	}
	if c.request.Method == http.MethodOptions {
		return c.choose(preflights)
	}
	if count > 1 && parts[1] != "messages" {
		return errInvalidURI
	}
	if c.query, f = parseQuery(c.parameters[:0], c.request.URL.RawQuery); f != nil {
		return f
	}
	comp, _, f := c.query.get("comp")
	if f != nil {
		return f
	}
	if count == 1 && comp == "stats" && parts[0] == c.account && c.secondary && !c.hostStyle {
		// The Python client appends the account's path to the secondary location's. The address
		// has no other meaning: queues have no stats.
		parts[0], count = "", 0
	}
	c.queue, c.message = parts[0], parts[2]
	var verbs []verb
	known := true
	switch count {
	case 0:
		if verbs, known = accountVerbs[comp]; comp != "list" && comp != "faults" {
			restype, _, f := c.query.get("restype")
			if f != nil {
				return f
			}
			known = known && restype == "service"
		}
	case 1:
		verbs, known = queueVerbs[comp]
	case 2:
		verbs = messagesVerbs
		if c.request.Method != http.MethodGet {
			break
		}
		peek, found, f := c.query.get("peekonly")
		switch {
		case f != nil:
			return f
		case strings.EqualFold(peek, "true"):
			verbs = peekVerbs
		case found && !strings.EqualFold(peek, "false"):
			return errInvalidQueryValue.ofQuery("peekonly", peek, "It is neither true nor false.")
		}
	default:
		verbs = messageVerbs
	}
	if !known {
		return invalidComp(comp)
	}
	return c.choose(verbs)
}

// verb is a method of a resource, and the operation that it stands for.
type verb struct {
	method    string
	operation Operation
	handle    func(*call) *failure
	needs     permission
	traits    traits
}

// permission is what a shared access signature must have for an operation (Create an account SAS,
// "Account SAS permissions by operation", and Create a service SAS, "Permissions for a queue").
type permission struct {
	resource string // resource type of an account SAS
	account  string // letters of an account SAS, any of which suffices; "" allows none
	queue    string // letters of a service SAS, any of which suffices; "" allows none
}

type traits uint8

const (
	reads   traits = 1 << iota // it changes nothing, so that the secondary location serves it
	hasBody                    // its request has a body
)

// The verbs of each resource, ordered by method; those of accounts and queues by the parameter comp.
// Access policies and delegation keys require an account key or a token.
var (
	preflights   = []verb{{http.MethodOptions, Preflight, (*call).preflight, permission{"s", "", ""}, 0}}
	accountVerbs = map[string][]verb{
		"list": {{http.MethodGet, ListQueues, (*call).listQueues, permission{"s", "l", ""}, reads}},
		"properties": {
			{http.MethodGet, GetServiceProperties, (*call).getProperties, permission{"s", "r", ""}, reads},
			{http.MethodPut, SetServiceProperties, (*call).setProperties, permission{"s", "w", ""}, hasBody},
		},
		"stats":             {{http.MethodGet, GetServiceStats, (*call).getStatistics, permission{"s", "r", ""}, reads}},
		"userdelegationkey": {{http.MethodPost, GetDelegationKey, (*call).getDelegationKey, permission{"s", "", ""}, hasBody}},
		"faults": {
			{http.MethodDelete, ClearFaults, (*call).clearFaults, permission{"s", "w", ""}, 0},
			{http.MethodGet, GetFaults, (*call).getFaults, permission{"s", "r", ""}, 0},
			{http.MethodPut, SetFaults, (*call).setFaults, permission{"s", "w", ""}, 0},
		},
	}
	queueVerbs = map[string][]verb{
		"": {
			{http.MethodDelete, DeleteQueue, (*call).deleteQueue, permission{"c", "d", ""}, 0},
			{http.MethodPut, CreateQueue, (*call).createQueue, permission{"c", "cw", ""}, 0},
		},
		"acl": {
			{http.MethodGet, GetQueueACL, (*call).getACL, permission{"c", "", ""}, reads},
			{http.MethodHead, GetQueueACL, (*call).getACL, permission{"c", "", ""}, reads},
			{http.MethodPut, SetQueueACL, (*call).setACL, permission{"c", "", ""}, hasBody},
		},
		"metadata": {
			{http.MethodGet, GetQueueMetadata, (*call).getMetadata, permission{"c", "r", "r"}, reads},
			{http.MethodHead, GetQueueMetadata, (*call).getMetadata, permission{"c", "r", "r"}, reads},
			{http.MethodPut, SetQueueMetadata, (*call).setMetadata, permission{"c", "w", ""}, 0},
		},
		"wakeups": { // a stream takes wake-ups from workers
			{http.MethodGet, OpenWakeups, (*call).openStream, permission{"o", "p", "p"}, 0},
			{http.MethodPut, ReadyWakeups, (*call).setReadiness, permission{"o", "p", "p"}, 0},
		},
	}
	messagesVerbs = []verb{
		{http.MethodDelete, ClearMessages, (*call).clearMessages, permission{"o", "d", ""}, 0},
		{http.MethodGet, GetMessages, (*call).getMessages, permission{"o", "p", "p"}, 0},
		{http.MethodPost, PutMessage, (*call).putMessage, permission{"o", "a", "a"}, hasBody},
	}
	peekVerbs    = []verb{{http.MethodGet, PeekMessages, (*call).peekMessages, permission{"o", "r", "r"}, reads}}
	messageVerbs = []verb{
		{http.MethodDelete, DeleteMessage, (*call).deleteMessage, permission{"o", "p", "p"}, 0},
		{http.MethodPut, UpdateMessage, (*call).updateMessage, permission{"o", "u", "u"}, hasBody},
	}
)

// choose determines the operation by the method of the request.
func (c *call) choose(verbs []verb) *failure {
	for i := range verbs {
		if verbs[i].method == c.request.Method {
			c.verb, c.operation = &verbs[i], verbs[i].operation
			return nil
		}
	}
	var allowed []string
	for _, one := range verbs {
		allowed = append(allowed, one.method)
	}
	f := *errUnsupportedVerb
	f.allow = strings.Join(allowed, ", ")
	return &f
}

// invalidComp is the service's response to a comp that is missing or that the resource does not
// support.
func invalidComp(comp string) *failure {
	return errInvalidQueryValue.ofQuery("comp", comp, "")
}

// checkNames refuses an invalid queue name with one of the service's two failures.
func (c *call) checkNames() *failure {
	if c.queue == "" || driver.CheckName(c.queue) == nil {
		return nil
	}
	if len(c.queue) < 3 || len(c.queue) > 63 {
		return errOutOfRangeInput
	}
	return errInvalidResourceName
}

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
