package emulator

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/millrace/millrace/internal/azuritetest"
	"github.com/millrace/millrace/internal/queuexml"
)

// azuriteCell returns Azurite's response to the exchange as a cell of the tables: empty if it is
// the same, a dash if it is not compared.
func (x exchange) azuriteCell() string {
	if !x.comparable() {
		return "–"
	}
	return azuriteResponses[x.name]
}

// comparable reports whether an exchange works with Azurite as the tests start it: without TLS,
// with one account, and without queue names that are being deleted.
func (x exchange) comparable() bool {
	return !x.secure && x.host == "" && (x.account == "" || x.account == "devstoreaccount1-secondary") && !strings.Contains(x.path, "dropped")
}

// TestAzuriteResponses sends the exchanges to Azurite and compares its responses with the tables.
// It does not test our code: Azurite is laxer than the documents in many places, and the tables
// say where.
func TestAzuriteResponses(t *testing.T) {
	connection := azuritetest.ConnectionString(t)
	_, place, _ := strings.Cut(connection, "QueueEndpoint=http://")
	place, _, _ = strings.Cut(place, "/")
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	if a := send(t, transport, (&fixture{names: strings.NewReplacer()}).request(t, place, exchange{verb: "GET", path: "/?comp=list"})); a.header.Get("Server") != azuriteVersion {
		if azuritetest.Required("azurite") {
			t.Fatalf("Azurite is %s, the table is of %s", a.header.Get("Server"), azuriteVersion)
		}
		t.Skipf("NOT COMPARED WITH AZURITE: Azurite is %s, the table is of %s", a.header.Get("Server"), azuriteVersion)
	}
	for x := range all {
		if !x.comparable() {
			continue
		}
		t.Run(x.name, func(t *testing.T) {
			w := azuriteFixture(t, transport, place)
			got := ""
			if a := send(t, transport, w.request(t, place, x)); a.status != x.status || a.header.Get("x-ms-error-code") != x.code {
				got = strings.TrimSpace(fmt.Sprintf("%d %s", a.status, a.header.Get("x-ms-error-code")))
				if a.status >= 400 && a.header.Get("x-ms-error-code") == "" {
					got += " without a code"
				}
			}
			if want := azuriteResponses[x.name]; got != want {
				t.Errorf("Azurite's response: got %q, want %q as in the table", got, want)
			}
		})
	}
}

// azuriteFixture creates the fixture in Azurite.
func azuriteFixture(t *testing.T, transport http.RoundTripper, place string) *fixture {
	t.Helper()
	w := &fixture{names: strings.NewReplacer()}
	set := func(verb, path, body string, header map[string]string) gotResponse {
		t.Helper()
		a := send(t, transport, w.request(t, place, exchange{verb: verb, path: path, body: body, header: header}))
		if a.status >= 300 {
			t.Fatalf("%s %s: %d %s", verb, path, a.status, a.body)
		}
		return a
	}
	for _, name := range between(set("GET", "/?comp=list", "", nil).body, "Name") {
		set("DELETE", "/"+name, "", nil)
	}
	set("PUT", "/?restype=service&comp=properties", settings("<Cors/>"), nil)
	set("PUT", "/orders", "", meta("kind", "test"))
	first := set("POST", "/orders/messages?messagettl=3600", wrap("a &lt;b&gt;&#xD;\n"), nil).body
	set("PUT", "/orders?comp=acl", queuexml.Prolog+acl(storedPolicy("all", "", inHours(1), "raup")+storedPolicy("open", "", "", "r")+
		storedPolicy("over", "", inHours(-1), "r")+storedPolicy("later", inHours(1), inHours(2), "r")), nil)
	set("PUT", "/full", "", nil)
	set("PUT", "/leased", "", nil)
	second := set("POST", "/leased/messages?messagettl=-1", wrap("y"), nil).body
	set("GET", "/leased/messages?visibilitytimeout=3600", "", nil)
	w.names = strings.NewReplacer(
		"{id}", between(first, "MessageId")[0], "{receipt}", url.QueryEscape(between(first, "PopReceipt")[0]),
		"{leased}", between(second, "MessageId")[0], "{stale}", url.QueryEscape(between(second, "PopReceipt")[0]))
	return w
}

