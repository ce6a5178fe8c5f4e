package queuexml

import (
	"maps"
	"slices"
	"strconv"
	"time"
)

// Properties are the properties of an account's Queue service (Set Queue Service Properties). Nil
// fields were omitted.
type Properties struct {
	Logging       *Logging
	HourMetrics   *Metrics
	MinuteMetrics *Metrics
	CORS          *[]CORSRule // empty means that there are no rules
}

// Logging says which requests are logged.
type Logging struct {
	Version             string
	Delete, Read, Write bool
	Retention           Retention
}

// Metrics says which metrics are kept.
type Metrics struct {
	Version     string
	Enabled     bool
	IncludeAPIs *bool // nil if omitted
	Retention   Retention
}

// Retention says for how many days something is kept. Days is 0 if omitted.
type Retention struct {
	Enabled bool
	Days    int
}

// CORSRule is a rule for pages of other origins. The four lists are separated by commas, as
// written.
type CORSRule struct {
	Origins, Methods, Headers, Exposed string
	MaxAge                             int // seconds
}

// ParseProperties parses a StorageServiceProperties document. It checks the form and that
// elements are complete, not their values. The error is [ErrMalformed], [ErrUnexpected] or
// [ErrValue]. The caller limits the size.
func ParseProperties(doc []byte) (Properties, error) {
	var p Properties
	err := document(doc, "StorageServiceProperties", func(s *scanner, name string, empty bool) error {
		return s.record(name, empty, parts{
			"Logging": func(s *scanner, name string, empty bool) error {
				p.Logging = new(Logging)
				l := p.Logging
				of := parts{"Version": textElement(&l.Version), "Delete": boolean(&l.Delete), "Read": boolean(&l.Read), "Write": boolean(&l.Write),
					"RetentionPolicy": l.Retention.parse}
				return s.record(name, empty, of, "Version", "Delete", "Read", "Write", "RetentionPolicy")
			},
			"HourMetrics": func(s *scanner, name string, empty bool) error {
				p.HourMetrics = new(Metrics)
				return p.HourMetrics.parse(s, name, empty)
			},
			"MinuteMetrics": func(s *scanner, name string, empty bool) error {
				p.MinuteMetrics = new(Metrics)
				return p.MinuteMetrics.parse(s, name, empty)
			},
			"Cors": func(s *scanner, name string, empty bool) error {
				p.CORS = new([]CORSRule)
				return s.list(name, empty, "CorsRule", func(s *scanner, name string, empty bool) error {
					var rule CORSRule
					of := parts{"AllowedOrigins": textElement(&rule.Origins), "AllowedMethods": textElement(&rule.Methods), "MaxAgeInSeconds": number(&rule.MaxAge),
						"ExposedHeaders": textElement(&rule.Exposed), "AllowedHeaders": textElement(&rule.Headers)}
					err := s.record(name, empty, of, "AllowedOrigins", "AllowedMethods", "MaxAgeInSeconds", "ExposedHeaders", "AllowedHeaders")
					*p.CORS = append(*p.CORS, rule)
					return err
				})
			},
		})
	})
	if err != nil {
		return Properties{}, err
	}
	return p, nil
}

func (m *Metrics) parse(s *scanner, name string, empty bool) error {
	var include bool
	of := parts{"Version": textElement(&m.Version), "Enabled": boolean(&m.Enabled), "IncludeAPIs": boolean(&include), "RetentionPolicy": m.Retention.parse}
	err := s.record(name, empty, of, "Version", "Enabled", "RetentionPolicy")
	if _, missing := of["IncludeAPIs"]; !missing {
		m.IncludeAPIs = &include
	}
	return err
}

func (r *Retention) parse(s *scanner, name string, empty bool) error {
	return s.record(name, empty, parts{"Enabled": boolean(&r.Enabled), "Days": number(&r.Days)}, "Enabled")
}

