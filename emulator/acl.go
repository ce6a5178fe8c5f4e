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