// between returns the texts of all elements with the name.
func between(document, name string) []string {
	var texts []string
	for {
		_, rest, ok := strings.Cut(document, "<"+name+">")
		if !ok {
			return texts
		}
		text, rest, _ := strings.Cut(rest, "</"+name+">")
		texts, document = append(texts, text), rest
	}
}

// azuriteVersion is the Server header of the Azurite that azuriteResponses are of.
const azuriteVersion = "Azurite-Queue/3.37.0"

// azuriteResponses are Azurite's responses, status and code, by exchange, where they differ from
// ours.
var azuriteResponses = map[string]string{
	"set properties: nothing":                            "500 without a code",
	"set properties: six rules":                          "202",
	"set properties: no body":                            "500 without a code",
	"set properties: no XML":                             "400 without a code",
	"set properties: unknown element":                    "202",
	"set properties: element twice":                      "202",
	"set properties: logging without version":            "400 without a code",
	"set properties: other version":                      "202",
	"set properties: neither true nor false":             "400 without a code",
	"set properties: 0 days":                             "400 without a code",
	"set properties: 366 days":                           "202",
	"set properties: days no number":                     "400 without a code",
	"set properties: metrics without IncludeAPIs":        "202",
	"set properties: unknown method":                     "202",
	"set properties: no method":                          "400 without a code",
	"set properties: no origin":                          "400 without a code",
	"set properties: long origin":                        "202",
	"set properties: 65 origins":                         "202",
	"set properties: 65 headers":                         "202",
	"set properties: three prefixes":                     "202",
	"set properties: header with a blank":                "202",
	"set properties: age no number":                      "400 without a code",
	"set properties: rule without headers":               "400 without a code",
	"set properties: large rules":                        "202",
	"set properties: on the secondary location":          "500 without a code",
	"properties: verb":                                   "400 without a code",
	"properties: no restype":                             "400 InvalidResourceName",
	"account: no comp":                                   "400 InvalidResourceName",
	"account: unknown comp":                              "400 without a code",
	"stats: verb":                                        "400 without a code",
	"list nothing":                                       "500 without a code",
	"list: no results":                                   "400 without a code",
	"list: results no number":                            "400 without a code",
	"list: bad marker":                                   "200",
	"list: bad include":                                  "400 without a code",
	"list: verb":                                         "400 without a code",
	"create: slash in the name":                          "400 OutOfRangeInput",
	"create: bad metadata name":                          "201",
	"create: empty metadata name":                        "201",
	"create: large metadata":                             "201",
	"create: verb":                                       "400 without a code",
	"set metadata: bad":                                  "204",
	"metadata: verb":                                     "204",
	"set ACL: policy without fields":                     "400 without a code",
	"set ACL: long id":                                   "204",
	"set ACL: empty id":                                  "400 without a code",
	"set ACL: no id":                                     "400 without a code",
	"set ACL: id twice":                                  "204",
	"set ACL: other letter":                              "400 InvalidXmlDocument",
	"set ACL: letter twice":                              "204",
	"set ACL: start no time":                             "204",
	"set ACL: expiry no time":                            "204",
	"set ACL: no XML":                                    "400 without a code",
	"set ACL: other document":                            "204",
	"set ACL: large body":                                "204",
	"set ACL: on the secondary location":                 "204",
	"ACL: verb":                                          "204",
	"queue: unknown comp":                                "400 without a code",
	"put: TTL -2":                                        "400 without a code",
	"put: delay as long as the default TTL":              "201",
	"put: parameter twice":                               "403 AuthenticationFailed",
	"put: large body":                                    "201",
	"put: no XML":                                        "400 without a code",
	"put: DTD":                                           "201",
	"put: no text":                                       "400 InvalidXmlDocument",
	"put: control character":                             "400 without a code",
	"put: other MD5":                                     "201",
	"put: bad MD5":                                       "201",
	"put: no length":                                     "201",
	"get: 0":                                             "400 without a code",
	"get: no number":                                     "400 without a code",
	"peek: neither true nor false":                       "200",
	"messages: verb":                                     "400 without a code",
	"update: no receipt":                                 "400 without a code",
	"update: no visibility":                              "400 without a code",
	"update: past the expiry":                            "204",
	"update without body: past the expiry":               "204",
	"update: no XML":                                     "400 without a code",
	"message: verb":                                      "400 without a code",
	"delete: no receipt":                                 "400 without a code",
	"update: malformed receipt":                          "400 PopReceiptMismatch",
	"delete: malformed receipt":                          "400 PopReceiptMismatch",
	"delete: receipt and more":                           "400 PopReceiptMismatch",
	"delete: malformed receipt, and gone":                "404 MessageNotFound",
	"delete: receipt that was not escaped":               "400 PopReceiptMismatch",
	"delete: empty receipt":                              "400 PopReceiptMismatch",
	"address: too long":                                  "400 without a code",
	"address: other resource":                            "200",
	"address: empty queue":                               "400 InvalidResourceName",
	"parameter: bad escape":                              "500 without a code",
	"parameter: timeout":                                 "200",
	"version: too old":                                   "200",
	"version: too new":                                   "200",
	"version: no date":                                   "200",
	"version: missing":                                   "403 AuthenticationFailed",
	"secondary: get":                                     "200",
	"secondary: put":                                     "201",
	"secondary: update":                                  "204",
	"secondary: delete":                                  "204",
	"secondary: create":                                  "201",
	"no scheme":                                          "403 AuthenticationFailed",
	"no signature":                                       "403 AuthenticationFailed",
	"signature not in Base64":                            "403 AuthenticationFailed",
	"account SAS: set properties":                        "500 without a code",
	"account SAS: update":                                "403 AuthorizationResourceTypeMismatch",
	"account SAS: delete":                                "403 AuthorizationResourceTypeMismatch",
	"account SAS: clear":                                 "403 AuthorizationResourceTypeMismatch",
	"account SAS: encryption scope":                      "403 AuthenticationFailed",
	"account SAS: version too old":                       "200",
	"account SAS: version too new":                       "200",
	"account SAS: protocol in a version that is too old": "200",
	"account SAS: protocol in a version that is too new": "200",
	"account SAS: bad api-version":                       "200",
	"account SAS: expiry no time":                        "200",
	"account SAS: start no time":                         "200",
	"account SAS: from another address":                  "200",
	"account SAS: no address":                            "200",
	"account SAS: range of two kinds":                    "200",
	"account SAS: unknown protocol":                      "200",
	"account SAS: parameter twice":                       "403 AuthenticationFailed",
	"account SAS: line feed":                             "200",
	"account SAS: put on the secondary location":         "201",
	"service SAS: from another address":                  "200",
	"service SAS: clear":                                 "403 AuthorizationPermissionMismatch",
	"service SAS: set metadata":                          "403 AuthorizationPermissionMismatch",
	"service SAS: create":                                "403 AuthorizationPermissionMismatch",
	"service SAS: drop":                                  "403 AuthorizationPermissionMismatch",
	"service SAS: ACL":                                   "403 AuthorizationPermissionMismatch",
	"policy without expiry":                              "403 AuthenticationFailed",
	"policy: other permission":                           "403 AuthenticationFailed",
	"stats: of a queue":                                  "200",
	"origin without rules":                               "200",
	"page: fetch":                                        "200",
	"page: own origin, but from elsewhere":               "200",
	"page: fetch of another port of this machine":        "200",
	"page: own host over TLS":                            "200",
	"page: fetch without CORS":                           "201",
	"page: form":                                         "201",
	"page: form of an opaque origin":                     "201",
	"page: image":                                        "200",
	"page: image on another port of this machine":        "200",
	"page: link to a queue":                              "200",
	"page: site in upper case":                           "200",
	"page: empty site":                                   "200",
	"page: unknown site":                                 "200",
	"page: site twice":                                   "200",
	"page: WebSocket":                                    "200",
	"page: preflight without origin":                     "400 InvalidHeaderValue",
	"line feed in the value of a parameter":              "200",
	"unknown parameter twice":                            "403 AuthenticationFailed",
	"version twice":                                      "403 AuthenticationFailed",
	"metadata twice":                                     "403 AuthenticationFailed",
	"service SAS: line feed in the queue's name":         "400 InvalidResourceName",
	"anonymous":                                          "403 AuthenticationFailed",
	"anonymous: in an older version":                     "403 AuthenticationFailed",
	"anonymous: without version":                         "403 AuthenticationFailed",
	"anonymous: version too new":                         "403 AuthenticationFailed",
	"authentication comes before names":                  "400 OutOfRangeInput",
}