// AppendProperties appends a StorageServiceProperties document. Nil fields are omitted.
func AppendProperties(dst []byte, p Properties) []byte {
	dst = append(dst, Prolog+"<StorageServiceProperties>"...)
	if l := p.Logging; l != nil {
		dst = append(dst, "<Logging>"...)
		dst = appendElement(dst, "Version", l.Version)
		dst = appendElement(dst, "Delete", strconv.FormatBool(l.Delete))
		dst = appendElement(dst, "Read", strconv.FormatBool(l.Read))
		dst = appendElement(dst, "Write", strconv.FormatBool(l.Write))
		dst = append(appendRetention(dst, l.Retention), "</Logging>"...)
	}
	dst = appendMetrics(dst, "HourMetrics", p.HourMetrics)
	dst = appendMetrics(dst, "MinuteMetrics", p.MinuteMetrics)
	if p.CORS != nil {
		dst = append(dst, "<Cors>"...)
		for _, r := range *p.CORS {
			dst = append(dst, "<CorsRule>"...)
			dst = appendElement(dst, "AllowedOrigins", r.Origins)
			dst = appendElement(dst, "AllowedMethods", r.Methods)
			dst = appendElement(dst, "MaxAgeInSeconds", strconv.Itoa(r.MaxAge))
			dst = appendElement(dst, "ExposedHeaders", r.Exposed)
			dst = appendElement(dst, "AllowedHeaders", r.Headers)
			dst = append(dst, "</CorsRule>"...)
		}
		dst = append(dst, "</Cors>"...)
	}
	return append(dst, "</StorageServiceProperties>"...)
}

func appendMetrics(dst []byte, name string, m *Metrics) []byte {
	if m == nil {
		return dst
	}
	dst = append(append(append(dst, '<'), name...), '>')
	dst = appendElement(dst, "Version", m.Version)
	dst = appendElement(dst, "Enabled", strconv.FormatBool(m.Enabled))
	if m.IncludeAPIs != nil {
		dst = appendElement(dst, "IncludeAPIs", strconv.FormatBool(*m.IncludeAPIs))
	}
	dst = appendRetention(dst, m.Retention)
	return append(append(append(dst, "</"...), name...), '>')
}

func appendRetention(dst []byte, r Retention) []byte {
	dst = append(dst, "<RetentionPolicy>"...)
	dst = appendElement(dst, "Enabled", strconv.FormatBool(r.Enabled))
	if r.Days > 0 {
		dst = appendElement(dst, "Days", strconv.Itoa(r.Days))
	}
	return append(dst, "</RetentionPolicy>"...)
}

// AppendStatistics appends a StorageServiceStats document (Get Queue Service Stats): the status
// of the secondary location, and the time up to which writes are readable there.
func AppendStatistics(dst []byte, status string, synced time.Time) []byte {
	dst = append(dst, Prolog+"<StorageServiceStats><GeoReplication>"...)
	dst = appendElement(dst, "Status", status)
	dst = append(dst, "<LastSyncTime>"...)
	dst = AppendTime(dst, synced)
	return append(dst, "</LastSyncTime></GeoReplication></StorageServiceStats>"...)
}

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
			err := s.record(name, empty, of, "Id")
			policies = append(policies, p)
			return err
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

// KeyInfo is a request for a user delegation key. Times are ISO 8601 as written, "" if omitted.
// DelegatedTenant is the tenant of the user to whom signatures may be bound, or "".
type KeyInfo struct{ Start, Expiry, DelegatedTenant string }

// ParseKeyInfo parses a KeyInfo document. The error is [ErrMalformed] or [ErrUnexpected]. The
// caller limits the size.
func ParseKeyInfo(doc []byte) (KeyInfo, error) {
	var k KeyInfo
	err := document(doc, "KeyInfo", func(s *scanner, name string, empty bool) error {
		of := parts{"Start": textElement(&k.Start), "Expiry": textElement(&k.Expiry), "DelegatedUserTid": textElement(&k.DelegatedTenant)}
		return s.record(name, empty, of, "Expiry")
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
	dst = appendEscaped(dst, l.Endpoint, true)
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
