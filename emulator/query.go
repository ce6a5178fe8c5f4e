package emulator

import (
	"errors"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/millrace/millrace/internal/queuexml"
)

// query is a request's decoded parameters in order.
type query []parameter

type parameter struct{ name, value string }

// maxParameters limits the number of parameters; the service has fewer than ten.
const maxParameters = 64

// parseQuery decodes a URL's query, into room if it suffices. Names become lower case, as in the
// string to sign.
func parseQuery(room query, raw string) (query, *failure) {
	if raw == "" {
		return nil, nil
	}
	q := room
	for pair := range strings.SplitSeq(raw, "&") {
		if pair == "" {
			continue
		}
		name, value, _ := strings.Cut(pair, "=")
		name, err := url.QueryUnescape(name)
		if err != nil {
			return nil, errInvalidQueryValue
		}
		value, err = url.QueryUnescape(value)
		if err != nil {
			return nil, errInvalidQueryValue
		}
		if len(q) == maxParameters {
			return nil, errInvalidQueryValue
		}
		q = append(q, parameter{strings.ToLower(name), value})
	}
	return q, nil
}

// get returns the value of a parameter and whether it exists. A duplicate parameter is ambiguous
// and refused.
func (q query) get(name string) (value string, found bool, f *failure) {
	for _, p := range q {
		if p.name != name {
			continue
		}
		if found {
			return "", false, errInvalidQueryValue.with(
				queuexml.Detail{Name: "QueryParameterName", Value: name},
				queuexml.Detail{Name: "Reason", Value: "It is given more than once."})
		}
		value, found = p.value, true
	}
	return value, found, nil
}

func (q query) has(name string) bool {
	for _, p := range q {
		if p.name == name {
			return true
		}
	}
	return false
}

// number returns a parameter that is a whole number from minimum to maximum, or missing if there is none.
func (q query) number(name string, missing, minimum, maximum int64) (int64, *failure) {
	value, found, f := q.get(name)
	if f != nil || !found {
		return missing, f
	}
	n, err := strconv.ParseInt(value, 10, 64) // the nearest int64 on ErrRange
	if err != nil && !errors.Is(err, strconv.ErrRange) {
		return 0, errInvalidQueryValue.with(
			queuexml.Detail{Name: "QueryParameterName", Value: name},
			queuexml.Detail{Name: "QueryParameterValue", Value: value},
			queuexml.Detail{Name: "Reason", Value: "It is not a whole number."})
	}
	if n < minimum || n > maximum {
		return 0, errOutOfRangeQueryValue.with(
			queuexml.Detail{Name: "QueryParameterName", Value: name},
			queuexml.Detail{Name: "QueryParameterValue", Value: value},
			queuexml.Detail{Name: "MinimumAllowed", Value: strconv.FormatInt(minimum, 10)},
			queuexml.Detail{Name: "MaximumAllowed", Value: strconv.FormatInt(maximum, 10)})
	}
	return n, nil
}

// required returns a parameter that must exist and not be empty.
func (q query) required(name string) (string, *failure) {
	value, _, f := q.get(name)
	if f != nil {
		return "", f
	}
	if value == "" {
		return "", errMissingQuery.with(queuexml.Detail{Name: "QueryParameterName", Value: name})
	}
	return value, nil
}

// sorted returns the parameters in signing order: by name, then by value. It copies them only if
// they are in another order.
func (q query) sorted() query {
	if slices.IsSortedFunc(q, compareParameters) {
		return q
	}
	s := slices.Clone(q)
	slices.SortFunc(s, compareParameters)
	return s
}

func compareParameters(a, b parameter) int {
	if c := strings.Compare(a.name, b.name); c != 0 {
		return c
	}
	return strings.Compare(a.value, b.value)
}
