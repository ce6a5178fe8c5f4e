package emulator

import (
	"cmp"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/millrace/millrace/internal/localengine"
	"github.com/millrace/millrace/internal/queuexml"
)

// analyticsVersion is the only version of logging and metrics.
const analyticsVersion = "1.0"

// Limits of Set Queue Service Properties and of CORS rules.
const (
	maxRetention    = 365 // days
	maxRules        = 5
	maxRulesLength  = 2 << 10 // of all rules together, without the XML
	maxOrigins      = 64
	maxHeaders      = 64 // that are named whole, in each list
	maxPrefixes     = 2  // that end with an asterisk, in each list
	maxOriginLength = 256
)

// getProperties responds to Get Queue Service Properties.
func (c *call) getProperties() *failure {
	p, f := c.properties()
	if f != nil {
		return f
	}
	return c.document(http.StatusOK, queuexml.AppendProperties(c.responseBuffer(), withDefaults(p)))
}

// setProperties responds to Set Queue Service Properties. Omitted properties keep their values.
// Logging and metrics are stored and returned, but have no effect.
func (c *call) setProperties() *failure {
	given, err := queuexml.ParseProperties(c.content())
	if err != nil {
		return invalidDocument(err)
	}
	if f := checkProperties(given); f != nil {
		return f
	}
	p, f := c.properties()
	if f != nil {
		return f
	}
	p.Logging = cmp.Or(given.Logging, p.Logging)
	p.HourMetrics = cmp.Or(given.HourMetrics, p.HourMetrics)
	p.MinuteMetrics = cmp.Or(given.MinuteMetrics, p.MinuteMetrics)
	p.CORS = cmp.Or(given.CORS, p.CORS)
	// Of two concurrent requests that set different properties one wins, as if
	// both had sent all properties.
	if err := c.server.account(strings.Clone(c.account)).SetServiceProperties(c.request.Context(), queuexml.AppendProperties(nil, p)); err != nil {
		return toFailure(err)
	}
	c.status = http.StatusAccepted
	return nil
}

func (s *Server) account(name string) localengine.Account {
	return s.engine.Account(name).(localengine.Account)
}

// properties returns the stored properties; nil fields were never set.
func (c *call) properties() (queuexml.Properties, *failure) {
	stored, err := c.server.account(c.account).ServiceProperties(c.request.Context())
	if err != nil {
		return queuexml.Properties{}, toFailure(err)
	}
	if stored == nil {
		return queuexml.Properties{}, nil
	}
	p, err := queuexml.ParseProperties(stored)
	if err != nil {
		return queuexml.Properties{}, errInternal // we have written it
	}
	return p, nil
}

func withDefaults(p queuexml.Properties) queuexml.Properties {
	p.Logging = cmp.Or(p.Logging, &queuexml.Logging{Version: analyticsVersion})
	p.HourMetrics = cmp.Or(p.HourMetrics, &queuexml.Metrics{Version: analyticsVersion})
	p.MinuteMetrics = cmp.Or(p.MinuteMetrics, &queuexml.Metrics{Version: analyticsVersion})
	p.CORS = cmp.Or(p.CORS, new([]queuexml.CORSRule))
	return p
}

func checkProperties(p queuexml.Properties) *failure {
	if l := p.Logging; l != nil {
		if f := checkAnalytics(l.Version, l.Retention); f != nil {
			return f
		}
	}
	for _, m := range []*queuexml.Metrics{p.HourMetrics, p.MinuteMetrics} {
		if m == nil {
			continue
		}
		if f := checkAnalytics(m.Version, m.Retention); f != nil {
			return f
		}
		if m.Enabled && m.IncludeAPIs == nil {
			return errInvalidXML.with(queuexml.Detail{Name: "Reason", Value: "Enabled metrics must have IncludeAPIs."})
		}
	}
	if p.CORS != nil {
		return checkRules(*p.CORS)
	}
	return nil
}

func checkAnalytics(version string, r queuexml.Retention) *failure {
	if version != analyticsVersion {
		return invalidValue("Version", version, "It must be 1.0.")
	}
	if r.Enabled && (r.Days < 1 || r.Days > maxRetention) {
		return invalidValue("Days", strconv.Itoa(r.Days), "Enabled retention must be for 1 to 365 days.")
	}
	return nil
}

func checkRules(rules []queuexml.CORSRule) *failure {
	if len(rules) > maxRules {
		return errInvalidXML.with(queuexml.Detail{Name: "Reason", Value: "At most five CORS rules are allowed."})
	}
	length := 0
	for _, r := range rules {
		length += len(r.Origins) + len(r.Methods) + len(r.Headers) + len(r.Exposed) + len(strconv.Itoa(r.MaxAge))
		if f := checkRule(r); f != nil {
			return f
		}
	}
	if length > maxRulesLength {
		return errInvalidXML.with(queuexml.Detail{Name: "Reason", Value: "All CORS rules together may have at most 2 KiB, without the XML."})
	}
	return nil
}

func checkRule(r queuexml.CORSRule) *failure {
	origins := splitList(r.Origins)
	if len(origins) == 0 || len(origins) > maxOrigins || slices.ContainsFunc(origins, func(o string) bool { return len(o) > maxOriginLength }) {
		return invalidValue("AllowedOrigins", r.Origins, "It must be *, or 1 to 64 origins of up to 256 characters.")
	}
	methods := splitList(r.Methods)
	if len(methods) == 0 {
		return invalidValue("AllowedMethods", r.Methods, "It must have at least one method.")
	}
	for _, m := range methods {
		switch m {
		case "DELETE", "GET", "HEAD", "MERGE", "OPTIONS", "PATCH", "POST", "PUT":
		default:
			return invalidValue("AllowedMethods", r.Methods, "The methods are DELETE, GET, HEAD, MERGE, OPTIONS, PATCH, POST and PUT.")
		}
	}
	for _, list := range []struct{ name, value string }{{"AllowedHeaders", r.Headers}, {"ExposedHeaders", r.Exposed}} {
		names, prefixes := 0, 0
		for _, h := range splitList(list.value) {
			if len(h) > maxOriginLength || !isVisibleASCII(h) {
				return invalidValue(list.name, list.value, "A header name must have up to 256 visible ASCII characters.")
			}
			if strings.HasSuffix(h, "*") {
				prefixes++
			} else {
				names++
			}
		}
		if names > maxHeaders || prefixes > maxPrefixes {
			return invalidValue(list.name, list.value, "It may have up to 64 names, and two that end with an asterisk.")
		}
	}
	return nil
}

func splitList(list string) []string {
	var out []string
	for item := range strings.SplitSeq(list, ",") {
		if item = strings.TrimSpace(item); item != "" {
			out = append(out, item)
		}
	}
	return out
}

// getStatistics responds to Get Queue Service Stats, which only the secondary location supports.
// Both locations are the same here, so the status is always live.
func (c *call) getStatistics() *failure {
	if !c.secondary {
		return invalidComp("stats")
	}
	return c.document(http.StatusOK, queuexml.AppendStatistics(c.responseBuffer(), "live", time.Now()))
}
