package emulator

import (
	"bytes"
	"context"
	"crypto/md5"
	"encoding/base64"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/localqueue"
)

// exchange is one request and what must come of it. In path and in body, the
// names in braces stand for what world has.
type exchange struct {
	name   string
	verb   string
	path   string // behind the account
	header map[string]string
	body   string
	change func(*http.Request) // after signing
	status int
	code   string // x-ms-error-code; "" on success
	has    string // a regular expression for the body
	back   map[string]string
}

const anyDate = `[A-Z][a-z]{2}, \d\d [A-Z][a-z]{2} \d{4} \d\d:\d\d:\d\d GMT`

func wrap(text string) string {
	return "<QueueMessage><MessageText>" + text + "</MessageText></QueueMessage>"
}

func meta(pairs ...string) map[string]string {
	m := map[string]string{}
	for i := 0; i < len(pairs); i += 2 {
		m["x-ms-meta-"+pairs[i]] = pairs[i+1]
	}
	return m
}

// exchanges are each operation with each of its outcomes, against the documents
// of the Queue service.
var exchanges = []exchange{
	// List Queues
	{name: "list", verb: "GET", path: "?comp=list", status: 200,
		has: `<EnumerationResults ServiceEndpoint="http://[^"]+/devstoreaccount1"><Queues><Queue><Name>full</Name></Queue><Queue><Name>leased</Name></Queue><Queue><Name>orders</Name></Queue></Queues><NextMarker></NextMarker></EnumerationResults>$`},
	{name: "list with a slash", verb: "GET", path: "/?comp=list", status: 200, has: `<Name>orders</Name>`},
	{name: "list with metadata", verb: "GET", path: "?comp=list&include=metadata&prefix=ord&maxresults=1", status: 200,
		has: `<Prefix>ord</Prefix><MaxResults>1</MaxResults><Queues><Queue><Name>orders</Name><Metadata><kind>test</kind></Metadata></Queue></Queues><NextMarker></NextMarker>`},
	{name: "list a page", verb: "GET", path: "?comp=list&maxresults=1", status: 200, has: `<NextMarker>/devstoreaccount1/leased</NextMarker>`},
	{name: "list the next page", verb: "GET", path: "?comp=list&maxresults=1&marker=%2Fdevstoreaccount1%2Fleased", status: 200,
		has: `<Marker>/devstoreaccount1/leased</Marker><MaxResults>1</MaxResults><Queues><Queue><Name>leased</Name></Queue></Queues><NextMarker>/devstoreaccount1/orders</NextMarker>`},
	{name: "list nothing", verb: "GET", path: "?comp=list&prefix=%3C%00", status: 200, has: "<Prefix>&lt;\uFFFD</Prefix><Queues></Queues>"},
	{name: "list more than a page has", verb: "GET", path: "?comp=list&maxresults=5001", status: 200},
	{name: "list: no results", verb: "GET", path: "?comp=list&maxresults=0", status: 400, code: "OutOfRangeQueryParameterValue", has: `<MinimumAllowed>1</MinimumAllowed>`},
	{name: "list: results no number", verb: "GET", path: "?comp=list&maxresults=x", status: 400, code: "InvalidQueryParameterValue"},
	{name: "list: bad marker", verb: "GET", path: "?comp=list&marker=x", status: 400, code: "InvalidMarker"},
	{name: "list: bad include", verb: "GET", path: "?comp=list&include=x", status: 400, code: "InvalidQueryParameterValue"},
	{name: "list: verb", verb: "PUT", path: "?comp=list", status: 405, code: "UnsupportedHttpVerb", back: map[string]string{"Allow": "GET"}},
	{name: "account: no comp", verb: "GET", path: "", status: 400, code: "UnsupportedQueryParameter"},
	{name: "account: properties are not served yet", verb: "GET", path: "?comp=properties&restype=service", status: 400, code: "UnsupportedQueryParameter"},

	// Create Queue
	{name: "create", verb: "PUT", path: "/new", status: 201},
	{name: "create with metadata", verb: "PUT", path: "/new", header: meta("a", "1"), status: 201},
	{name: "create again", verb: "PUT", path: "/orders", header: meta("Kind", "test"), status: 204},
	{name: "create: other metadata", verb: "PUT", path: "/orders", header: meta("kind", "Test"), status: 409, code: "QueueAlreadyExists"},
	{name: "create: no metadata", verb: "PUT", path: "/orders", status: 409, code: "QueueAlreadyExists"},
	{name: "create: being deleted", verb: "PUT", path: "/dropped", status: 409, code: "QueueBeingDeleted"},
	{name: "create: short name", verb: "PUT", path: "/ab", status: 400, code: "OutOfRangeInput"},
	{name: "create: long name", verb: "PUT", path: "/" + strings.Repeat("a", 64), status: 400, code: "OutOfRangeInput"},
	{name: "create: upper case", verb: "PUT", path: "/New", status: 400, code: "InvalidResourceName"},
	{name: "create: slash in the name", verb: "PUT", path: "/a%2Fbc", status: 400, code: "InvalidResourceName"},
	{name: "create: double hyphen", verb: "PUT", path: "/a--b", status: 400, code: "InvalidResourceName"},
	{name: "create: bad metadata name", verb: "PUT", path: "/new", header: meta("1-a", "x"), status: 400, code: "InvalidMetadata"},
	{name: "create: empty metadata name", verb: "PUT", path: "/new", header: meta("", "x"), status: 400, code: "EmptyMetadataKey"},
	{name: "create: large metadata", verb: "PUT", path: "/new", header: meta("a", strings.Repeat("x", 8192)), status: 400, code: "MetadataTooLarge", has: `<MaxLimit>8192</MaxLimit>`},
	{name: "create: verb", verb: "POST", path: "/new", status: 405, code: "UnsupportedHttpVerb", back: map[string]string{"Allow": "DELETE, PUT"}},
	{name: "queue: unknown comp", verb: "GET", path: "/orders?comp=acl", status: 400, code: "UnsupportedQueryParameter"},

	// Delete Queue
	{name: "drop", verb: "DELETE", path: "/orders", status: 204},
	{name: "drop: missing", verb: "DELETE", path: "/missing", status: 404, code: "QueueNotFound"},
	{name: "drop: twice", verb: "DELETE", path: "/dropped", status: 404, code: "QueueNotFound"},

	// Get and Set Queue Metadata
	{name: "get metadata", verb: "GET", path: "/orders?comp=metadata", status: 200, has: `^$`,
		back: map[string]string{"X-Ms-Approximate-Messages-Count": "1", "X-Ms-Meta-Kind": "test"}},
	{name: "head metadata", verb: "HEAD", path: "/orders?comp=metadata", status: 200, back: map[string]string{"X-Ms-Approximate-Messages-Count": "1"}},
	{name: "get metadata: missing", verb: "GET", path: "/missing?comp=metadata", status: 404, code: "QueueNotFound"},
	{name: "head metadata: missing", verb: "HEAD", path: "/missing?comp=metadata", status: 404, code: "QueueNotFound"},
	{name: "set metadata", verb: "PUT", path: "/orders?comp=metadata", header: meta("a", "1"), status: 204},
	{name: "set no metadata", verb: "PUT", path: "/orders?comp=metadata", status: 204},
	{name: "set metadata: missing", verb: "PUT", path: "/missing?comp=metadata", status: 404, code: "QueueNotFound"},
	{name: "set metadata: bad", verb: "PUT", path: "/orders?comp=metadata", header: meta("a.b", "1"), status: 400, code: "InvalidMetadata"},
	{name: "metadata: verb", verb: "DELETE", path: "/orders?comp=metadata", status: 405, code: "UnsupportedHttpVerb", back: map[string]string{"Allow": "GET, HEAD, PUT"}},

	// Put Message
	{name: "put", verb: "POST", path: "/orders/messages", body: wrap("hello"), status: 201,
		has: `^<\?xml version="1.0" encoding="utf-8"\?><QueueMessagesList><QueueMessage><MessageId>[0-9a-f-]{36}</MessageId><InsertionTime>` + anyDate + `</InsertionTime><ExpirationTime>` + anyDate + `</ExpirationTime><PopReceipt>[A-Za-z0-9+/]{22}==</PopReceipt><TimeNextVisible>` + anyDate + `</TimeNextVisible></QueueMessage></QueueMessagesList>$`},
	{name: "put forever", verb: "POST", path: "/orders/messages?messagettl=-1&visibilitytimeout=604800", body: wrap(""), status: 201, has: `<ExpirationTime>Fri, 31 Dec 9999 23:59:59 GMT</ExpirationTime>`},
	{name: "put for long", verb: "POST", path: "/orders/messages?messagettl=2147483647", body: wrap("x"), status: 201},
	{name: "put the largest", verb: "POST", path: "/orders/messages", body: wrap(strings.Repeat("x", 65_536)), status: 201},
	{name: "put the most markup", verb: "POST", path: "/orders/messages", body: wrap(strings.Repeat("&lt;", 32_000)), status: 201},
	{name: "put with MD5", verb: "POST", path: "/orders/messages", body: wrap("x"), header: map[string]string{"Content-MD5": sumMD5(wrap("x"))}, status: 201},
	{name: "put: TTL 0", verb: "POST", path: "/orders/messages?messagettl=0", body: wrap("x"), status: 400, code: "InvalidQueryParameterValue", has: `<QueryParameterName>messagettl</QueryParameterName><QueryParameterValue>0</QueryParameterValue><Reason>`},
	{name: "put: TTL -2", verb: "POST", path: "/orders/messages?messagettl=-2", body: wrap("x"), status: 400, code: "InvalidQueryParameterValue"},
	{name: "put: TTL too long", verb: "POST", path: "/orders/messages?messagettl=2147483648", body: wrap("x"), status: 400, code: "OutOfRangeQueryParameterValue"},
	{name: "put: delay too long", verb: "POST", path: "/orders/messages?messagettl=-1&visibilitytimeout=604801", body: wrap("x"), status: 400, code: "OutOfRangeQueryParameterValue", has: `<MaximumAllowed>604800</MaximumAllowed>`},
	{name: "put: delay negative", verb: "POST", path: "/orders/messages?visibilitytimeout=-1", body: wrap("x"), status: 400, code: "OutOfRangeQueryParameterValue"},
	{name: "put: delay as long as TTL", verb: "POST", path: "/orders/messages?messagettl=5&visibilitytimeout=5", body: wrap("x"), status: 400, code: "InvalidQueryParameterValue"},
	{name: "put: delay as long as the default TTL", verb: "POST", path: "/orders/messages?visibilitytimeout=604800", body: wrap("x"), status: 400, code: "InvalidQueryParameterValue"},
	{name: "put: parameter twice", verb: "POST", path: "/orders/messages?messagettl=5&messagettl=6", body: wrap("x"), status: 400, code: "InvalidQueryParameterValue"},
	{name: "put: large text", verb: "POST", path: "/orders/messages", body: wrap(strings.Repeat("x", 65_537)), status: 413, code: "RequestBodyTooLarge", has: `<MaxLimit>65536</MaxLimit>`},
	{name: "put: large body", verb: "POST", path: "/orders/messages", body: wrap(strings.Repeat("&#34;", 30_000)), status: 413, code: "RequestBodyTooLarge", has: `<MaxLimit>131584</MaxLimit>`},
	{name: "put: no body", verb: "POST", path: "/orders/messages", status: 400, code: "InvalidXmlDocument"},
	{name: "put: no XML", verb: "POST", path: "/orders/messages", body: "hello", status: 400, code: "InvalidXmlDocument"},
	{name: "put: DTD", verb: "POST", path: "/orders/messages", body: "<!DOCTYPE QueueMessage>" + wrap("x"), status: 400, code: "InvalidXmlDocument"},
	{name: "put: no text", verb: "POST", path: "/orders/messages", body: "<QueueMessage/>", status: 400, code: "InvalidXmlNodeValue"},
	{name: "put: control character", verb: "POST", path: "/orders/messages", body: wrap("&#0;"), status: 400, code: "InvalidXmlDocument"},
	{name: "put: other MD5", verb: "POST", path: "/orders/messages", body: wrap("x"), header: map[string]string{"Content-MD5": sumMD5("y")}, status: 400, code: "Md5Mismatch"},
	{name: "put: bad MD5", verb: "POST", path: "/orders/messages", body: wrap("x"), header: map[string]string{"Content-MD5": "eA=="}, status: 400, code: "InvalidMd5"},
	{name: "put: missing queue", verb: "POST", path: "/missing/messages", body: wrap("x"), status: 404, code: "QueueNotFound"},
	{name: "put: dropped queue", verb: "POST", path: "/dropped/messages", body: wrap("x"), status: 404, code: "QueueNotFound"},
	{name: "put: bad queue name", verb: "POST", path: "/Orders/messages", body: wrap("x"), status: 400, code: "InvalidResourceName"},
	{name: "put: no length", verb: "POST", path: "/orders/messages", body: wrap("x"), status: 411, code: "MissingContentLengthHeader",
		change: func(r *http.Request) { r.ContentLength = -1; sign(r) }},

	// Get Messages
	{name: "get", verb: "GET", path: "/orders/messages", status: 200,
		has: `<QueueMessage><MessageId>{id}</MessageId><InsertionTime>` + anyDate + `</InsertionTime><ExpirationTime>` + anyDate + `</ExpirationTime><PopReceipt>[A-Za-z0-9+/]{22}==</PopReceipt><TimeNextVisible>` + anyDate + `</TimeNextVisible><DequeueCount>1</DequeueCount><MessageText>a &lt;b&gt;&#xD;\n</MessageText></QueueMessage>`},
	{name: "get many", verb: "GET", path: "/full/messages?numofmessages=32&visibilitytimeout=604800&peekonly=false", status: 200, has: `(<QueueMessage>.*){32}`},
	{name: "get none", verb: "GET", path: "/leased/messages?numofmessages=32", status: 200, has: `<QueueMessagesList></QueueMessagesList>$`},
	{name: "get: 0", verb: "GET", path: "/orders/messages?numofmessages=0", status: 400, code: "OutOfRangeQueryParameterValue"},
	{name: "get: 33", verb: "GET", path: "/orders/messages?numofmessages=33", status: 400, code: "OutOfRangeQueryParameterValue", has: `<MaximumAllowed>32</MaximumAllowed>`},
	{name: "get: no number", verb: "GET", path: "/orders/messages?numofmessages=abc", status: 400, code: "InvalidQueryParameterValue"},
	{name: "get: visibility 0", verb: "GET", path: "/orders/messages?visibilitytimeout=0", status: 400, code: "OutOfRangeQueryParameterValue", has: `<MinimumAllowed>1</MinimumAllowed>`},
	{name: "get: visibility too long", verb: "GET", path: "/orders/messages?visibilitytimeout=604801", status: 400, code: "OutOfRangeQueryParameterValue"},
	{name: "get: huge number", verb: "GET", path: "/orders/messages?visibilitytimeout=99999999999999999999", status: 400, code: "InvalidQueryParameterValue"},
	{name: "get: missing queue", verb: "GET", path: "/missing/messages", status: 404, code: "QueueNotFound"},

	// Peek Messages
	{name: "peek", verb: "GET", path: "/orders/messages?peekonly=true&numofmessages=32", status: 200,
		has: `<QueueMessagesList><QueueMessage><MessageId>{id}</MessageId><InsertionTime>` + anyDate + `</InsertionTime><ExpirationTime>` + anyDate + `</ExpirationTime><DequeueCount>0</DequeueCount><MessageText>a &lt;b&gt;&#xD;\n</MessageText></QueueMessage></QueueMessagesList>`},
	{name: "peek: 33", verb: "GET", path: "/orders/messages?peekonly=true&numofmessages=33", status: 400, code: "OutOfRangeQueryParameterValue"},
	{name: "peek: neither true nor false", verb: "GET", path: "/orders/messages?peekonly=x", status: 400, code: "InvalidQueryParameterValue"},
	{name: "peek: missing queue", verb: "GET", path: "/missing/messages?peekonly=true", status: 404, code: "QueueNotFound"},

	// Clear Messages
	{name: "clear", verb: "DELETE", path: "/full/messages", status: 204},
	{name: "clear: missing queue", verb: "DELETE", path: "/missing/messages", status: 404, code: "QueueNotFound"},
	{name: "messages: verb", verb: "PUT", path: "/orders/messages", status: 405, code: "UnsupportedHttpVerb", back: map[string]string{"Allow": "DELETE, GET, POST"}},

	// Update Message
	{name: "update", verb: "PUT", path: "/orders/messages/{id}?popreceipt={receipt}&visibilitytimeout=0", body: wrap("new"), status: 204,
		back: map[string]string{"X-Ms-Popreceipt": `^[A-Za-z0-9+/]{22}==$`, "X-Ms-Time-Next-Visible": "^" + anyDate + "$"}},
	{name: "update without body", verb: "PUT", path: "/orders/messages/{id}?popreceipt={receipt}&visibilitytimeout=60", status: 204},
	{name: "update: no receipt", verb: "PUT", path: "/orders/messages/{id}?visibilitytimeout=0", body: wrap("new"), status: 400, code: "MissingRequiredQueryParameter", has: `<QueryParameterName>popreceipt</QueryParameterName>`},
	{name: "update: no visibility", verb: "PUT", path: "/orders/messages/{id}?popreceipt={receipt}", body: wrap("new"), status: 400, code: "MissingRequiredQueryParameter", has: `<QueryParameterName>visibilitytimeout</QueryParameterName>`},
	{name: "update: visibility too long", verb: "PUT", path: "/orders/messages/{id}?popreceipt={receipt}&visibilitytimeout=604801", body: wrap("new"), status: 400, code: "OutOfRangeQueryParameterValue"},
	{name: "update: past the expiry", verb: "PUT", path: "/orders/messages/{id}?popreceipt={receipt}&visibilitytimeout=3601", body: wrap("new"), status: 400, code: "OutOfRangeQueryParameterValue", has: `The message expires before that`},
	{name: "update without body: past the expiry", verb: "PUT", path: "/orders/messages/{id}?popreceipt={receipt}&visibilitytimeout=3601", status: 400, code: "OutOfRangeQueryParameterValue"},
	{name: "update: no XML", verb: "PUT", path: "/orders/messages/{id}?popreceipt={receipt}&visibilitytimeout=0", body: "new", status: 400, code: "InvalidXmlDocument"},
	{name: "update: large text", verb: "PUT", path: "/orders/messages/{id}?popreceipt={receipt}&visibilitytimeout=0", body: wrap(strings.Repeat("x", 65_537)), status: 413, code: "RequestBodyTooLarge"},
	{name: "update: stale receipt", verb: "PUT", path: "/leased/messages/{leased}?popreceipt={stale}&visibilitytimeout=0", body: wrap("new"), status: 400, code: "PopReceiptMismatch"},
	{name: "update: malformed receipt", verb: "PUT", path: "/leased/messages/{leased}?popreceipt=x&visibilitytimeout=0", body: wrap("new"), status: 400, code: "PopReceiptMismatch"},
	{name: "update: gone", verb: "PUT", path: "/orders/messages/gone?popreceipt={receipt}&visibilitytimeout=0", body: wrap("new"), status: 404, code: "MessageNotFound"},
	{name: "update: missing queue", verb: "PUT", path: "/missing/messages/{id}?popreceipt={receipt}&visibilitytimeout=0", body: wrap("new"), status: 404, code: "QueueNotFound"},
	{name: "message: verb", verb: "GET", path: "/orders/messages/{id}", status: 405, code: "UnsupportedHttpVerb", back: map[string]string{"Allow": "DELETE, PUT"}},

	// Delete Message
	{name: "delete", verb: "DELETE", path: "/orders/messages/{id}?popreceipt={receipt}&timeout=30", status: 204},
	{name: "delete: no receipt", verb: "DELETE", path: "/orders/messages/{id}", status: 400, code: "MissingRequiredQueryParameter"},
	{name: "delete: empty receipt", verb: "DELETE", path: "/orders/messages/{id}?popreceipt=", status: 400, code: "MissingRequiredQueryParameter"},
	{name: "delete: stale receipt", verb: "DELETE", path: "/leased/messages/{leased}?popreceipt={stale}", status: 400, code: "PopReceiptMismatch"},
	{name: "delete: gone", verb: "DELETE", path: "/orders/messages/gone?popreceipt={receipt}", status: 404, code: "MessageNotFound"},
	{name: "delete: slashes in the id", verb: "DELETE", path: "/orders/messages/%2F..%2F?popreceipt={receipt}", status: 404, code: "MessageNotFound"},
	{name: "delete: missing queue", verb: "DELETE", path: "/missing/messages/{id}?popreceipt={receipt}", status: 404, code: "QueueNotFound"},
	{name: "delete: other queue", verb: "DELETE", path: "/leased/messages/{id}?popreceipt={receipt}", status: 404, code: "MessageNotFound"},

	// Addresses, parameters and headers of all operations
	{name: "address: too long", verb: "GET", path: "/orders/messages/a/b", status: 400, code: "InvalidUri"},
	{name: "address: other resource", verb: "GET", path: "/orders/things", status: 400, code: "InvalidUri"},
	{name: "address: empty queue", verb: "GET", path: "//messages", status: 400, code: "InvalidUri"},
	{name: "parameter: bad escape", verb: "GET", path: "/orders/messages?numofmessages=%zz", status: 400, code: "InvalidQueryParameterValue"},
	{name: "parameter: timeout", verb: "GET", path: "/orders/messages?timeout=0", status: 400, code: "OutOfRangeQueryParameterValue"},
	{name: "parameter: unknown", verb: "GET", path: "/orders/messages?nosuch=1&NumOfMessages=32", status: 200},
	{name: "client request id", verb: "GET", path: "/orders/messages", header: map[string]string{"x-ms-client-request-id": "id-1"}, status: 200, back: map[string]string{"X-Ms-Client-Request-Id": "^id-1$"}},
	{name: "client request id of an error", verb: "GET", path: "/missing/messages", header: map[string]string{"x-ms-client-request-id": "id-2"}, status: 404, code: "QueueNotFound", back: map[string]string{"X-Ms-Client-Request-Id": "^id-2$"}},
	{name: "oldest version", verb: "GET", path: "/orders/messages", header: map[string]string{"x-ms-version": "2017-07-29"}, status: 200, back: map[string]string{"X-Ms-Version": "2017-07-29"}},
	{name: "version: too old", verb: "GET", path: "/orders/messages", header: map[string]string{"x-ms-version": "2017-04-17"}, status: 400, code: "InvalidHeaderValue", has: `<HeaderName>x-ms-version</HeaderName><HeaderValue>2017-04-17</HeaderValue>`},
	{name: "version: too new", verb: "GET", path: "/orders/messages", header: map[string]string{"x-ms-version": "2026-06-06"}, status: 400, code: "InvalidHeaderValue"},
	{name: "version: no date", verb: "GET", path: "/orders/messages", header: map[string]string{"x-ms-version": "2020-1-01x"}, status: 400, code: "InvalidHeaderValue"},
	{name: "version: missing", verb: "GET", path: "/orders/messages", change: func(r *http.Request) { r.Header.Del("x-ms-version") }, status: 400, code: "MissingRequiredHeader"},

	// Authentication
	{name: "anonymous", verb: "GET", path: "/orders/messages", change: func(r *http.Request) { r.Header.Del("Authorization") }, status: 401, code: "NoAuthenticationInformation", back: map[string]string{"Www-Authenticate": "SharedKey"}},
	{name: "anonymous SAS is not served yet", verb: "GET", path: "/orders/messages?sv=2020-02-10&sig=abc", change: func(r *http.Request) { r.Header.Del("Authorization") }, status: 401, code: "NoAuthenticationInformation"},
	{name: "no scheme", verb: "GET", path: "/orders/messages", change: func(r *http.Request) { r.Header.Set("Authorization", "x") }, status: 400, code: "InvalidAuthenticationInfo"},
	{name: "other scheme", verb: "GET", path: "/orders/messages", change: func(r *http.Request) { r.Header.Set("Authorization", "Bearer x") }, status: 403, code: "AuthenticationFailed"},
	{name: "no signature", verb: "GET", path: "/orders/messages", change: func(r *http.Request) { r.Header.Set("Authorization", "SharedKey devstoreaccount1") }, status: 400, code: "InvalidAuthenticationInfo"},
	{name: "signature not in Base64", verb: "GET", path: "/orders/messages", change: func(r *http.Request) { r.Header.Set("Authorization", "SharedKey devstoreaccount1:!") }, status: 400, code: "InvalidAuthenticationInfo"},
	{name: "wrong signature", verb: "GET", path: "/orders/messages", change: func(r *http.Request) { r.Header.Set("Authorization", "SharedKey devstoreaccount1:"+sumMD5("x")) }, status: 403, code: "AuthenticationFailed", has: `<AuthenticationErrorDetail>The signature does not match`},
	{name: "empty signature", verb: "GET", path: "/orders/messages", change: func(r *http.Request) { r.Header.Set("Authorization", "SharedKey devstoreaccount1:") }, status: 403, code: "AuthenticationFailed"},
	{name: "signed for another account", verb: "GET", path: "/orders/messages", change: func(r *http.Request) {
		r.Header.Set("Authorization", strings.Replace(r.Header.Get("Authorization"), DevelopmentAccount, "other", 1))
	}, status: 403, code: "AuthenticationFailed"},
	{name: "unknown account", verb: "GET", path: "/orders/messages", change: func(r *http.Request) {
		r.URL.Path = strings.Replace(r.URL.Path, DevelopmentAccount, "other", 1)
		r.Header.Set("Authorization", strings.Replace(r.Header.Get("Authorization"), DevelopmentAccount, "other", 1))
	}, status: 403, code: "AuthenticationFailed", has: `not known`},
	{name: "verb changed", verb: "GET", path: "/orders/messages", change: func(r *http.Request) { r.Method = "DELETE" }, status: 403, code: "AuthenticationFailed"},
	{name: "parameter changed", verb: "GET", path: "/orders/messages?numofmessages=1", change: func(r *http.Request) { r.URL.RawQuery = "numofmessages=2" }, status: 403, code: "AuthenticationFailed"},
	{name: "header added", verb: "PUT", path: "/new", change: func(r *http.Request) { r.Header.Set("x-ms-meta-a", "1") }, status: 403, code: "AuthenticationFailed"},
	{name: "queue changed", verb: "GET", path: "/orders/messages", change: func(r *http.Request) { r.URL.Path = "/devstoreaccount1/full/messages" }, status: 403, code: "AuthenticationFailed"},
	{name: "no date", verb: "GET", path: "/orders/messages", change: func(r *http.Request) { r.Header.Del("x-ms-date") }, status: 403, code: "AuthenticationFailed", has: `no x-ms-date`},
	{name: "bad date", verb: "GET", path: "/orders/messages", change: func(r *http.Request) { r.Header.Set("x-ms-date", "today") }, status: 403, code: "AuthenticationFailed"},
	{name: "signed with Date", verb: "GET", path: "/orders/messages", change: signWithDate, status: 200},
	{name: "authentication comes before names", verb: "PUT", path: "/X", change: func(r *http.Request) { r.Header.Del("Authorization") }, status: 401, code: "NoAuthenticationInformation"},
}

