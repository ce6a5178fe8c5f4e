package queuexml

import (
	"maps"
	"slices"
	"strconv"
)

// Listing is one page of a list of queues (List Queues).
type Listing struct {
	Endpoint   string // the address of the account
	Prefix     string // as requested; "" if omitted
	Marker     string // as requested; "" if omitted
	MaxResults int    // as requested; 0 if omitted
	Queues     []Queue
	NextMarker string // "" on the last page
}

// Queue is a queue in a [Listing]. Metadata names are identifiers and become element names; nil
// metadata is omitted.
type Queue struct {
	Name     string
	Metadata map[string]string
}

// AppendListing appends an EnumerationResults document.
func AppendListing(dst []byte, l Listing) []byte {
	dst = append(dst, Prolog+`<EnumerationResults ServiceEndpoint="`...)
	dst = appendAttribute(dst, l.Endpoint)
	dst = append(dst, `">`...)
	if l.Prefix != "" {
		dst = appendElement(dst, "Prefix", l.Prefix)
	}
	if l.Marker != "" {
		dst = appendElement(dst, "Marker", l.Marker)
	}
	if l.MaxResults != 0 {
		dst = append(dst, "<MaxResults>"...)
		dst = strconv.AppendInt(dst, int64(l.MaxResults), 10)
		dst = append(dst, "</MaxResults>"...)
	}
	dst = append(dst, "<Queues>"...)
	for _, q := range l.Queues {
		dst = append(dst, "<Queue>"...)
		dst = appendElement(dst, "Name", q.Name)
		if q.Metadata != nil {
			dst = append(dst, "<Metadata>"...)
			for _, name := range slices.Sorted(maps.Keys(q.Metadata)) {
				dst = appendElement(dst, name, q.Metadata[name])
			}
			dst = append(dst, "</Metadata>"...)
		}
		dst = append(dst, "</Queue>"...)
	}
	dst = append(dst, "</Queues>"...)
	dst = appendElement(dst, "NextMarker", l.NextMarker)
	return append(dst, "</EnumerationResults>"...)
}
