package emulator

import (
	"maps"
	"net/http"
	"strconv"
	"strings"
)

// sections are all exchanges, under the headings of docs/protocol.md.
var sections = []section{
	{"List Queues", []exchange{
		{name: "list", verb: "GET", path: "?comp=list", status: 200,
			has: `<EnumerationResults ServiceEndpoint="http://[^"]+/devstoreaccount1"><Queues><Queue><Name>full</Name></Queue><Queue>` +
				`<Name>leased</Name></Queue><Queue><Name>orders</Name></Queue></Queues><NextMarker></NextMarker></EnumerationResults>$`},
		{name: "list with a slash", verb: "GET", path: "/?comp=list", status: 200, has: `<Name>orders</Name>`},
		{name: "list with metadata", verb: "GET", path: "?comp=list&include=metadata&prefix=ord&maxresults=1", status: 200,
			has: `<Prefix>ord</Prefix><MaxResults>1</MaxResults><Queues><Queue><Name>orders</Name><Metadata><kind>test</kind></Metadata></Queue></Queues><NextMarker></NextMarker>`},
		{name: "list a page", verb: "GET", path: "?comp=list&maxresults=1", status: 200, has: `<NextMarker>/devstoreaccount1/leased</NextMarker>`},
		{name: "list the next page", verb: "GET", path: "?comp=list&maxresults=1&marker=%2Fdevstoreaccount1%2Fleased", status: 200,
			has: `<Marker>/devstoreaccount1/leased</Marker><MaxResults>1</MaxResults><Queues><Queue><Name>leased</Name></Queue></Queues><NextMarker>/devstoreaccount1/orders</NextMarker>`},
		{name: "list nothing", verb: "GET", path: "?comp=list&prefix=%3C%00", status: 200, has: "<Prefix>&lt;\uFFFD</Prefix><Queues></Queues>"},
		{name: "list more than a page has", verb: "GET", path: "?comp=list&maxresults=5001", status: 200},
		{name: "list: no results", verb: "GET", path: "?comp=list&maxresults=0", status: 400, code: "OutOfRangeQueryParameterValue",
			has: `<MinimumAllowed>1</MinimumAllowed>`},
		{name: "list: results no number", verb: "GET", path: "?comp=list&maxresults=x", status: 400, code: "InvalidQueryParameterValue"},
		{name: "list: bad marker", verb: "GET", path: "?comp=list&marker=x", status: 400, code: "OutOfRangeInput", has: `One of the request inputs is out of range`},
		{name: "list: bad include", verb: "GET", path: "?comp=list&include=x", status: 400, code: "InvalidQueryParameterValue"},
		{name: "list: verb", verb: "PUT", path: "?comp=list", status: 405, code: "UnsupportedHttpVerb", back: map[string]string{"Allow": "GET"}},
		{name: "list: on the secondary location", account: "devstoreaccount1-secondary", verb: "GET", path: "?comp=list", status: 200,
			has: `ServiceEndpoint="http://[^"]+/devstoreaccount1-secondary">.*<Name>orders</Name>`},
		{name: "list: of another account", account: "second", verb: "GET", path: "?comp=list", status: 200,
			has: `<Queues><Queue><Name>orders</Name></Queue><Queue><Name>others</Name></Queue></Queues>`},
	}},
	{"Get and Set Queue Service Properties", []exchange{
		{name: "get properties", verb: "GET", path: "/?restype=service&comp=properties", status: 200,
			has: `^<\?xml version="1.0" encoding="utf-8"\?><StorageServiceProperties><Logging><Version>1.0</Version>` +
				`<Delete>false</Delete><Read>false</Read><Write>false</Write><RetentionPolicy><Enabled>false</Enabled></RetentionPolicy>` +
				`</Logging><HourMetrics><Version>1.0</Version><Enabled>false</Enabled><RetentionPolicy><Enabled>false</Enabled>` +
				`</RetentionPolicy></HourMetrics><MinuteMetrics>.*</MinuteMetrics><Cors></Cors></StorageServiceProperties>$`},
		{name: "get properties that were set", account: "second", verb: "GET", path: "?restype=service&comp=properties", status: 200,
			has: `<HourMetrics><Version>1.0</Version><Enabled>true</Enabled><IncludeAPIs>true</IncludeAPIs><RetentionPolicy>` +
				`<Enabled>true</Enabled><Days>7</Days></RetentionPolicy></HourMetrics>.*<CorsRule>` +
				`<AllowedOrigins>https://shop.example,https://x.example</AllowedOrigins><AllowedMethods>GET,PUT</AllowedMethods>` +
				`<MaxAgeInSeconds>60</MaxAgeInSeconds><ExposedHeaders>x-ms-request-id,x-ms-meta-\*</ExposedHeaders>` +
				`<AllowedHeaders>x-ms-meta-\*,x-ms-version</AllowedHeaders></CorsRule>`},
		{name: "get properties of the secondary location", account: "devstoreaccount1-secondary", verb: "GET", path: "/?restype=service&comp=properties", status: 200},
		{name: "set properties", verb: "PUT", path: "/?restype=service&comp=properties",
			body: settings(logging("true", "365") + metrics("HourMetrics", "1") + metrics("MinuteMetrics", "7") + "<Cors>" +
				rule("*", "GET", "", "", "0") + "</Cors>"), status: 202, has: `^$`},
		{name: "set properties: logging only", verb: "PUT", path: "/?restype=service&comp=properties", body: settings(logging("true", "7")), status: 202},
		{name: "set properties: retention off", verb: "PUT", path: "/?restype=service&comp=properties",
			body: settings("<MinuteMetrics><Version>1.0</Version><Enabled>false</Enabled><RetentionPolicy><Enabled>false</Enabled></RetentionPolicy></MinuteMetrics>"), status: 202},
		{name: "set properties: no rules", verb: "PUT", path: "/?restype=service&comp=properties", body: settings("<Cors />"), status: 202},
		{name: "set properties: nothing", verb: "PUT", path: "/?restype=service&comp=properties", body: settings(""), status: 202},
		{name: "set properties: five rules", verb: "PUT", path: "/?restype=service&comp=properties",
			body: rules(strings.Repeat(rule("http://a", "GET", "x-*,y-*,a", "*", "2147483647"), 5)), status: 202},
		{name: "set properties: six rules", verb: "PUT", path: "/?restype=service&comp=properties",
			body: rules(strings.Repeat(rule("http://a", "GET", "", "", "1"), 6)), status: 400, code: "InvalidXmlDocument"},
		{name: "set properties: no body", verb: "PUT", path: "/?restype=service&comp=properties", status: 400, code: "InvalidXmlDocument"},
		{name: "set properties: no XML", verb: "PUT", path: "/?restype=service&comp=properties", body: "x", status: 400, code: "InvalidXmlDocument"},
		{name: "set properties: unknown element", verb: "PUT", path: "/?restype=service&comp=properties", body: settings("<Metrics/>"), status: 400,
			code: "InvalidXmlDocument"},
		{name: "set properties: element twice", verb: "PUT", path: "/?restype=service&comp=properties", body: settings("<Cors/><Cors/>"),
			status: 400, code: "InvalidXmlDocument"},
		{name: "set properties: logging without version", verb: "PUT", path: "/?restype=service&comp=properties",
			body: settings(strings.Replace(logging("true", "7"), "<Version>1.0</Version>", "", 1)), status: 400, code: "InvalidXmlDocument"},
		{name: "set properties: other version", verb: "PUT", path: "/?restype=service&comp=properties",
			body: settings(strings.Replace(logging("true", "7"), "1.0", "2.0", 1)), status: 400, code: "InvalidXmlNodeValue",
			has: `<XmlNodeName>Version</XmlNodeName><XmlNodeValue>2.0</XmlNodeValue>`},
		{name: "set properties: neither true nor false", verb: "PUT", path: "/?restype=service&comp=properties", body: settings(logging("yes", "7")),
			status: 400, code: "InvalidXmlNodeValue"},
		{name: "set properties: 0 days", verb: "PUT", path: "/?restype=service&comp=properties", body: settings(metrics("HourMetrics", "0")),
			status: 400, code: "InvalidXmlNodeValue"},
		{name: "set properties: 366 days", verb: "PUT", path: "/?restype=service&comp=properties", body: settings(metrics("HourMetrics", "366")),
			status: 400, code: "InvalidXmlNodeValue", has: `<XmlNodeName>Days</XmlNodeName>`},
		{name: "set properties: days no number", verb: "PUT", path: "/?restype=service&comp=properties", body: settings(metrics("HourMetrics", "x")),
			status: 400, code: "InvalidXmlNodeValue"},
		{name: "set properties: metrics without IncludeAPIs", verb: "PUT", path: "/?restype=service&comp=properties",
			body: settings(strings.Replace(metrics("HourMetrics", "1"), "<IncludeAPIs>true</IncludeAPIs>", "", 1)), status: 400,
			code: "InvalidXmlDocument"},
		{name: "set properties: unknown method", verb: "PUT", path: "/?restype=service&comp=properties",
			body: rules(rule("*", "GET,FETCH", "", "", "1")), status: 400, code: "InvalidXmlNodeValue",
			has: `<XmlNodeName>AllowedMethods</XmlNodeName>`},
		{name: "set properties: no method", verb: "PUT", path: "/?restype=service&comp=properties", body: rules(rule("*", "", "", "", "1")),
			status: 400, code: "InvalidXmlNodeValue"},
		{name: "set properties: no origin", verb: "PUT", path: "/?restype=service&comp=properties", body: rules(rule("", "GET", "", "", "1")),
			status: 400, code: "InvalidXmlNodeValue"},
		{name: "set properties: long origin", verb: "PUT", path: "/?restype=service&comp=properties",
			body: rules(rule(strings.Repeat("a", 257), "GET", "", "", "1")), status: 400, code: "InvalidXmlNodeValue"},
		{name: "set properties: 65 origins", verb: "PUT", path: "/?restype=service&comp=properties",
			body: rules(rule(strings.Repeat("a,", 65), "GET", "", "", "1")), status: 400, code: "InvalidXmlNodeValue"},
		{name: "set properties: 65 headers", verb: "PUT", path: "/?restype=service&comp=properties",
			body: rules(rule("*", "GET", strings.Repeat("a,", 65), "", "1")), status: 400, code: "InvalidXmlNodeValue"},
		{name: "set properties: three prefixes", verb: "PUT", path: "/?restype=service&comp=properties",
			body: rules(rule("*", "GET", "", "a*,b*,c*", "1")), status: 400, code: "InvalidXmlNodeValue"},
		{name: "set properties: header with a blank", verb: "PUT", path: "/?restype=service&comp=properties",
			body: rules(rule("*", "GET", "", "a b", "1")), status: 400, code: "InvalidXmlNodeValue"},
		{name: "set properties: age no number", verb: "PUT", path: "/?restype=service&comp=properties", body: rules(rule("*", "GET", "", "", "-1")),
			status: 400, code: "InvalidXmlNodeValue"},
		{name: "set properties: rule without headers", verb: "PUT", path: "/?restype=service&comp=properties",
			body: rules("<CorsRule><AllowedOrigins>*</AllowedOrigins></CorsRule>"), status: 400, code: "InvalidXmlDocument"},
		{name: "set properties: large rules", verb: "PUT", path: "/?restype=service&comp=properties",
			body: rules(strings.Repeat(rule(strings.Repeat("a", 250)+","+strings.Repeat("b", 250), "GET", "", "", "1"), 5)), status: 400,
			code: "InvalidXmlDocument"},
		{name: "set properties: on the secondary location", account: "devstoreaccount1-secondary", verb: "PUT",
			path: "/?restype=service&comp=properties", body: settings(""), status: 403, code: "InsufficientAccountPermissions"},
		{name: "properties: verb", verb: "DELETE", path: "/?restype=service&comp=properties", status: 405, code: "UnsupportedHttpVerb",
			back: map[string]string{"Allow": "GET, PUT"}},
		{name: "properties: no restype", verb: "GET", path: "/?comp=properties", status: 400, code: "InvalidQueryParameterValue",
			has: `<QueryParameterName>comp</QueryParameterName>`},
		{name: "account: no comp", verb: "GET", path: "/", status: 400, code: "InvalidQueryParameterValue",
			has: `<QueryParameterName>comp</QueryParameterName><QueryParameterValue></QueryParameterValue>`},
		{name: "account: unknown comp", verb: "GET", path: "/?restype=service&comp=x", status: 400, code: "InvalidQueryParameterValue"},
	}},
	{"Get Queue Service Stats", []exchange{
		{name: "stats", account: "devstoreaccount1-secondary", verb: "GET", path: "/?restype=service&comp=stats", status: 200,
			has: `^<\?xml version="1.0" encoding="utf-8"\?><StorageServiceStats><GeoReplication><Status>live</Status><LastSyncTime>` + anyDate +
				`</LastSyncTime></GeoReplication></StorageServiceStats>$`},
		{name: "stats: as the Python client asks for them", account: "devstoreaccount1-secondary", verb: "GET",
			path: "/devstoreaccount1/?restype=service&comp=stats", status: 200, has: `<Status>live</Status>`},
		{name: "stats: of a queue", account: "devstoreaccount1-secondary", verb: "GET", path: "/orders?restype=service&comp=stats", status: 400,
			code: "InvalidQueryParameterValue"},
		{name: "stats: as the Python client asks for them, of the primary location", verb: "GET",
			path: "/devstoreaccount1/?restype=service&comp=stats", status: 400, code: "InvalidQueryParameterValue"},
		{name: "stats: of the primary location", verb: "GET", path: "/?restype=service&comp=stats", status: 400, code: "InvalidQueryParameterValue",
			has: `<QueryParameterName>comp</QueryParameterName><QueryParameterValue>stats</QueryParameterValue>`},
		{name: "stats: verb", account: "devstoreaccount1-secondary", verb: "PUT", path: "/?restype=service&comp=stats", status: 405, code: "UnsupportedHttpVerb"},
	}},
	{"Get User Delegation Key", []exchange{
		{name: "key", secure: true, verb: "POST", path: "/?restype=service&comp=userdelegationkey", body: keyInfo(inHours(-1), inHours(2)),
			change: withToken(nil), status: 200,
			has: `<UserDelegationKey><SignedOid>` + user + `</SignedOid><SignedTid>` + tenant +
				`</SignedTid><SignedStart>[0-9TZ:-]{20}</SignedStart><SignedExpiry>[0-9TZ:-]{20}</SignedExpiry><SignedService>q</SignedService><SignedVersion>2026-04-06</SignedVersion><Value>[A-Za-z0-9+/]{43}=</Value></UserDelegationKey>`},
		{name: "key from now on", secure: true, verb: "POST", path: "/?restype=service&comp=userdelegationkey", body: keyInfo("", inHours(7*24)),
			change: withToken(nil), status: 200},
		{name: "key: for too long", secure: true, verb: "POST", path: "/?restype=service&comp=userdelegationkey", body: keyInfo("", inHours(7*24+1)),
			change: withToken(nil), status: 400, code: "InvalidXmlNodeValue", has: `<XmlNodeName>Expiry</XmlNodeName>`},
		{name: "key: expired", secure: true, verb: "POST", path: "/?restype=service&comp=userdelegationkey", body: keyInfo("", inHours(-1)),
			change: withToken(nil), status: 400, code: "InvalidXmlNodeValue"},
		{name: "key: start after the expiry", secure: true, verb: "POST", path: "/?restype=service&comp=userdelegationkey",
			body: keyInfo(inHours(3), inHours(2)), change: withToken(nil), status: 400, code: "InvalidXmlNodeValue",
			has: `<XmlNodeName>Start</XmlNodeName>`},
		{name: "key: no expiry", secure: true, verb: "POST", path: "/?restype=service&comp=userdelegationkey", body: keyInfo("", ""),
			change: withToken(nil), status: 400, code: "InvalidXmlDocument"},
		{name: "key: bad tenant", secure: true, verb: "POST", path: "/?restype=service&comp=userdelegationkey", body: "<KeyInfo><Expiry>" +
			inHours(1) + "</Expiry><DelegatedUserTid>a\nb</DelegatedUserTid></KeyInfo>", change: withToken(nil), status: 400,
			code: "InvalidXmlNodeValue"},
		{name: "key: no body", secure: true, verb: "POST", path: "/?restype=service&comp=userdelegationkey", change: withToken(nil), status: 400,
			code: "InvalidXmlDocument"},
		{name: "key: in an older version", secure: true, verb: "POST", path: "/?restype=service&comp=userdelegationkey",
			header: map[string]string{"x-ms-version": "2025-11-05"}, body: keyInfo("", inHours(2)), change: withToken(nil), status: 400,
			code: "InvalidQueryParameterValue"},
		{name: "key: with the account's key", secure: true, verb: "POST", path: "/?restype=service&comp=userdelegationkey",
			body: keyInfo("", inHours(2)), status: 403, code: "AuthenticationFailed"},
		{name: "key: with an account SAS", secure: true, verb: "POST", path: "/?restype=service&comp=userdelegationkey",
			body: keyInfo("", inHours(2)), change: accountSAS(), status: 403, code: "AuthorizationPermissionMismatch"},
		{name: "key: token without oid", secure: true, verb: "POST", path: "/?restype=service&comp=userdelegationkey", body: keyInfo("", inHours(2)),
			change: withToken(map[string]any{"oid": nil}), status: 403, code: "AuthenticationFailed"},
		{name: "key: on the secondary location", secure: true, account: "devstoreaccount1-secondary", verb: "POST",
			path: "/?restype=service&comp=userdelegationkey", body: keyInfo("", inHours(2)), change: withToken(nil), status: 403,
			code: "InsufficientAccountPermissions"},
		{name: "key: verb", secure: true, verb: "GET", path: "/?restype=service&comp=userdelegationkey", change: withToken(nil), status: 405,
			code: "UnsupportedHttpVerb"},
	}},
	{"Preflight Queue Request, and CORS", []exchange{
		{name: "preflight", account: "second", verb: "OPTIONS", path: "/orders/messages",
			header: preflight("https://x.example", "GET", "X-Ms-Meta-Any, x-ms-version"), change: anonymously, status: 200, has: `^$`,
			back: map[string]string{"Access-Control-Allow-Origin": `^https://x.example$`, "Access-Control-Allow-Methods": "^GET$",
				"Access-Control-Allow-Headers": "^X-Ms-Meta-Any, x-ms-version$", "Access-Control-Max-Age": "^60$",
				"Access-Control-Allow-Credentials": "^true$"}},
		{name: "preflight without headers", account: "second", verb: "OPTIONS", path: "/missing", header: preflight("https://x.example", "PUT", ""),
			change: anonymously, status: 200, back: map[string]string{"Access-Control-Allow-Headers": "^$"}},
		{name: "preflight: any origin", account: "second", verb: "OPTIONS", path: "/", header: preflight("http://elsewhere", "DELETE", "anything"),
			change: anonymously, status: 200, back: map[string]string{"Access-Control-Allow-Origin": "^http://elsewhere$"}},
		{name: "preflight: other origin", account: "second", verb: "OPTIONS", path: "/orders", header: preflight("https://X.example", "GET", ""),
			change: anonymously, status: 403, code: "CorsPreflightFailure"},
		{name: "preflight: other method", account: "second", verb: "OPTIONS", path: "/orders", header: preflight("https://x.example", "MERGE", ""),
			change: anonymously, status: 403, code: "CorsPreflightFailure"},
		{name: "preflight: other header", account: "second", verb: "OPTIONS", path: "/orders",
			header: preflight("https://x.example", "GET", "x-ms-version,x-ms-date"), change: anonymously, status: 403, code: "CorsPreflightFailure"},
		{name: "preflight: no origin", account: "second", verb: "OPTIONS", path: "/orders", header: preflight("", "GET", ""), change: anonymously,
			status: 400, code: "InvalidHeaderValue"},
		{name: "preflight: no method", account: "second", verb: "OPTIONS", path: "/orders", header: preflight("https://x.example", "", ""),
			change: anonymously, status: 400, code: "InvalidHeaderValue"},
		{name: "preflight: no rules", verb: "OPTIONS", path: "/orders", header: preflight("https://x.example", "GET", ""), change: anonymously,
			status: 403, code: "CorsPreflightFailure"},
		{name: "preflight: unknown account", account: "unknown", verb: "OPTIONS", path: "/orders", header: preflight("https://x.example", "GET", ""),
			change: anonymously, status: 403, code: "CorsPreflightFailure"},
		{name: "origin that a rule names", account: "second", verb: "GET", path: "/orders?comp=metadata", header: preflight("https://x.example", "", ""), status: 200,
			back: map[string]string{"Access-Control-Allow-Origin": "^https://x.example$", "Access-Control-Allow-Credentials": "^true$",
				"Access-Control-Expose-Headers": "^x-ms-request-id,x-ms-meta-kind$", "Vary": "^Origin$"}},
		{name: "origin that a rule names: put", account: "second", verb: "PUT", path: "/orders?comp=metadata",
			header: preflight("https://x.example", "", ""), status: 204,
			back: map[string]string{"Access-Control-Allow-Origin": "^https://x.example$", "Vary": "^$"}},
		{name: "origin that a rule names: error", account: "second", verb: "GET", path: "/missing?comp=metadata",
			header: preflight("https://x.example", "", ""), status: 404, code: "QueueNotFound",
			back: map[string]string{"Access-Control-Allow-Origin": "^https://x.example$", "Vary": "^Origin$"}},
		{name: "any origin", account: "second", verb: "HEAD", path: "/orders?comp=metadata", header: preflight("https://x.example", "", ""), status: 200,
			back: map[string]string{"Access-Control-Allow-Origin": `^\*$`, "Access-Control-Allow-Credentials": "^$", "Vary": "^$"}},
		{name: "any origin, none given", account: "second", verb: "HEAD", path: "/orders?comp=metadata", status: 200,
			back: map[string]string{"Access-Control-Allow-Origin": `^\*$`}},
		{name: "origin that no rule names", account: "second", verb: "GET", path: "/orders?comp=metadata",
			header: preflight("https://y.example", "", ""), status: 403, inside: 200, code: "AuthorizationFailure",
			back: map[string]string{"Access-Control-Allow-Origin": "^$", "Vary": "^Origin$"}},
		{name: "no origin", account: "second", verb: "GET", path: "/orders?comp=metadata", status: 200,
			back: map[string]string{"Access-Control-Allow-Origin": "^$", "Vary": "^Origin$"}},
		{name: "origin without rules", verb: "GET", path: "/orders?comp=metadata", header: preflight("https://x.example", "", ""), status: 403,
			inside: 200, code: "AuthorizationFailure", back: map[string]string{"Access-Control-Allow-Origin": "^$", "Vary": "^$"}},
	}},
	{"Requests that a browser sends for a page", pageExchanges},
	{"Create Queue", []exchange{
		{name: "create", verb: "PUT", path: "/new", status: 201},
		{name: "create with metadata", verb: "PUT", path: "/new", header: meta("a", "1"), status: 201},
		{name: "create with an empty metadata value", verb: "PUT", path: "/new", header: meta("a", ""), status: 201},
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
		{name: "create: large metadata", verb: "PUT", path: "/new", header: meta("a", strings.Repeat("x", 8192)), status: 400,
			code: "MetadataTooLarge", has: `<MaxLimit>8192</MaxLimit>`},
		{name: "create: verb", verb: "POST", path: "/new", status: 405, code: "UnsupportedHttpVerb", back: map[string]string{"Allow": "DELETE, PUT"}},
	}},
	{"Delete Queue", []exchange{
		{name: "drop", verb: "DELETE", path: "/orders", status: 204},
		{name: "drop: missing", verb: "DELETE", path: "/missing", status: 404, code: "QueueNotFound"},
		{name: "drop: twice", verb: "DELETE", path: "/dropped", status: 404, code: "QueueNotFound"},
	}},
	{"Get and Set Queue Metadata", []exchange{
		{name: "get metadata", verb: "GET", path: "/orders?comp=metadata", status: 200, has: `^$`,
			back: map[string]string{"X-Ms-Approximate-Messages-Count": "1", "X-Ms-Meta-Kind": "test"}},
		{name: "head metadata", verb: "HEAD", path: "/orders?comp=metadata", status: 200, back: map[string]string{"X-Ms-Approximate-Messages-Count": "1"}},
		{name: "get metadata: missing", verb: "GET", path: "/missing?comp=metadata", status: 404, code: "QueueNotFound"},
		{name: "head metadata: missing", verb: "HEAD", path: "/missing?comp=metadata", status: 404, code: "QueueNotFound"},
		{name: "set metadata", verb: "PUT", path: "/orders?comp=metadata", header: meta("a", "1"), status: 204},
		{name: "set metadata: empty value", verb: "PUT", path: "/orders?comp=metadata", header: meta("a", ""), status: 204},
		{name: "set no metadata", verb: "PUT", path: "/orders?comp=metadata", status: 204},
		{name: "set metadata: missing", verb: "PUT", path: "/missing?comp=metadata", status: 404, code: "QueueNotFound"},
		{name: "set metadata: bad", verb: "PUT", path: "/orders?comp=metadata", header: meta("a.b", "1"), status: 400, code: "InvalidMetadata"},
		{name: "metadata: verb", verb: "DELETE", path: "/orders?comp=metadata", status: 405, code: "UnsupportedHttpVerb",
			back: map[string]string{"Allow": "GET, HEAD, PUT"}},
	}},
	{"Get and Set Queue ACL", []exchange{
		{name: "get ACL", verb: "GET", path: "/orders?comp=acl", status: 200,
			has: `^<\?xml version="1.0" encoding="utf-8"\?><SignedIdentifiers><SignedIdentifier><Id>all</Id><AccessPolicy>` +
				`<Expiry>[0-9TZ:-]+</Expiry><Permission>raup</Permission></AccessPolicy></SignedIdentifier><SignedIdentifier>` +
				`<Id>open</Id>`},
		{name: "get no ACL", verb: "GET", path: "/full?comp=acl", status: 200, has: `<SignedIdentifiers></SignedIdentifiers>$`},
		{name: "head ACL", verb: "HEAD", path: "/orders?comp=acl", status: 200, has: `^$`},
		{name: "get ACL: missing", verb: "GET", path: "/missing?comp=acl", status: 404, code: "QueueNotFound"},
		{name: "head ACL: missing", verb: "HEAD", path: "/missing?comp=acl", status: 404, code: "QueueNotFound"},
		{name: "get ACL of the secondary location", account: "devstoreaccount1-secondary", verb: "GET", path: "/orders?comp=acl", status: 200},
		{name: "set ACL", verb: "PUT", path: "/orders?comp=acl",
			body: acl(storedPolicy(strings.Repeat("é", 64), "2026-01-02", "2026-01-02T03:04:05.1234567Z", "raup")), status: 204, has: `^$`},
		{name: "set ACL: five policies", verb: "PUT", path: "/orders?comp=acl", body: acl(policies(5)), status: 204},
		{name: "set ACL: policy without fields", verb: "PUT", path: "/orders?comp=acl", body: acl("<SignedIdentifier><Id>a</Id></SignedIdentifier>"), status: 204},
		{name: "set no ACL", verb: "PUT", path: "/orders?comp=acl", body: acl(""), status: 204},
		{name: "set ACL: no body", verb: "PUT", path: "/orders?comp=acl", status: 204},
		{name: "set ACL: six policies", verb: "PUT", path: "/orders?comp=acl", body: acl(policies(6)), status: 400, code: "InvalidXmlDocument"},
		{name: "set ACL: long id", verb: "PUT", path: "/orders?comp=acl", body: acl(storedPolicy(strings.Repeat("x", 65), "", "", "r")), status: 400,
			code: "InvalidXmlDocument", has: `<Reason>An Id must have 1 to 64 characters.</Reason>`},
		{name: "set ACL: empty id", verb: "PUT", path: "/orders?comp=acl", body: acl(storedPolicy("", "", "", "r")), status: 400, code: "InvalidXmlDocument"},
		{name: "set ACL: no id", verb: "PUT", path: "/orders?comp=acl", body: acl("<SignedIdentifier><AccessPolicy/></SignedIdentifier>"),
			status: 400, code: "InvalidXmlDocument"},
		{name: "set ACL: id twice", verb: "PUT", path: "/orders?comp=acl",
			body: acl(storedPolicy("a", "", "", "r") + storedPolicy("a", "", "", "u")), status: 400, code: "InvalidXmlDocument"},
		{name: "set ACL: other letter", verb: "PUT", path: "/orders?comp=acl", body: acl(storedPolicy("a", "", "", "rd")), status: 400,
			code: "InvalidXmlNodeValue", has: `<XmlNodeName>Permission</XmlNodeName><XmlNodeValue>rd</XmlNodeValue>`},
		{name: "set ACL: letter twice", verb: "PUT", path: "/orders?comp=acl", body: acl(storedPolicy("a", "", "", "rr")), status: 400, code: "InvalidXmlNodeValue"},
		{name: "set ACL: start no time", verb: "PUT", path: "/orders?comp=acl", body: acl(storedPolicy("a", "today", "", "r")), status: 400,
			code: "InvalidXmlNodeValue", has: `<XmlNodeName>Start</XmlNodeName>`},
		{name: "set ACL: expiry no time", verb: "PUT", path: "/orders?comp=acl", body: acl(storedPolicy("a", "", "2026-13-01", "r")), status: 400,
			code: "InvalidXmlNodeValue"},
		{name: "set ACL: no XML", verb: "PUT", path: "/orders?comp=acl", body: "x", status: 400, code: "InvalidXmlDocument"},
		{name: "set ACL: other document", verb: "PUT", path: "/orders?comp=acl", body: wrap("x"), status: 400, code: "InvalidXmlDocument"},
		{name: "set ACL: large body", verb: "PUT", path: "/orders?comp=acl", body: acl(storedPolicy(strings.Repeat("x", 131_584), "", "", "r")),
			status: 413, code: "RequestBodyTooLarge"},
		{name: "set ACL: missing", verb: "PUT", path: "/missing?comp=acl", body: acl(""), status: 404, code: "QueueNotFound"},
		{name: "set ACL: on the secondary location", account: "devstoreaccount1-secondary", verb: "PUT", path: "/orders?comp=acl", body: acl(""),
			status: 403, code: "InsufficientAccountPermissions"},
		{name: "ACL: verb", verb: "DELETE", path: "/orders?comp=acl", status: 405, code: "UnsupportedHttpVerb", back: map[string]string{"Allow": "GET, HEAD, PUT"}},
		{name: "queue: unknown comp", verb: "GET", path: "/orders?comp=x", status: 400, code: "InvalidQueryParameterValue"},
	}},
	{"Put Message", []exchange{
		{name: "put", verb: "POST", path: "/orders/messages", body: wrap("hello"), status: 201,
			has: `^<\?xml version="1.0" encoding="utf-8"\?><QueueMessagesList><QueueMessage><MessageId>[0-9a-f-]{36}</MessageId><InsertionTime>` +
				anyDate + `</InsertionTime><ExpirationTime>` + anyDate + `</ExpirationTime><PopReceipt>[A-Za-z0-9+/]{22}==</PopReceipt><TimeNextVisible>` +
				anyDate + `</TimeNextVisible></QueueMessage></QueueMessagesList>$`},
		{name: "put forever", verb: "POST", path: "/orders/messages?messagettl=-1&visibilitytimeout=604800", body: wrap(""), status: 201,
			has: `<ExpirationTime>Fri, 31 Dec 9999 23:59:59 GMT</ExpirationTime>`},
		{name: "put for long", verb: "POST", path: "/orders/messages?messagettl=2147483647", body: wrap("x"), status: 201},
		{name: "put the largest", verb: "POST", path: "/orders/messages", body: wrap(strings.Repeat("x", 65_536)), status: 201},
		{name: "put the most markup", verb: "POST", path: "/orders/messages", body: wrap(strings.Repeat("&lt;", 32_000)), status: 201},
		{name: "put with MD5", verb: "POST", path: "/orders/messages", body: wrap("x"), header: map[string]string{"Content-MD5": sumMD5(wrap("x"))}, status: 201},
		{name: "put: TTL 0", verb: "POST", path: "/orders/messages?messagettl=0", body: wrap("x"), status: 400, code: "InvalidQueryParameterValue",
			has: `<QueryParameterName>messagettl</QueryParameterName><QueryParameterValue>0</QueryParameterValue><Reason>`},
		{name: "put: TTL -2", verb: "POST", path: "/orders/messages?messagettl=-2", body: wrap("x"), status: 400, code: "InvalidQueryParameterValue"},
		{name: "put for longer than is counted", verb: "POST", path: "/orders/messages?messagettl=9007199254740991", body: wrap("x"), status: 201,
			has: `<ExpirationTime>Fri, 31 Dec 9999 23:59:59 GMT</ExpirationTime>`},
		{name: "put for longer than numbers are", verb: "POST", path: "/orders/messages?messagettl=99999999999999999999", body: wrap("x"),
			status: 201, has: `<ExpirationTime>Fri, 31 Dec 9999 23:59:59 GMT</ExpirationTime>`},
		{name: "put: delay too long", verb: "POST", path: "/orders/messages?messagettl=-1&visibilitytimeout=604801", body: wrap("x"), status: 400,
			code: "OutOfRangeQueryParameterValue", has: `<MaximumAllowed>604800</MaximumAllowed>`},
		{name: "put: delay negative", verb: "POST", path: "/orders/messages?visibilitytimeout=-1", body: wrap("x"), status: 400, code: "OutOfRangeQueryParameterValue"},
		{name: "put: delay as long as TTL", verb: "POST", path: "/orders/messages?messagettl=5&visibilitytimeout=5", body: wrap("x"), status: 400,
			code: "InvalidQueryParameterValue"},
		{name: "put: delay as long as the default TTL", verb: "POST", path: "/orders/messages?visibilitytimeout=604800", body: wrap("x"),
			status: 400, code: "InvalidQueryParameterValue"},
		{name: "put: parameter twice", verb: "POST", path: "/orders/messages?messagettl=5&messagettl=6", body: wrap("x"), status: 400,
			code: "InvalidQueryParameterValue"},
		{name: "put: large text", verb: "POST", path: "/orders/messages", body: wrap(strings.Repeat("x", 65_537)), status: 413,
			code: "RequestBodyTooLarge", has: `<MaxLimit>65536</MaxLimit>`},
		{name: "put: large body", verb: "POST", path: "/orders/messages", body: wrap(strings.Repeat("&#34;", 30_000)), status: 413,
			code: "RequestBodyTooLarge", has: `<MaxLimit>131584</MaxLimit>`},
		{name: "put: no body", verb: "POST", path: "/orders/messages", status: 400, code: "InvalidXmlDocument"},
		{name: "put: no XML", verb: "POST", path: "/orders/messages", body: "hello", status: 400, code: "InvalidXmlDocument"},
		{name: "put: DTD", verb: "POST", path: "/orders/messages", body: "<!DOCTYPE QueueMessage>" + wrap("x"), status: 400, code: "InvalidXmlDocument"},
		{name: "put: no text", verb: "POST", path: "/orders/messages", body: "<QueueMessage/>", status: 400, code: "InvalidXmlNodeValue"},
		{name: "put: control character", verb: "POST", path: "/orders/messages", body: wrap("&#0;"), status: 400, code: "InvalidXmlDocument"},
		{name: "put: other MD5", verb: "POST", path: "/orders/messages", body: wrap("x"), header: map[string]string{"Content-MD5": sumMD5("y")},
			status: 400, code: "Md5Mismatch"},
		{name: "put: bad MD5", verb: "POST", path: "/orders/messages", body: wrap("x"), header: map[string]string{"Content-MD5": "eA=="},
			status: 400, code: "InvalidMd5"},
		{name: "put: missing queue", verb: "POST", path: "/missing/messages", body: wrap("x"), status: 404, code: "QueueNotFound"},
		{name: "put: dropped queue", verb: "POST", path: "/dropped/messages", body: wrap("x"), status: 404, code: "QueueNotFound"},
		{name: "put: bad queue name", verb: "POST", path: "/Orders/messages", body: wrap("x"), status: 400, code: "InvalidResourceName"},
		{name: "put: no length", verb: "POST", path: "/orders/messages", body: wrap("x"), status: 411, code: "MissingContentLengthHeader",
			change: func(r *http.Request) { r.ContentLength = -1; sign(r) }},
	}},
	{"Get Messages", []exchange{
		{name: "get", verb: "GET", path: "/orders/messages", status: 200,
			has: `<QueueMessage><MessageId>{id}</MessageId><InsertionTime>` + anyDate + `</InsertionTime><ExpirationTime>` + anyDate +
				`</ExpirationTime><PopReceipt>[A-Za-z0-9+/]{22}==</PopReceipt><TimeNextVisible>` + anyDate +
				`</TimeNextVisible><DequeueCount>1</DequeueCount><MessageText>a &lt;b&gt;&#xD;\n</MessageText></QueueMessage>`},
		{name: "get many", verb: "GET", path: "/full/messages?numofmessages=32&visibilitytimeout=604800&peekonly=false", status: 200, has: `(<QueueMessage>.*){32}`},
		{name: "get none", verb: "GET", path: "/leased/messages?numofmessages=32", status: 200, has: `<QueueMessagesList></QueueMessagesList>$`},
		{name: "get: 0", verb: "GET", path: "/orders/messages?numofmessages=0", status: 400, code: "OutOfRangeQueryParameterValue"},
		{name: "get: 33", verb: "GET", path: "/orders/messages?numofmessages=33", status: 400, code: "OutOfRangeQueryParameterValue",
			has: `<MaximumAllowed>32</MaximumAllowed>`},
		{name: "get: no number", verb: "GET", path: "/orders/messages?numofmessages=abc", status: 400, code: "InvalidQueryParameterValue"},
		{name: "get: visibility 0", verb: "GET", path: "/orders/messages?visibilitytimeout=0", status: 400, code: "OutOfRangeQueryParameterValue",
			has: `<MinimumAllowed>1</MinimumAllowed>`},
		{name: "get: visibility too long", verb: "GET", path: "/orders/messages?visibilitytimeout=604801", status: 400, code: "OutOfRangeQueryParameterValue"},
		{name: "get: huge number", verb: "GET", path: "/orders/messages?visibilitytimeout=99999999999999999999", status: 400, code: "OutOfRangeQueryParameterValue"},
		{name: "get: missing queue", verb: "GET", path: "/missing/messages", status: 404, code: "QueueNotFound"},
	}},
	{"Peek Messages", []exchange{
		{name: "peek", verb: "GET", path: "/orders/messages?peekonly=true&numofmessages=32", status: 200,
			has: `<QueueMessagesList><QueueMessage><MessageId>{id}</MessageId><InsertionTime>` + anyDate + `</InsertionTime><ExpirationTime>` +
				anyDate + `</ExpirationTime><DequeueCount>0</DequeueCount><MessageText>a &lt;b&gt;&#xD;\n</MessageText></QueueMessage></QueueMessagesList>`},
		{name: "peek: 33", verb: "GET", path: "/orders/messages?peekonly=true&numofmessages=33", status: 400, code: "OutOfRangeQueryParameterValue"},
		{name: "peek: neither true nor false", verb: "GET", path: "/orders/messages?peekonly=x", status: 400, code: "InvalidQueryParameterValue"},
		{name: "peek: missing queue", verb: "GET", path: "/missing/messages?peekonly=true", status: 404, code: "QueueNotFound"},
	}},
	{"Clear Messages", []exchange{
		{name: "clear", verb: "DELETE", path: "/full/messages", status: 204},
		{name: "clear: missing queue", verb: "DELETE", path: "/missing/messages", status: 404, code: "QueueNotFound"},
		{name: "messages: verb", verb: "PUT", path: "/orders/messages", status: 405, code: "UnsupportedHttpVerb", back: map[string]string{"Allow": "DELETE, GET, POST"}},
	}},
	{"Update Message", []exchange{
		{name: "update", verb: "PUT", path: "/orders/messages/{id}?popreceipt={receipt}&visibilitytimeout=0", body: wrap("new"), status: 204,
			back: map[string]string{"X-Ms-Popreceipt": `^[A-Za-z0-9+/]{22}==$`, "X-Ms-Time-Next-Visible": "^" + anyDate + "$"}},
		{name: "update without body", verb: "PUT", path: "/orders/messages/{id}?popreceipt={receipt}&visibilitytimeout=60", status: 204},
		{name: "update: no receipt", verb: "PUT", path: "/orders/messages/{id}?visibilitytimeout=0", body: wrap("new"), status: 400,
			code: "MissingRequiredQueryParameter", has: `<QueryParameterName>popreceipt</QueryParameterName>`},
		{name: "update: no visibility", verb: "PUT", path: "/orders/messages/{id}?popreceipt={receipt}", body: wrap("new"), status: 400,
			code: "MissingRequiredQueryParameter", has: `<QueryParameterName>visibilitytimeout</QueryParameterName>`},
		{name: "update: visibility too long", verb: "PUT", path: "/orders/messages/{id}?popreceipt={receipt}&visibilitytimeout=604801",
			body: wrap("new"), status: 400, code: "OutOfRangeQueryParameterValue"},
		{name: "update: past the expiry", verb: "PUT", path: "/orders/messages/{id}?popreceipt={receipt}&visibilitytimeout=3601", body: wrap("new"),
			status: 400, code: "OutOfRangeQueryParameterValue", has: `The message expires before that`},
		{name: "update without body: past the expiry", verb: "PUT", path: "/orders/messages/{id}?popreceipt={receipt}&visibilitytimeout=3601",
			status: 400, code: "OutOfRangeQueryParameterValue"},
		{name: "update: no XML", verb: "PUT", path: "/orders/messages/{id}?popreceipt={receipt}&visibilitytimeout=0", body: "new", status: 400,
			code: "InvalidXmlDocument"},
		{name: "update: large text", verb: "PUT", path: "/orders/messages/{id}?popreceipt={receipt}&visibilitytimeout=0",
			body: wrap(strings.Repeat("x", 65_537)), status: 413, code: "RequestBodyTooLarge"},
		{name: "update: stale receipt", verb: "PUT", path: "/leased/messages/{leased}?popreceipt={stale}&visibilitytimeout=0", body: wrap("new"),
			status: 400, code: "PopReceiptMismatch"},
		{name: "update: receipt from elsewhere", verb: "PUT",
			path: "/leased/messages/{leased}?popreceipt=AgAAAAEAAACucgAAvMW8%2BdqjzAE%3D&visibilitytimeout=0", body: wrap("new"), status: 400,
			code: "PopReceiptMismatch"},
		{name: "update: malformed receipt", verb: "PUT", path: "/leased/messages/{leased}?popreceipt=x&visibilitytimeout=0", body: wrap("new"),
			status: 400, code: "InvalidQueryParameterValue",
			has: `<QueryParameterName>popreceipt</QueryParameterName><Reason>Invalid pop receipt format</Reason>`},
		{name: "update: gone", verb: "PUT", path: "/orders/messages/gone?popreceipt={receipt}&visibilitytimeout=0", body: wrap("new"), status: 404,
			code: "MessageNotFound"},
		{name: "update: missing queue", verb: "PUT", path: "/missing/messages/{id}?popreceipt={receipt}&visibilitytimeout=0", body: wrap("new"),
			status: 404, code: "QueueNotFound"},
		{name: "message: verb", verb: "GET", path: "/orders/messages/{id}", status: 405, code: "UnsupportedHttpVerb", back: map[string]string{"Allow": "DELETE, PUT"}},
	}},
	{"Delete Message", []exchange{
		{name: "delete", verb: "DELETE", path: "/orders/messages/{id}?popreceipt={receipt}&timeout=30", status: 204},
		{name: "delete: no receipt", verb: "DELETE", path: "/orders/messages/{id}", status: 400, code: "MissingRequiredQueryParameter"},
		{name: "delete: empty receipt", verb: "DELETE", path: "/orders/messages/{id}?popreceipt=", status: 400, code: "MissingRequiredQueryParameter"},
		{name: "delete: malformed receipt", verb: "DELETE", path: "/leased/messages/{leased}?popreceipt=not-a-receipt", status: 400,
			code: "InvalidQueryParameterValue", has: `<QueryParameterName>popreceipt</QueryParameterName>`},
		{name: "delete: receipt and more", verb: "DELETE", path: "/leased/messages/{leased}?popreceipt={stale}Random", status: 400, code: "InvalidQueryParameterValue"},
		{name: "delete: malformed receipt, and gone", verb: "DELETE", path: "/orders/messages/gone?popreceipt=not-a-receipt", status: 400,
			code: "InvalidQueryParameterValue"},
		{name: "delete: receipt that was not escaped", verb: "DELETE", path: "/leased/messages/{leased}?popreceipt=AAA+", status: 400,
			code: "InvalidQueryParameterValue"},
		{name: "delete: receipt of no message", verb: "DELETE", path: "/leased/messages/{leased}?popreceipt=AAAA", status: 400, code: "PopReceiptMismatch"},
		{name: "delete: stale receipt", verb: "DELETE", path: "/leased/messages/{leased}?popreceipt={stale}", status: 400, code: "PopReceiptMismatch"},
		{name: "delete: gone", verb: "DELETE", path: "/orders/messages/gone?popreceipt={receipt}", status: 404, code: "MessageNotFound"},
		{name: "delete: slashes in the id", verb: "DELETE", path: "/orders/messages/%2F..%2F?popreceipt={receipt}", status: 404, code: "MessageNotFound"},
		{name: "delete: missing queue", verb: "DELETE", path: "/missing/messages/{id}?popreceipt={receipt}", status: 404, code: "QueueNotFound"},
		{name: "delete: other queue", verb: "DELETE", path: "/leased/messages/{id}?popreceipt={receipt}", status: 404, code: "MessageNotFound"},
	}},
	{"Addresses, parameters and headers of all operations", []exchange{
		{name: "address: too long", verb: "GET", path: "/orders/messages/a/b", status: 400, code: "InvalidUri"},
		{name: "address: other resource", verb: "GET", path: "/orders/things", status: 400, code: "InvalidUri"},
		{name: "address: empty queue", verb: "GET", path: "//messages", status: 400, code: "InvalidUri"},
		{name: "parameter: bad escape", verb: "GET", path: "/orders/messages?numofmessages=%zz", status: 400, code: "InvalidQueryParameterValue"},
		{name: "parameter: timeout", verb: "GET", path: "/orders/messages?timeout=0", status: 400, code: "OutOfRangeQueryParameterValue"},
		{name: "parameter: unknown", verb: "GET", path: "/orders/messages?nosuch=1&NumOfMessages=32", status: 200},
		{name: "client request id", verb: "GET", path: "/orders/messages", header: map[string]string{"x-ms-client-request-id": "id-1"}, status: 200,
			back: map[string]string{"X-Ms-Client-Request-Id": "^id-1$"}},
		{name: "client request id of an error", verb: "GET", path: "/missing/messages", header: map[string]string{"x-ms-client-request-id": "id-2"},
			status: 404, code: "QueueNotFound", back: map[string]string{"X-Ms-Client-Request-Id": "^id-2$"}},
		{name: "oldest version", verb: "GET", path: "/orders/messages", header: map[string]string{"x-ms-version": "2017-07-29"}, status: 200,
			back: map[string]string{"X-Ms-Version": "2017-07-29"}},
		{name: "version: too old", verb: "GET", path: "/orders/messages", header: map[string]string{"x-ms-version": "2017-04-17"}, status: 400,
			code: "InvalidHeaderValue", has: `<HeaderName>x-ms-version</HeaderName><HeaderValue>2017-04-17</HeaderValue>`},
		{name: "version: too new", verb: "GET", path: "/orders/messages", header: map[string]string{"x-ms-version": "2026-06-06"}, status: 400,
			code: "InvalidHeaderValue"},
		{name: "version: no date", verb: "GET", path: "/orders/messages", header: map[string]string{"x-ms-version": "2020-1-01x"}, status: 400,
			code: "InvalidHeaderValue"},
		{name: "version: missing", verb: "GET", path: "/orders/messages", change: func(r *http.Request) { r.Header.Del("x-ms-version") },
			status: 400, code: "MissingRequiredHeader"},
	}},
	{"Host-style addresses, and the secondary location", []exchange{
		{name: "host style", host: "devstoreaccount1.queue.localhost:10001", verb: "GET", path: "/orders/messages", status: 200, has: `<MessageId>{id}</MessageId>`},
		{name: "host style: list", host: "DevStoreAccount1.queue.core.windows.net", verb: "GET", path: "/?comp=list", status: 200,
			has: `ServiceEndpoint="http://DevStoreAccount1.queue.core.windows.net/"`},
		{name: "host style: over TLS", secure: true, host: "devstoreaccount1.queue.localhost", verb: "GET", path: "/?comp=list", status: 200,
			has: `ServiceEndpoint="https://devstoreaccount1.queue.localhost/"`},
		{name: "host style: another account", host: "second.queue.localhost", verb: "GET", path: "/?comp=list", status: 200, has: `<Name>others</Name>`},
		{name: "host style: service SAS", host: "devstoreaccount1.queue.localhost", verb: "GET", path: "/orders/messages", change: serviceSAS("orders"), status: 200},
		{name: "host style: stats", host: "devstoreaccount1-secondary.queue.localhost", verb: "GET", path: "/?restype=service&comp=stats",
			status: 200, has: `<Status>live</Status>`},
		{name: "host style: put on the secondary location", host: "devstoreaccount1-secondary.queue.localhost", verb: "POST",
			path: "/orders/messages", body: wrap("x"), status: 403, code: "InsufficientAccountPermissions"},
		{name: "host style: queue named like the account", host: "devstoreaccount1.queue.localhost", verb: "GET", path: "/devstoreaccount1/messages",
			status: 403, code: "AuthenticationFailed", has: `path-style`},
		{name: "host style: queue named like the secondary location", host: "devstoreaccount1.queue.localhost", verb: "GET",
			path: "/devstoreaccount1-secondary/messages", status: 403, code: "AuthenticationFailed"},
		{name: "host style: queue named like the account, Lite", host: "devstoreaccount1.queue.localhost", verb: "GET",
			path: "/devstoreaccount1/messages", change: signLite, status: 403, code: "AuthenticationFailed", has: `path-style`},
		{name: "host style: queue named like the account, SAS", host: "devstoreaccount1.queue.localhost", verb: "GET",
			path: "/devstoreaccount1/messages", change: serviceSAS("devstoreaccount1"), status: 404, code: "QueueNotFound"},
		{name: "queue named like the account", verb: "GET", path: "/devstoreaccount1/messages", status: 404, code: "QueueNotFound"},
		{name: "host that is no account", host: "azurite.queue.svc", verb: "GET", path: "/devstoreaccount1/orders/messages", status: 200},
		{name: "host style: address too long", host: "devstoreaccount1.queue.localhost", verb: "GET", path: "/orders/messages/a/b", status: 400, code: "InvalidUri"},
		{name: "host that is not of the service", host: "devstoreaccount1.blob.localhost", verb: "GET", path: "/devstoreaccount1/orders/messages", status: 200},
		{name: "secondary: peek", account: "devstoreaccount1-secondary", verb: "GET", path: "/orders/messages?peekonly=true", status: 200,
			has: `<MessageId>{id}</MessageId>`},
		{name: "secondary: signed for the primary address", account: "devstoreaccount1-secondary", verb: "GET", path: "/orders?comp=metadata",
			change: signPrimary, status: 200},
		{name: "secondary: signed for a queue without the suffix", account: "devstoreaccount1%2Dsecondary", verb: "GET",
			path: "/orders-secondary?comp=metadata", change: func(r *http.Request) {
				address := *r.URL
				r.URL = r.URL.JoinPath("../orders")
				sign(r)
				r.URL = &address
			}, status: 403, code: "AuthenticationFailed", has: `The signature does not match`},
		{name: "secondary: get", account: "devstoreaccount1-secondary", verb: "GET", path: "/orders/messages", status: 403, code: "InsufficientAccountPermissions"},
		{name: "secondary: put", account: "devstoreaccount1-secondary", verb: "POST", path: "/orders/messages", body: wrap("x"), status: 403,
			code: "InsufficientAccountPermissions"},
		{name: "secondary: update", account: "devstoreaccount1-secondary", verb: "PUT",
			path: "/orders/messages/{id}?popreceipt={receipt}&visibilitytimeout=0", status: 403, code: "InsufficientAccountPermissions"},
		{name: "secondary: delete", account: "devstoreaccount1-secondary", verb: "DELETE", path: "/orders/messages/{id}?popreceipt={receipt}",
			status: 403, code: "InsufficientAccountPermissions"},
		{name: "secondary: create", account: "devstoreaccount1-secondary", verb: "PUT", path: "/new", status: 403, code: "InsufficientAccountPermissions"},
		{name: "secondary: of no account", account: "unknown-secondary", verb: "GET", path: "?comp=list", status: 404, code: "ResourceNotFound"},
	}},
	{"Shared Key", sharedKeyExchanges},
	{"Shared Key Lite", sharedKeyLiteExchanges},
	{"Account SAS", accountSASExchanges},
	{"Service SAS and stored access policies", serviceSASExchanges},
	{"Bearer tokens", bearerExchanges},
	{"Anonymous requests", anonymousExchanges},
}