func sumMD5(s string) string {
	sum := md5.Sum([]byte(s))
	return base64.StdEncoding.EncodeToString(sum[:])
}

// world is what an exchange finds: queues and messages that are the same each
// time, for the engine is seeded.
type world struct {
	engine *localqueue.Engine
	names  *strings.Replacer // for paths
}

func newWorld(t *testing.T) *world {
	t.Helper()
	ctx := context.Background()
	e := localqueue.New(&localqueue.Options{Seed: 1})
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	create := func(name string, metadata map[string]string) *localqueue.Queue {
		q := e.Queue(queue.Name{Account: DevelopmentAccount, Queue: name})
		must(q.Create(ctx, metadata))
		return q
	}
	first, err := create("orders", map[string]string{"kind": "test"}).Enqueue(ctx, "a <b>\r\n", &queue.EnqueueOptions{TTL: time.Hour})
	must(err)
	full := create("full", nil)
	for range 40 {
		_, err := full.Enqueue(ctx, "x", nil)
		must(err)
	}
	leased := create("leased", nil)
	second, err := leased.Enqueue(ctx, "y", nil)
	must(err)
	_, err = leased.Dequeue(ctx, 1, time.Hour)
	must(err)
	must(create("dropped", nil).Drop(ctx))
	return &world{engine: e, names: strings.NewReplacer(
		"{id}", string(first.ID), "{receipt}", url.QueryEscape(string(first.Receipt)),
		"{leased}", string(second.ID), "{stale}", url.QueryEscape(string(second.Receipt)))}
}

