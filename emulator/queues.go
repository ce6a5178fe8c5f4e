package emulator

import (
	"net/http"
	"strconv"
	"strings"

	"github.com/millrace/millrace/internal/queuexml"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/localqueue"
)

func (c *call) name() queue.Name { return queue.Name{Account: c.account, Queue: c.queue} }

func (c *call) target() *localqueue.Queue { return c.server.engine.Queue(c.name()) }

func (c *call) createQueue() *failure {
	metadata, f := c.metadata()
	if f != nil {
		return f
	}
	// The engine keeps the name: clone it, so that it does not retain the request's head.
	name := queue.Name{Account: strings.Clone(c.account), Queue: strings.Clone(c.queue)}
	created, err := c.server.engine.Create(c.request.Context(), name, metadata)
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
	if size > queue.MaxMetadata {
		return nil, errMetadataTooLarge.with(maxLimit(queue.MaxMetadata))
	}
	if queue.CheckMetadata(metadata) != nil {
		return nil, errInvalidMetadata
	}
	return metadata, nil
}

// maxListing bounds a page of queues, in bytes. A page of 5,000 queues is smaller unless it
// includes much metadata.
const maxListing = 1 << 20

// queueElementsSize is how long a queue is in a list without its name and metadata, in bytes.
const queueElementsSize = 64

func metadataSize(metadata map[string]string) (size int) {
	for name, value := range metadata {
		size += len(name) + len(value)
	}
	return size
}

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
		return errInvalidQueryValue.with(
			queuexml.Detail{Name: "QueryParameterName", Value: "include"},
			queuexml.Detail{Name: "QueryParameterValue", Value: include},
			queuexml.Detail{Name: "Reason", Value: "Only metadata can be included."})
	}
	results, f := c.query.number("maxresults", 0, 1, 1<<31-1)
	if f != nil {
		return f
	}
	from := ""
	if marker != "" {
		var ok bool
		if from, ok = strings.CutPrefix(marker, c.marker("")); !ok || queue.CheckName(from) != nil {
			return errOutOfRangeInput.because("One of the request inputs is out of range.") // as the service does; it documents InvalidMarker
		}
	}
	page, err := c.server.engine.Account(c.account).List(c.request.Context(), &queue.ListOptions{
		Prefix: prefix, Marker: from, Max: int(min(results, queue.MaxPage))})
	if err != nil {
		return toFailure(err)
	}
	size := 0
	for i, q := range page.Queues {
		size += len(q.Name) + queueElementsSize
		if include != "" {
			size += metadataSize(q.Metadata)
		}
		if size > maxListing && i > 0 {
			page.Queues, page.Next = page.Queues[:i], q.Name
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
		Queues:     make([]queuexml.Queue, len(page.Queues)),
	}
	for i, q := range page.Queues {
		listing.Queues[i].Name = q.Name
		if include != "" {
			listing.Queues[i].Metadata = q.Metadata
		}
	}
	if page.Next != "" {
		listing.NextMarker = c.marker(page.Next)
	}
	return c.document(http.StatusOK, queuexml.AppendListing(c.responseBuffer(), listing))
}

// marker returns the opaque marker of a queue in a list.
func (c *call) marker(name string) string { return "/" + c.account + "/" + name }
