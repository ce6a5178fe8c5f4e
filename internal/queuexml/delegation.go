package queuexml

// KeyInfo is a request for a user delegation key. Times are ISO 8601 as written, "" if omitted.
// DelegatedTenant is the tenant of the user to whom signatures may be bound, or "".
type KeyInfo struct{ Start, Expiry, DelegatedTenant string }

// ParseKeyInfo parses a KeyInfo document. The error is [ErrMalformed] or [ErrUnexpected]. The
// caller limits the size.
func ParseKeyInfo(doc []byte) (KeyInfo, error) {
	var k KeyInfo
	err := document(doc, "KeyInfo", func(s *scanner, name string, empty bool) error {
		of := parts{"Start": textElement(&k.Start), "Expiry": textElement(&k.Expiry), "DelegatedUserTid": textElement(&k.DelegatedTenant)}
		if err := s.record(name, empty, of); err != nil {
			return err
		}
		return require(name, of, "Expiry")
	})
	if err != nil {
		return KeyInfo{}, err
	}
	return k, nil
}

// DelegationKey is a user delegation key. Times are ISO 8601; Value is Base64.
type DelegationKey struct {
	Object, Tenant   string // who asked
	Start, Expiry    string
	Service, Version string
	DelegatedTenant  string // "" omits it
	Value            string
}

// AppendDelegationKey appends a UserDelegationKey document.
func AppendDelegationKey(dst []byte, k DelegationKey) []byte {
	dst = append(dst, Prolog+"<UserDelegationKey>"...)
	dst = appendElement(dst, "SignedOid", k.Object)
	dst = appendElement(dst, "SignedTid", k.Tenant)
	dst = appendElement(dst, "SignedStart", k.Start)
	dst = appendElement(dst, "SignedExpiry", k.Expiry)
	dst = appendElement(dst, "SignedService", k.Service)
	dst = appendElement(dst, "SignedVersion", k.Version)
	if k.DelegatedTenant != "" {
		dst = appendElement(dst, "SignedDelegatedUserTid", k.DelegatedTenant)
	}
	dst = appendElement(dst, "Value", k.Value)
	return append(dst, "</UserDelegationKey>"...)
}
