package emulator

import (
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/millrace/millrace/internal/localengine"
	"github.com/millrace/millrace/internal/queuexml"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/driver"
)

func (c *call) name() queue.Name { return queue.Name{Account: c.account, Queue: c.queue} }

func (c *call) target() localengine.Queue { return c.server.queue(c.name()) }

func (s *Server) queue(name queue.Name) localengine.Queue {
	return s.engine.Queue(name).(localengine.Queue)
}

func (c *call) createQueue() *failure {
	metadata, f := c.metadata()
	if f != nil {
		return f
	}
	// The engine keeps the name: clone it, so that it does not retain the request's head.
	name := queue.Name{Account: strings.Clone(c.account), Queue: strings.Clone(c.queue)}
	created, err := c.server.queue(name).CreateNew(c.request.Context(), metadata)
	if err != nil {
		return toFailure(err)
	}
	c.status = http.StatusNoContent // exists with the same metadata
	if created {
		c.status = http.StatusCreated
	}
	return nil
}

func (c *call) deleteQueue() *failure {
	return c.noContent(c.target().Drop(c.request.Context()))
}

func (c *call) getMetadata() *failure {
	p, err := c.target().Properties(c.request.Context())
	if err != nil {
		return toFailure(err)
	}
	c.header["X-Ms-Approximate-Messages-Count"] = []string{strconv.FormatInt(p.Depth, 10)}
	for name, value := range p.Metadata {
		// Not in canonical form: other clients are case-sensitive.
		c.header["x-ms-meta-"+name] = []string{value}
	}
	c.status = http.StatusOK
	return nil
}

func (c *call) setMetadata() *failure {
	metadata, f := c.metadata()
	if f != nil {
		return f
	}
	return c.noContent(c.target().SetMetadata(c.request.Context(), metadata))
}

// metadata reads the x-ms-meta- headers. HTTP header names are case-insensitive and Go changes
// their case, so all names become lower case.
func (c *call) metadata() (map[string]string, *failure) {
	var metadata map[string]string
	size := 0
	for key, values := range c.request.Header {
		name, ok := strings.CutPrefix(key, "X-Ms-Meta-")
		if !ok {
			continue
		}
		if name == "" {
			return nil, errEmptyMetadataKey
		}
		if metadata == nil {
			metadata = make(map[string]string)
		}
		value := strings.Join(values, ",")
		metadata[strings.Clone(strings.ToLower(name))] = strings.Clone(value) // the engine keeps them
		size += len(name) + len(value)
	}
	if size > driver.MaxMetadata {
		return nil, errMetadataTooLarge.with(maxLimit(driver.MaxMetadata))
	}
	if driver.CheckMetadata(metadata) != nil {
		return nil, errInvalidMetadata
	}
	return metadata, nil
}

// maxListing bounds a page of queues, in bytes. A page of 5,000 queues is smaller unless it
// includes much metadata.
const maxListing = 1 << 20

// queueElementsSize is how long a queue is in a list without its name and metadata, in bytes.
const queueElementsSize = 64

func (c *call) listQueues() *failure {
	prefix, _, f := c.query.get("prefix")
	if f != nil {
		return f
	}
	marker, _, f := c.query.get("marker")
	if f != nil {
		return f
	}
	include, _, f := c.query.get("include")
	if f != nil {
		return f
	}
	if include != "" && include != "metadata" {
		return errInvalidQueryValue.ofQuery("include", include, "Only metadata can be included.")
	}
	results, f := c.query.number("maxresults", 0, 1, 1<<31-1)
	if f != nil {
		return f
	}
	from := ""
	if marker != "" {
		var ok bool
		if from, ok = strings.CutPrefix(marker, c.marker("")); !ok || driver.CheckName(from) != nil {
			return errOutOfRangeInput.because("One of the request inputs is out of range.") // as the service does; it documents InvalidMarker
		}
	}
	page, next, err := c.server.engine.Account(c.account).List(c.request.Context(), prefix, from, int(min(results, driver.MaxPage)))
	if err != nil {
		return toFailure(err)
	}
	size := 0
	for i, q := range page {
		size += len(q.Name) + queueElementsSize
		if include != "" {
			for name, value := range q.Metadata {
				size += len(name) + len(value)
			}
		}
		if size > maxListing && i > 0 {
			page, next = page[:i], q.Name
			break
		}
	}
	if f := c.reserve(size); f != nil {
		return f
	}
	listing := queuexml.Listing{
		Endpoint:   c.endpoint(),
		Prefix:     prefix,
		Marker:     marker,
		MaxResults: int(results),
		Queues:     make([]queuexml.Queue, len(page)),
	}
	for i, q := range page {
		listing.Queues[i].Name = q.Name
		if include != "" {
			listing.Queues[i].Metadata = q.Metadata
		}
	}
	if next != "" {
		listing.NextMarker = c.marker(next)
	}
	return c.document(http.StatusOK, queuexml.AppendListing(c.responseBuffer(), listing))
}