// settings returns the properties of a service.
func settings(inside string) string {
	return "<StorageServiceProperties>" + inside + "</StorageServiceProperties>"
}

func rules(inside string) string { return settings("<Cors>" + inside + "</Cors>") }

func logging(deletes, days string) string {
	return "<Logging><Version>1.0</Version><Delete>" + deletes +
		"</Delete><Read>false</Read><Write>true</Write><RetentionPolicy><Enabled>true</Enabled><Days>" + days + "</Days></RetentionPolicy></Logging>"
}

// keyInfo returns the body of a request for a user delegation key.
func keyInfo(start, expiry string) string {
	return "<KeyInfo>" + element("Start", start) + element("Expiry", expiry) + "</KeyInfo>"
}

func acl(inside string) string { return "<SignedIdentifiers>" + inside + "</SignedIdentifiers>" }

// policies returns n stored access policies.
func policies(n int) string {
	all := ""
	for i := range n {
		all += storedPolicy(strconv.Itoa(i), "", "", "r")
	}
	return all
}

// preflight returns the headers of a browser's preflight request.
func preflight(origin, method, headers string) map[string]string {
	m := map[string]string{"Origin": origin, "Access-Control-Request-Method": method, "Access-Control-Request-Headers": headers}
	maps.DeleteFunc(m, func(_, value string) bool { return value == "" })
	return m
}

func then(changes ...func(*http.Request)) func(*http.Request) {
	return func(r *http.Request) {
		for _, change := range changes {
			change(r)
		}
	}
}

// withParameter changes a parameter of a request.
func withParameter(name, value string) func(*http.Request) {
	return func(r *http.Request) {
		query := r.URL.Query()
		query.Set(name, value)
		r.URL.RawQuery = query.Encode()
	}
}

// withQuery replaces the signed parameters of a request.
func withQuery(query string) func(*http.Request) {
	return func(r *http.Request) { r.URL.RawQuery = query }
}

func withoutVersion(r *http.Request) { r.Header.Del("x-ms-version") }

func signLite(r *http.Request) { r.Header.Set("Authorization", lite(r)) }

func authorizedBy(credentials string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Set("Authorization", credentials) }
}

// signPrimary signs the address of the primary location, as documented.
func signPrimary(r *http.Request) {
	path := r.URL.Path
	r.URL.Path = strings.Replace(path, "-secondary", "", 1)
	sign(r)
	r.URL.Path = path
}
