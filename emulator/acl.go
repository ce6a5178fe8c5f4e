package emulator

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/millrace/millrace/internal/queuexml"
)

const (
	maxPolicies = 5  // of one queue (Set Queue ACL)
	maxPolicyID = 64 // characters
)

// getACL answers Get Queue ACL with the stored access policies of the queue.
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

// setACL answers Set Queue ACL: what is sent replaces all policies there were.
// A request without a body, or with none in it, leaves none.
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

// policyTime writes a time of an access policy as the service gives it back, in
// whatever form of [formats] it was sent: to seven digits of a second.
func policyTime(text string) string {
	t, ok := parseTime(text)
	if !ok { // none: checkPolicies has let no other pass
		return text
	}
	return t.Format("2006-01-02T15:04:05.0000000Z")
}

// checkPolicies holds policies against what Set Queue ACL allows. How many there are
// and what they are called makes the document bad, as in answers of the service that
// its clients' tests have published.
func checkPolicies(policies []queuexml.Policy) *failure {
	if len(policies) > maxPolicies {
		return errInvalidXML.with(queuexml.Detail{Name: "Reason", Value: "A queue has five stored access policies at most."})
	}
	for i, p := range policies {
		if n := utf8.RuneCountInString(p.ID); n == 0 || n > maxPolicyID {
			return errInvalidXML.with(queuexml.Detail{Name: "Reason", Value: "An Id has 1 to 64 characters."})
		}
		if slices.ContainsFunc(policies[:i], func(other queuexml.Policy) bool { return other.ID == p.ID }) {
			return errInvalidXML.with(queuexml.Detail{Name: "Reason", Value: "An Id is there twice."})
		}
		for _, at := range []struct{ name, value string }{{"Start", p.Start}, {"Expiry", p.Expiry}} {
			if _, ok := parseTime(at.value); !ok && at.value != "" {
				return invalidValue(at.name, at.value, "It is a time of ISO 8601 in UTC, such as 2006-01-02T15:04:05Z.")
			}
		}
		for i, letter := range p.Permission {
			if !strings.ContainsRune("raup", letter) || strings.ContainsRune(p.Permission[:i], letter) {
				return invalidValue("Permission", p.Permission, "It has letters out of raup, each once at most.")
			}
		}
	}
	return nil
}

// badDocument says what is wrong with the XML in a request.
func invalidDocument(err error) *failure {
	reason := queuexml.Detail{Name: "Reason", Value: err.Error()}
	if errors.Is(err, queuexml.ErrValue) {
		return errInvalidXMLValue.with(reason)
	}
	return errInvalidXML.with(reason)
}

// badValue says which element of the XML in a request has a value that it may
// not have.
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
