package queuexml

import (
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
				return p.Logging.parse(s, name, empty)
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
					if err := rule.parse(s, name, empty); err != nil {
						return err
					}
					*p.CORS = append(*p.CORS, rule)
					return nil
				})
			},
		})
	})
	if err != nil {
		return Properties{}, err
	}
	return p, nil
}

func (l *Logging) parse(s *scanner, name string, empty bool) error {
	of := parts{"Version": textElement(&l.Version), "Delete": boolean(&l.Delete), "Read": boolean(&l.Read), "Write": boolean(&l.Write),
		"RetentionPolicy": l.Retention.parse}
	if err := s.record(name, empty, of); err != nil {
		return err
	}
	return require(name, of, "Version", "Delete", "Read", "Write", "RetentionPolicy")
}

func (m *Metrics) parse(s *scanner, name string, empty bool) error {
	var include bool
	of := parts{"Version": textElement(&m.Version), "Enabled": boolean(&m.Enabled), "IncludeAPIs": boolean(&include), "RetentionPolicy": m.Retention.parse}
	if err := s.record(name, empty, of); err != nil {
		return err
	}
	if _, missing := of["IncludeAPIs"]; !missing {
		m.IncludeAPIs = &include
	}
	return require(name, of, "Version", "Enabled", "RetentionPolicy")
}

func (r *Retention) parse(s *scanner, name string, empty bool) error {
	of := parts{"Enabled": boolean(&r.Enabled), "Days": number(&r.Days)}
	if err := s.record(name, empty, of); err != nil {
		return err
	}
	return require(name, of, "Enabled")
}

func (r *CORSRule) parse(s *scanner, name string, empty bool) error {
	of := parts{"AllowedOrigins": textElement(&r.Origins), "AllowedMethods": textElement(&r.Methods), "MaxAgeInSeconds": number(&r.MaxAge),
		"ExposedHeaders": textElement(&r.Exposed), "AllowedHeaders": textElement(&r.Headers)}
	if err := s.record(name, empty, of); err != nil {
		return err
	}
	return require(name, of, "AllowedOrigins", "AllowedMethods", "MaxAgeInSeconds", "ExposedHeaders", "AllowedHeaders")
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
