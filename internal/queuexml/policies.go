package queuexml

// Policy is a stored access policy of a queue, an element SignedIdentifier (Set Queue ACL).
// Fields are as written, "" if omitted.
type Policy struct {
	ID         string
	Start      string // ISO 8601
	Expiry     string // ISO 8601
	Permission string // letters out of raup
}

// ParsePolicies parses a SignedIdentifiers document. It checks the form, not the number or the
// values. The error is [ErrMalformed] or [ErrUnexpected]. The caller limits the size.
func ParsePolicies(doc []byte) ([]Policy, error) {
	var policies []Policy
	err := document(doc, "SignedIdentifiers", func(s *scanner, name string, empty bool) error {
		return s.list(name, empty, "SignedIdentifier", func(s *scanner, name string, empty bool) error {
			var p Policy
			of := parts{"Id": textElement(&p.ID), "AccessPolicy": func(s *scanner, name string, empty bool) error {
				return s.record(name, empty, parts{"Start": textElement(&p.Start), "Expiry": textElement(&p.Expiry), "Permission": textElement(&p.Permission)})
			}}
			if err := s.record(name, empty, of); err != nil {
				return err
			}
			policies = append(policies, p)
			return require(name, of, "Id")
		})
	})
	if err != nil {
		return nil, err
	}
	return policies, nil
}

// AppendPolicies appends a SignedIdentifiers document.
func AppendPolicies(dst []byte, policies []Policy) []byte {
	dst = append(dst, Prolog+"<SignedIdentifiers>"...)
	for _, p := range policies {
		dst = append(dst, "<SignedIdentifier>"...)
		dst = appendElement(dst, "Id", p.ID)
		dst = append(dst, "<AccessPolicy>"...)
		for _, part := range [...]struct{ name, text string }{{"Start", p.Start}, {"Expiry", p.Expiry}, {"Permission", p.Permission}} {
			if part.text != "" {
				dst = appendElement(dst, part.name, part.text)
			}
		}
		dst = append(dst, "</AccessPolicy></SignedIdentifier>"...)
	}
	return append(dst, "</SignedIdentifiers>"...)
}