func (w *world) request(t *testing.T, base string, x exchange) *http.Request {
	t.Helper()
	var body io.Reader
	if x.body != "" {
		body = strings.NewReader(x.body)
	}
	r := &http.Request{Method: x.verb, Header: http.Header{}}
	path, query, _ := strings.Cut(w.names.Replace(x.path), "?")
	if u, err := url.Parse(base + path); err != nil {
		t.Fatal(err)
	} else {
		u.RawQuery = query
		r.URL = u
	}
	if body != nil {
		r.Body = io.NopCloser(body)
		r.ContentLength = int64(len(x.body))
	}
	for name, value := range x.header {
		r.Header.Set(name, value)
	}
	sign(r)
	if x.change != nil {
		x.change(r)
	}
	return r
}

// answer is a response as far as it must be the same on every way.
type answer struct {
	status  int
	length  int64
	header  http.Header
	body    string
	masked  string // the body without what may differ
	request *http.Request
}

var varying = regexp.MustCompile(anyDate + `|RequestId:[0-9a-f-]+|Time:[0-9TZ:.-]+|http://[^/]+/`)

func do(t *testing.T, transport http.RoundTripper, r *http.Request) answer {
	t.Helper()
	response, err := (&http.Client{Transport: transport}).Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	if response.Status != fmt.Sprintf("%d %s", response.StatusCode, http.StatusText(response.StatusCode)) || response.ProtoMajor != 1 || response.ProtoMinor != 1 {
		t.Errorf("response %+v has another status line or protocol", response)
	}
	return answer{response.StatusCode, response.ContentLength, response.Header, string(body), varying.ReplaceAllString(string(body), "*"), r}
}