// marker returns the opaque marker of a queue in a list.
func (c *call) marker(name string) string { return "/" + c.account + "/" + name }

const (
	maxPolicies = 5  // of one queue (Set Queue ACL)
	maxPolicyID = 64 // characters
)

// getACL responds to Get Queue ACL with the queue's stored access policies.
func (c *call) getACL() *failure {
	stored, err := c.target().AccessPolicy(c.request.Context())
	if err != nil {
		return toFailure(err)
	}
	if stored == nil {
		stored = queuexml.AppendPolicies(nil, nil)
	}
	return c.document(http.StatusOK, append(c.responseBuffer(), stored...))
}

// setACL responds to Set Queue ACL. The request replaces all policies; without a body it removes
// them.
func (c *call) setACL() *failure {
	var policies []queuexml.Policy
	if c.input != nil {
		var err error
		if policies, err = queuexml.ParsePolicies(*c.input); err != nil {
			return invalidDocument(err)
		}
	}
	if f := checkPolicies(policies); f != nil {
		return f
	}
	var stored []byte
	if len(policies) > 0 {
		for i := range policies {
			policies[i].Start, policies[i].Expiry = policyTime(policies[i].Start), policyTime(policies[i].Expiry)
		}
		stored = queuexml.AppendPolicies(nil, policies)
	}
	return c.noContent(c.target().SetAccessPolicy(c.request.Context(), stored))
}

// policyTime converts a time of an access policy, in any of [timeFormats], to the form in which
// the service returns it: seven decimal places of a second.
func policyTime(text string) string {
	t, ok := parseTime(text)
	if !ok { // "": checkPolicies has refused others
		return text
	}
	return t.Format("2006-01-02T15:04:05.0000000Z")
}

// checkPolicies checks policies against the limits of Set Queue ACL. A wrong number or id makes
// the document invalid, as in responses of the service that its clients' tests have published.
func checkPolicies(policies []queuexml.Policy) *failure {
	if len(policies) > maxPolicies {
		return errInvalidXML.with(queuexml.Detail{Name: "Reason", Value: "A queue may have at most five stored access policies."})
	}
	for i, p := range policies {
		if n := utf8.RuneCountInString(p.ID); n == 0 || n > maxPolicyID {
			return errInvalidXML.with(queuexml.Detail{Name: "Reason", Value: "An Id must have 1 to 64 characters."})
		}
		if slices.ContainsFunc(policies[:i], func(other queuexml.Policy) bool { return other.ID == p.ID }) {
			return errInvalidXML.with(queuexml.Detail{Name: "Reason", Value: "An Id is given twice."})
		}
		for _, at := range []struct{ name, value string }{{"Start", p.Start}, {"Expiry", p.Expiry}} {
			if _, ok := parseTime(at.value); !ok && at.value != "" {
				return invalidValue(at.name, at.value, "It must be an ISO 8601 time in UTC, such as 2006-01-02T15:04:05Z.")
			}
		}
		for i, letter := range p.Permission {
			if !strings.ContainsRune("raup", letter) || strings.ContainsRune(p.Permission[:i], letter) {
				return invalidValue("Permission", p.Permission, "It may have the letters r, a, u and p, each at most once.")
			}
		}
	}
	return nil
}

// invalidDocument is the failure for invalid XML in a request.
func invalidDocument(err error) *failure {
	reason := queuexml.Detail{Name: "Reason", Value: err.Error()}
	if errors.Is(err, queuexml.ErrValue) {
		return errInvalidXMLValue.with(reason)
	}
	return errInvalidXML.with(reason)
}

// invalidValue is the failure for an XML element with an invalid value.
func invalidValue(name, value, reason string) *failure {
	const enough = 256 // of a value, to recognize it
	if len(value) > enough {
		value = strings.ToValidUTF8(value[:enough], "") + "…"
	}
	return errInvalidXMLValue.with(
		queuexml.Detail{Name: "XmlNodeName", Value: name},
		queuexml.Detail{Name: "XmlNodeValue", Value: value},
		queuexml.Detail{Name: "Reason", Value: reason})
}
