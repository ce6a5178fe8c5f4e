package queuexml

import (
	"encoding/xml"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

var text = rapid.Map(rapid.String(), legal)

func TestPoliciesReadBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var want []Policy
		for range rapid.IntRange(0, 8).Draw(t, "count") {
			want = append(want, Policy{ID: text.Draw(t, "id"), Start: text.Draw(t, "start"), Expiry: text.Draw(t, "expiry"), Permission: text.Draw(t, "permission")})
		}
		doc := AppendPolicies(nil, want)
		got, err := ParsePolicies(doc)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("written and read: got %+v, %v; want %+v\n%s", got, err, want, doc)
		}
		var other struct {
			Policies []struct {
				ID     string `xml:"Id"`
				Expiry string `xml:"AccessPolicy>Expiry"`
			} `xml:"SignedIdentifier"`
		}
		if err := xml.Unmarshal(doc, &other); err != nil || len(other.Policies) != len(want) {
			t.Fatalf("encoding/xml: got %+v, %v; want %d policies", other, err, len(want))
		}
		for i, p := range other.Policies {
			if p.ID != want[i].ID || p.Expiry != want[i].Expiry {
				t.Fatalf("encoding/xml: got %+v, want %+v", p, want[i])
			}
		}
	})
}

func drawMetrics(t *rapid.T) *Metrics {
	if rapid.Bool().Draw(t, "left out") {
		return nil
	}
	m := &Metrics{Version: text.Draw(t, "version"), Enabled: rapid.Bool().Draw(t, "enabled"), Retention: drawRetention(t)}
	if rapid.Bool().Draw(t, "says") {
		include := rapid.Bool().Draw(t, "include")
		m.IncludeAPIs = &include
	}
	return m
}

func drawRetention(t *rapid.T) Retention {
	return Retention{Enabled: rapid.Bool().Draw(t, "enabled"), Days: rapid.IntRange(0, 1<<31-1).Draw(t, "days")}
}

func TestPropertiesReadBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := Properties{HourMetrics: drawMetrics(t), MinuteMetrics: drawMetrics(t)}
		if rapid.Bool().Draw(t, "logging") {
			want.Logging = &Logging{Version: text.Draw(t, "version"), Delete: rapid.Bool().Draw(t, "delete"), Read: rapid.Bool().Draw(t, "read"),
				Write: rapid.Bool().Draw(t, "write"), Retention: drawRetention(t)}
		}
		if rapid.Bool().Draw(t, "rules") {
			want.CORS = new([]CORSRule)
			for range rapid.IntRange(0, 3).Draw(t, "count") {
				*want.CORS = append(*want.CORS, CORSRule{Origins: text.Draw(t, "origins"), Methods: text.Draw(t, "methods"), Headers: text.Draw(t, "headers"),
					Exposed: text.Draw(t, "exposed"), MaxAge: rapid.IntRange(0, 1<<31-1).Draw(t, "age")})
			}
		}
		doc := AppendProperties(nil, want)
		if got, err := ParseProperties(doc); err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("written and read: got %+v, %v; want %+v\n%s", got, err, want, doc)
		}
		if err := xml.Unmarshal(doc, new(struct{ XMLName xml.Name })); err != nil {
			t.Fatal(err)
		}
	})
}

func TestRecordsRefused(t *testing.T) {
	policies := func(doc string) error { _, err := ParsePolicies([]byte(doc)); return err }
	properties := func(doc string) error { _, err := ParseProperties([]byte(doc)); return err }
	key := func(doc string) error { _, err := ParseKeyInfo([]byte(doc)); return err }
	for _, c := range []struct {
		parse func(string) error
		doc   string
		want  error
	}{
		{policies, "", ErrMalformed},
		{policies, "<SignedIdentifiers>", ErrMalformed},
		{policies, "<SignedIdentifiers/>x", ErrMalformed},
		{policies, "<SignedIdentifiers>x</SignedIdentifiers>", ErrMalformed},
		{policies, "<Other/>", ErrUnexpected},
		{policies, "<SignedIdentifiers><Other/></SignedIdentifiers>", ErrUnexpected},
		{policies, "<SignedIdentifiers><SignedIdentifier/></SignedIdentifiers>", ErrUnexpected},
		{policies, "<SignedIdentifiers><SignedIdentifier><Id>a</Id><Id>b</Id></SignedIdentifier></SignedIdentifiers>", ErrUnexpected},
		{policies, "<SignedIdentifiers><SignedIdentifier><Id><b/></Id></SignedIdentifier></SignedIdentifiers>", ErrUnexpected},
		{policies, "<SignedIdentifiers><SignedIdentifier><Id>a</Id></Other></SignedIdentifiers>", ErrMalformed},
		{properties, "<StorageServiceProperties><Cors><CorsRule/></Cors></StorageServiceProperties>", ErrUnexpected},
		{properties, "<StorageServiceProperties><Logging/></StorageServiceProperties>", ErrUnexpected},
		{properties, "<StorageServiceProperties><HourMetrics><Version>1.0</Version></HourMetrics></StorageServiceProperties>", ErrUnexpected},
		{properties, "<StorageServiceProperties><HourMetrics><Enabled>TRUE</Enabled></HourMetrics></StorageServiceProperties>", ErrValue},
		{properties, "<StorageServiceProperties><HourMetrics><RetentionPolicy><Days>-1</Days></RetentionPolicy></HourMetrics></StorageServiceProperties>", ErrValue},
		{properties, "<StorageServiceProperties><HourMetrics><RetentionPolicy><Days>2147483648</Days></RetentionPolicy></HourMetrics></StorageServiceProperties>", ErrValue},
		{properties, "<StorageServiceProperties><HourMetrics><RetentionPolicy/></HourMetrics></StorageServiceProperties>", ErrUnexpected},
		{key, "<KeyInfo><Start>a</Start></KeyInfo>", ErrUnexpected},
		{key, "<KeyInfo><Expiry>a</Expiry></KeyInfo><KeyInfo/>", ErrMalformed},
	} {
		if err := c.parse(c.doc); !errors.Is(err, c.want) {
			t.Errorf("%s: got %v, want %v", c.doc, err, c.want)
		}
	}
}