// TestProtocol does every exchange in process and over a socket: both must be
// what the documents say, and the same.
func TestProtocol(t *testing.T) {
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	for _, x := range exchanges {
		t.Run(x.name, func(t *testing.T) {
			world := newWorld(t)
			s := New(world.engine, nil)
			inside := do(t, s, world.request(t, s.URL(), x))
			x.check(t, world, inside)
			if class := s.Counts().Statuses[x.status/100]; class != 1 {
				t.Errorf("counted %+v", s.Counts())
			}

			world = newWorld(t)
			e, err := New(world.engine, nil).Start("")
			if err != nil {
				t.Fatal(err)
			}
			defer e.Close()
			outside := do(t, transport, world.request(t, e.URL(), x))
			x.check(t, world, outside)

			for _, a := range []answer{inside, outside} {
				for _, name := range []string{"Date", "X-Ms-Request-Id", "X-Ms-Time-Next-Visible"} {
					a.header.Del(name)
				}
				if a.length != int64(len(a.body)) && x.verb != "HEAD" { // the length of times and ids does not vary
					t.Errorf("Content-Length %d for %d bytes", a.length, len(a.body))
				}
			}
			if strings.Contains(inside.body, "http://") { // an address is as long as it is
				inside.header.Del("Content-Length")
				outside.header.Del("Content-Length")
			} else if inside.length != outside.length {
				t.Errorf("lengths %d in process, %d over the socket", inside.length, outside.length)
			}
			if inside.status != outside.status || inside.masked != outside.masked || !maps.EqualFunc(inside.header, outside.header, equalValues) {
				t.Errorf("in process\n%d %v\n%s\nover the socket\n%d %v\n%s", inside.status, inside.header, inside.masked, outside.status, outside.header, outside.masked)
			}
		})
	}
}

