package aztable_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"

	"github.com/millrace/millrace/table"
	"github.com/millrace/millrace/table/aztable"
)

const someSAS = "sv=2024-11-04&ss=t&srt=sco&sp=raud&se=2099-01-01&sig=S3cret%2Fsign%3D"

// once is the options of a table that repeats nothing.
var once = aztable.Options{RetryFor: -1}

// TestStorageErrorCodes: each call fails with the kind, the service's words, the id of the request and what to do.
func TestStorageErrorCodes(t *testing.T) {
	for _, c := range []struct {
		status int
		code   string
		kind   error
		hint   string
	}{
		{404, "ResourceNotFound", table.ErrMissing, ""},
		{404, "EntityNotFound", table.ErrMissing, ""},
		{409, "EntityAlreadyExists", table.ErrExists, ""},
		{412, "UpdateConditionNotSatisfied", table.ErrPreconditionFailed, ""},
		{412, "ConditionNotMet", table.ErrPreconditionFailed, ""},
		{413, "RequestBodyTooLarge", table.ErrTooLarge, "several groups"},
		{400, "EntityTooLarge", table.ErrTooLarge, "blob"},
		{400, "PropertyValueTooLarge", table.ErrTooLarge, "blob"},
		{400, "TooManyProperties", table.ErrTooLarge, ""},
		{400, "InvalidInput", table.ErrInvalid, ""},
		{501, "NotImplemented", table.ErrInvalid, "general-purpose"},
		{403, "AuthenticationFailed", table.ErrUnauthorized, "clock"},
		{403, "AuthorizationPermissionMismatch", table.ErrUnauthorized, "Storage Table Data Contributor"},
		{403, "AuthorizationFailure", table.ErrUnauthorized, "firewall"},
		{401, "NoAuthenticationInformation", table.ErrUnauthorized, "credential"},
		{404, "AccountNotFound", table.ErrInvalid, "account"},
		{409, "TableBeingDeleted", table.ErrUnavailable, "40 s"},
		{503, "ServerBusy", table.ErrUnavailable, "partitions"},
		{429, "TooManyRequests", table.ErrUnavailable, "partitions"},
		{500, "OperationTimedOut", table.ErrUnavailable, ""},
		{500, "InternalError", table.ErrUnavailable, ""},
	} {
		s := newService()
		s.always(fault{status: c.status, code: c.code})
		for _, op := range operations {
			err := op.call(t.Context(), s.open(t, "Channels", once))
			known := (*table.Error)(nil)
			if !errors.As(err, &known) || !errors.Is(known.Kind, c.kind) || known.Status != c.status || known.Code != c.code || known.RequestID != "some-id" ||
				known.Op != op.name || known.Table != "Channels" || !strings.Contains(known.Hint, c.hint) {
				t.Errorf("%s: %s: %#v", c.code, op.name, known)
			}
			if !strings.Contains(err.Error(), "It is "+c.code) || strings.Contains(err.Error(), "RequestId:") {
				t.Errorf("%s: %s: the service's words are not in %q", c.code, op.name, err)
			}
			response := (*azcore.ResponseError)(nil)
			if !errors.As(err, &response) || response.StatusCode != c.status {
				t.Errorf("%s: %s: no response in %v", c.code, op.name, err)
			}
		}
	}
}

// TestWhatIsNotTheServicesIsNeverAnAnswer: a proxy's 404 must not make an entity missing, nor a login page one.
func TestWhatIsNotTheServicesIsNeverAnAnswer(t *testing.T) {
	for name, f := range map[string]fault{
		"404 of a proxy": {status: 404}, "409 of a proxy": {status: 409}, "412 of a proxy": {status: 412}, "login page": {login: true},
		"redirect": {status: 302}, "502": {status: 502}, "200 of a proxy": {status: 200}, "201 of a proxy": {status: 201},
		"202 of a proxy": {status: 202}, "204 of a proxy": {status: 204},
		"another success":       {changed: func(r *http.Response) { r.StatusCode = 206 }},
		"no request id":         {changed: func(r *http.Response) { r.Header.Del("X-Ms-Request-Id") }},
		"login page with an id": {changed: func(r *http.Response) { r.StatusCode, r.Body = 200, body("<html>log in</html>") }},
	} {
		s := withEntity(t)
		for _, op := range operations {
			if op.name == "insert" {
				operations[3].call(t.Context(), s.open(t, "Channels", once)) // or it exists
			}
			s.always(f)
			err := op.call(t.Context(), s.open(t, "Channels", once))
			for _, kind := range []error{table.ErrMissing, table.ErrExists, table.ErrPreconditionFailed} {
				if err == nil || errors.Is(err, kind) {
					t.Errorf("%s: %s: %v", name, op.name, err)
				}
			}
			if f.status != 409 && f.status != 412 && f.status != 502 && err != nil && !strings.Contains(err.Error(), "proxy") {
				t.Errorf("%s: %s does not think of a proxy: %v", name, op.name, err)
			}
		}
	}
}