func TestParseKeyInfo(t *testing.T) {
	got, err := ParseKeyInfo([]byte("\uFEFF" + Prolog + "<!-- a --><KeyInfo >\n<Expiry>b&amp;</Expiry> <DelegatedUserTid><![CDATA[c]]></DelegatedUserTid><Start/>\n</KeyInfo >\n"))
	if want := (KeyInfo{Expiry: "b&", DelegatedTenant: "c"}); err != nil || got != want {
		t.Errorf("got %+v, %v; want %+v", got, err, want)
	}
}

func TestAppendDelegationKey(t *testing.T) {
	got := string(AppendDelegationKey(nil, DelegationKey{Object: "<o>", Tenant: "t", Start: "s", Expiry: "e", Service: "q", Version: "v", Value: "a+b="}))
	want := Prolog + "<UserDelegationKey><SignedOid>&lt;o&gt;</SignedOid><SignedTid>t</SignedTid><SignedStart>s</SignedStart><SignedExpiry>e</SignedExpiry>" +
		"<SignedService>q</SignedService><SignedVersion>v</SignedVersion><Value>a+b=</Value></UserDelegationKey>"
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if got := string(AppendDelegationKey(nil, DelegationKey{DelegatedTenant: "d"})); !strings.Contains(got, "<SignedDelegatedUserTid>d</SignedDelegatedUserTid>") {
		t.Errorf("got %s, want the tenant of the delegated user in it", got)
	}
}

func TestAppendStatistics(t *testing.T) {
	got := string(AppendStatistics(nil, "live", time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)))
	if want := Prolog + "<StorageServiceStats><GeoReplication><Status>live</Status><LastSyncTime>Fri, 02 Jan 2026 03:04:05 GMT</LastSyncTime></GeoReplication></StorageServiceStats>"; got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// FuzzRecords parses arbitrary documents as each kind of record. encoding/xml finds every accepted
// document well formed, and it stays the same when it is written and read again.
func FuzzRecords(f *testing.F) {
	f.Add(AppendPolicies(nil, []Policy{{ID: "a", Start: "b"}, {ID: "c"}}))
	include := true
	f.Add(AppendProperties(nil, Properties{Logging: &Logging{Version: "1.0"}, HourMetrics: &Metrics{IncludeAPIs: &include}, CORS: &[]CORSRule{{Origins: "*"}}}))
	f.Add([]byte("<KeyInfo><Expiry>a</Expiry></KeyInfo>"))
	f.Fuzz(func(t *testing.T, doc []byte) {
		check := func(err error, again func() error) {
			switch {
			case err == nil:
				if err := xml.Unmarshal(doc, new(struct{ XMLName xml.Name })); err != nil {
					t.Errorf("accepted document: got the error %v of encoding/xml, want none", err)
				}
				if err := again(); err != nil {
					t.Errorf("written and read again: got the error %v, want none", err)
				}
			case !errors.Is(err, ErrMalformed) && !errors.Is(err, ErrUnexpected) && !errors.Is(err, ErrValue):
				t.Errorf("got error %v, want ErrMalformed, ErrUnexpected or ErrValue", err)
			}
		}
		policies, err := ParsePolicies(doc)
		check(err, func() error {
			again, err := ParsePolicies(AppendPolicies(nil, policies))
			if !reflect.DeepEqual(again, policies) {
				t.Errorf("written and read again: got %+v, want %+v", again, policies)
			}
			return err
		})
		properties, err := ParseProperties(doc)
		check(err, func() error {
			again, err := ParseProperties(AppendProperties(nil, properties))
			if !reflect.DeepEqual(again, properties) {
				t.Errorf("written and read again: got %+v, want %+v", again, properties)
			}
			return err
		})
		_, err = ParseKeyInfo(doc)
		check(err, func() error { return nil })
	})
}