func equalValues(a, b []string) bool { return strings.Join(a, "\n") == strings.Join(b, "\n") }

func (x exchange) check(t *testing.T, w *world, a answer) {
	t.Helper()
	if a.status != x.status {
		t.Fatalf("status %d, want %d: %s", a.status, x.status, a.body)
	}
	if got := a.header.Get("x-ms-error-code"); got != x.code {
		t.Errorf("code %q, want %q: %s", got, x.code, a.body)
	}
	for _, name := range []string{"Date", "X-Ms-Request-Id", "X-Ms-Version"} {
		if a.header.Get(name) == "" {
			t.Errorf("no %s", name)
		}
	}
	for name, want := range x.back {
		if !regexp.MustCompile(want).MatchString(a.header.Get(name)) {
			t.Errorf("%s is %q, want %q", name, a.header.Get(name), want)
		}
	}
	if x.code != "" && x.verb != "HEAD" && !strings.Contains(a.body, "<Code>"+x.code+"</Code><Message>") {
		t.Errorf("document is %s", a.body)
	}
	if x.has != "" && !regexp.MustCompile(w.names.Replace(x.has)).MatchString(a.body) {
		t.Errorf("document is %s\nwant %s", a.body, w.names.Replace(x.has))
	}
	if a.status >= 300 {
		for _, secret := range []string{DevelopmentKey, a.request.Header.Get("Authorization"), a.request.URL.Query().Get("popreceipt")} {
			if len(secret) > 1 && strings.Contains(a.body, secret) {
				t.Errorf("the error has a secret in it: %s", a.body)
			}
		}
	}
	if a.status == 204 && (a.body != "" || a.header.Get("Content-Length") != "") {
		t.Errorf("204 with a body: %q %v", a.body, a.header)
	}
}