func body(text string) io.ReadCloser { return io.NopCloser(strings.NewReader(text)) }

// replaced makes the service respond with another document.
func replaced(text string) fault {
	return fault{changed: func(r *http.Response) { r.Body = body(text) }}
}

// TestResponsesThatLackSomething are refused: none is half understood.
func TestResponsesThatLackSomething(t *testing.T) {
	const good = `{"odata.etag":"W/\"1\"","PartitionKey":"owners","RowKey":"ann","Timestamp":"2026-11-23T02:40:00Z"`
	list := func(entity string) string { return `{"value":[` + entity + `]}` }
	for name, c := range map[string]struct {
		entity string
		lacks  string
	}{
		"not JSON":              {`{"odata.etag":`, "JSON document"},
		"nothing":               {``, "JSON document"},
		"an array":              {`["x"]`, "JSON document"},
		"a string":              {`"x"`, "JSON document"},
		"no partition":          {`{"odata.etag":"W/\"1\"","RowKey":"ann","Timestamp":"2026-11-23T02:40:00Z"}`, "key of the entity"},
		"no row":                {`{"odata.etag":"W/\"1\"","PartitionKey":"owners","Timestamp":"2026-11-23T02:40:00Z"}`, "key of the entity"},
		"a number as key":       {`{"odata.etag":"W/\"1\"","PartitionKey":1,"RowKey":"ann","Timestamp":"2026-11-23T02:40:00Z"}`, "key of the entity"},
		"no version":            {`{"PartitionKey":"owners","RowKey":"ann","Timestamp":"2026-11-23T02:40:00Z"}`, "ETag of the entity"},
		"no time":               {`{"odata.etag":"W/\"1\"","PartitionKey":"owners","RowKey":"ann"}`, "time of the entity"},
		"a bad time":            {`{"odata.etag":"W/\"1\"","PartitionKey":"owners","RowKey":"ann","Timestamp":"yesterday"}`, "time of the entity"},
		"an unknown type":       {good + `,"V":"x","V@odata.type":"Edm.Stream"}`, `property "V"`},
		"a list":                {good + `,"V":[1]}`, `property "V"`},
		"an object":             {good + `,"V":{}}`, `property "V"`},
		"a large integer":       {good + `,"V":2147483648}`, `property "V"`},
		"a bad int64":           {good + `,"V":"1.5","V@odata.type":"Edm.Int64"}`, `property "V"`},
		"a bad int32":           {good + `,"V":"4294967296","V@odata.type":"Edm.Int32"}`, `property "V"`},
		"a bad double":          {good + `,"V":"x","V@odata.type":"Edm.Double"}`, `property "V"`},
		"a bad bool":            {good + `,"V":"true","V@odata.type":"Edm.Boolean"}`, `property "V"`},
		"a bad string":          {good + `,"V":1,"V@odata.type":"Edm.String"}`, `property "V"`},
		"a bad GUID":            {good + `,"V":1,"V@odata.type":"Edm.Guid"}`, `property "V"`},
		"bad bytes":             {good + `,"V":"?","V@odata.type":"Edm.Binary"}`, `property "V"`},
		"a bad property's time": {good + `,"V":"now","V@odata.type":"Edm.DateTime"}`, `property "V"`},
	} {
		s := withEntity(t)
		channels := s.open(t, "Channels", once)
		s.always(replaced(c.entity))
		if got, err := channels.Get(t.Context(), someKey); !errors.Is(err, table.ErrUnavailable) || !strings.Contains(err.Error(), "the response has no "+c.lacks) && !strings.Contains(err.Error(), c.lacks) {
			t.Errorf("%s: get: %v, %v", name, got, err)
		}
		s.always(replaced(list(c.entity)))
		if got, err := channels.Query(t.Context(), table.Query{}); name != "nothing" && (!errors.Is(err, table.ErrUnavailable) || len(got.Entities) > 0) {
			t.Errorf("%s: query: %v, %v", name, got, err)
		}
	}
	s := withEntity(t)
	channels := s.open(t, "Channels", once)
	for name, text := range map[string]string{"no list": `{}`, "null": `{"value":null}`, "two documents": `{"value":[]}{"value":[]}`} {
		s.always(replaced(text))
		if got, err := channels.Query(t.Context(), table.Query{}); !errors.Is(err, table.ErrUnavailable) {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
	s.always(replaced(strings.Replace(good, "ann", "bob", 1) + "}"))
	if got, err := channels.Get(t.Context(), someKey); !errors.Is(err, table.ErrUnavailable) {
		t.Errorf("another entity: %v, %v", got, err)
	}
	s.always(fault{changed: func(r *http.Response) { r.Header.Set("Content-Type", "application/json;odata=nometadata") }})
	for _, op := range operations {
		if err := op.call(t.Context(), channels); !op.change && !errors.Is(err, table.ErrUnavailable) {
			t.Errorf("%s without types: %v", op.name, err)
		}
	}
	s = newService()
	channels = s.open(t, "Channels", once)
	s.always(fault{changed: func(r *http.Response) { r.Header.Del("ETag") }})
	for _, op := range operations {
		if err := op.call(t.Context(), channels); (op.name == "insert" || op.name == "update") && (!errors.Is(err, table.ErrUnavailable) || !strings.Contains(err.Error(), "no ETag")) {
			t.Errorf("%s without a version: %v", op.name, err)
		}
	}
}

// TestValuesOfOtherPrograms: what they may write, and how the service sends it.
func TestValuesOfOtherPrograms(t *testing.T) {
	s := withEntity(t)
	s.always(fault{changed: func(r *http.Response) {
		r.Body = body(`{"odata.metadata":"x","odata.type":"acct.T","odata.id":"x","odata.etag":"W/\"datetime'2026-11-23T02%3A40%3A00Z'\"","odata.editLink":"x",
			"PartitionKey":"owners","RowKey":"ann","Timestamp@odata.type":"Edm.DateTime","Timestamp":"2026-11-23T03:40:00.1234567+01:00",
			"Gone":null,"NaN":"NaN","NaN@odata.type":"Edm.Double","Inf":"-Infinity","Inf@odata.type":"Edm.Double","Five":5,"Five@odata.type":"Edm.Double",
			"Point":5.0,"Exponent":1E3,"Small":7,"Small@odata.type":"Edm.Int32","Truth":true,"Truth@odata.type":"Edm.Boolean","Text":"x","Text@odata.type":"Edm.String",
			"Größe":1,"Long":42,"Long@odata.type":"Edm.Int64","ID":"C9DA6455-213D-42C9-9A79-3E9149A57833","ID@odata.type":"Edm.Guid"}`)
	}})
	got, err := s.open(t, "Channels", once).Get(t.Context(), someKey)
	if err != nil {
		t.Fatal(err)
	}
	if n, ok := got.Properties["NaN"].(float64); !ok || n == n {
		t.Errorf("NaN is %v", got.Properties["NaN"])
	}
	delete(got.Properties, "NaN")
	if n, ok := got.Properties["Inf"].(float64); !ok || n > -1e308 {
		t.Errorf("-Infinity is %v", got.Properties["Inf"])
	}
	delete(got.Properties, "Inf")
	want := map[string]any{
		"Five": 5.0, "Point": 5.0, "Exponent": 1000.0, "Small": int32(7), "Truth": true, "Text": "x", "Größe": int32(1), "Long": int64(42),
		"ID": table.GUID("c9da6455-213d-42c9-9a79-3e9149a57833"),
	}
	if len(got.Properties) != len(want) {
		t.Errorf("got %#v", got.Properties)
	}
	for name, value := range want {
		if got.Properties[name] != value {
			t.Errorf("%s is %#v", name, got.Properties[name])
		}
	}
	if !got.Modified.Equal(time.Date(2026, 11, 23, 2, 40, 0, 123456700, time.UTC)) || got.Modified.Location() != time.UTC || got.ETag != `W/"datetime'2026-11-23T02%3A40%3A00Z'"` {
		t.Errorf("got %v, %s", got.Modified, got.ETag)
	}
}

func TestBadLocationsNamesAndOptionsAreRefused(t *testing.T) {
	for _, location := range []string{
		"", "acct", "https://acct.queue.core.windows.net", "http://acct.table.core.windows.net", "https://acct.table.core.windows.net/Blogs?" + someSAS,
		"https://acct.table.core.windows.net/Channels/a?" + someSAS, "AccountName=acct;AccountKey=S3cret!", "https://user:S3cret@acct.table.core.windows.net",
		"https://acct.table.cosmos.azure.com:443/", "AccountName=acct;AccountKey=c2VjcmV0;TableEndpoint=https://acct.table.cosmos.azure.com:443/",
	} {
		if s, err := aztable.Open(location, "Channels", nil); s != nil || !errors.Is(err, table.ErrInvalid) || strings.Contains(err.Error(), "S3cret") || !strings.HasPrefix(err.Error(), "open the table") {
			t.Errorf("%q: %v", location, err)
		}
	}
	for _, name := range []string{"", "ab", "1ab", "a-b-c", "Tables", "tables", "a/b", "äbc", strings.Repeat("a", 64)} {
		if s, err := aztable.Open("UseDevelopmentStorage=true", name, nil); s != nil || !errors.Is(err, table.ErrInvalid) {
			t.Errorf("%q: %v", name, err)
		}
	}
	for _, o := range []aztable.Options{{TryTimeout: -1}, {TryTimeout: 30}, {RetryFor: 30}, {Connections: -1}, {Credential: token{}}} {
		if _, err := aztable.Open("UseDevelopmentStorage=true", "Channels", &o); !errors.Is(err, table.ErrInvalid) {
			t.Errorf("%+v: %v", o, err)
		}
	}
	for _, location := range []string{"https://acct.table.core.windows.net/CHANNELS?" + someSAS, "https://acct.table.core.windows.net"} {
		s, err := aztable.Open(location, "Channels", nil)
		if err != nil {
			t.Fatalf("%s: %v", location, err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// token is a credential.
type token struct{ err error }

func (c token) GetToken(_ context.Context, o policy.TokenRequestOptions) (azcore.AccessToken, error) {
	if len(o.Scopes) != 1 || o.Scopes[0] != "https://storage.azure.com/.default" {
		return azcore.AccessToken{}, errors.New("a token for something else")
	}
	return azcore.AccessToken{Token: "S3cret-token", ExpiresOn: time.Now().Add(time.Hour)}, c.err
}

func TestTokensAreSentAndDeniedOnesExplained(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		kind error
	}{
		"good":        {nil, nil},
		"none":        {azidentity.NewCredentialUnavailableError("no login\nat all"), table.ErrUnauthorized},
		"unreachable": {&net.OpError{Op: "dial", Err: errors.New("refused")}, table.ErrUnavailable},
	} {
		s := newService()
		sent := ""
		channels, err := aztable.Open("https://acct.table.core.windows.net", "Channels", &aztable.Options{Credential: token{c.err}, RetryFor: -1, Transport: transport(func(r *http.Request) (*http.Response, error) {
			sent = r.Header.Get("Authorization")
			r.URL.Path = "/devstoreaccount1" + r.URL.Path
			return s.Do(r)
		})})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := channels.Insert(t.Context(), someEntity()); !errors.Is(err, c.kind) || err != nil && strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", name, err)
		}
		if (sent == "Bearer S3cret-token") != (c.err == nil) {
			t.Errorf("%s: sent %q", name, sent)
		}
	}
}