// signWithDate signs without x-ms-date, which the documents allow.
func signWithDate(r *http.Request) {
	r.Header.Del("x-ms-date")
	r.Header.Set("Date", time.Now().UTC().Format(http.TimeFormat))
	r.Header.Set("Authorization", authorization(r, r.Header.Get("Date")))
}

// TestExchangesCoverEveryFailure wants each failure that the package knows to
// come up in the table above, so that none is dead.
func TestExchangesCoverEveryFailure(t *testing.T) {
	seen := map[string]bool{"InternalError": true, "OperationTimedOut": true, "InvalidInput": true} // those need a fault, see below
	for _, x := range exchanges {
		seen[x.code] = true
	}
	for _, f := range []*failure{errInvalidURI, errInvalidResourceName, errOutOfRangeInput, errInvalidHeaderValue, errMissingHeader,
		errInvalidQueryValue, errOutOfRangeQueryValue, errMissingQuery, errUnsupportedQuery, errInvalidXML, errInvalidXMLValue, errInvalidInput,
		errInvalidMarker, errInvalidMetadata, errEmptyMetadataKey, errMetadataTooLarge, errInvalidAuthentication, errInvalidMD5, errMD5Mismatch,
		errPopReceiptMismatch, errNoAuthentication, errAuthenticationFailed, errMessageNotFound, errQueueNotFound, errUnsupportedVerb,
		errQueueAlreadyExists, errQueueBeingDeleted, errMissingLength, errBodyTooLarge, errInternal, errTimedOut} {
		if !seen[f.code] {
			t.Errorf("%s never comes up", f.code)
		}
	}
}

func TestKeepsTextWithoutBody(t *testing.T) {
	w := newWorld(t)
	s := New(w.engine, nil)
	path := func(p string) string { return w.names.Replace(p) }
	do(t, s, signed("PUT", path("/orders/messages/{id}?popreceipt={receipt}&visibilitytimeout=0"), ""))
	if a := do(t, s, signed("GET", "/orders/messages?peekonly=true", "")); !strings.Contains(a.body, "<MessageText>a &lt;b&gt;&#xD;\n</MessageText>") {
		t.Errorf("the text has become %s", a.body)
	}
}

func TestShortBody(t *testing.T) {
	w := newWorld(t)
	s := New(w.engine, nil)
	r := signed("POST", "/orders/messages", wrap("x"))
	r.Body = io.NopCloser(bytes.NewReader([]byte("<Queue")))
	if a := do(t, s, r); a.header.Get("x-ms-error-code") != "InvalidInput" {
		t.Errorf("%d %s", a.status, a.body)
	}
}
