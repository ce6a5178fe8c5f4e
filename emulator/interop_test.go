package emulator

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azqueue/v2"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azqueue/v2/queueerror"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azqueue/v2/sas"

	"github.com/millrace/millrace/queue/localqueue"
)

// overTLS starts an endpoint with TLS and returns it with a transport that trusts it.
func overTLS(t *testing.T, s *Server) (*Endpoint, *http.Transport) {
	t.Helper()
	certificate, roots := selfSigned(t)
	e, err := s.StartTLS("", configOf(certificate))
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, ForceAttemptHTTP2: true}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return e, transport
}

// fakeCredential returns unsigned tokens.
type fakeCredential struct{ claims map[string]any }

func (f fakeCredential) GetToken(_ context.Context, o policy.TokenRequestOptions) (azcore.AccessToken, error) {
	if len(o.Scopes) != 1 || o.Scopes[0] != "https://storage.azure.com/.default" {
		return azcore.AccessToken{}, errors.New("asked for another scope")
	}
	return azcore.AccessToken{Token: token(f.claims), ExpiresOn: time.Now().Add(time.Hour)}, nil
}

func developmentKey(t *testing.T) *azqueue.SharedKeyCredential {
	t.Helper()
	c, err := azqueue.NewSharedKeyCredential(DevelopmentAccount, DevelopmentKey)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestAzqueueWithTokens(t *testing.T) {
	e, transport := overTLS(t, must(New(nil, nil)))
	c, err := azqueue.NewServiceClient(e.URL(), fakeCredential{}, clientOptions(transport))
	if err != nil {
		t.Fatal(err)
	}
	q := c.NewQueueClient("orders")
	if _, err := q.Create(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if _, err := q.EnqueueMessage(t.Context(), "hello", nil); err != nil {
		t.Fatal(err)
	}
	if got, err := q.DequeueMessage(t.Context(), nil); err != nil || len(got.Messages) != 1 {
		t.Fatalf("dequeued: got %v, %v; want one message", got.Messages, err)
	}
	if c, err = azqueue.NewServiceClient(e.URL(), fakeCredential{map[string]any{"aud": "https://vault.azure.net"}}, clientOptions(transport)); err != nil {
		t.Fatal(err)
	}
	if _, err := c.CreateQueue(t.Context(), "others", nil); !queueerror.HasCode(err, queueerror.InvalidAuthenticationInfo) {
		t.Fatalf("create with a token for another audience: got %v, want InvalidAuthenticationInfo", err)
	}
}

// scopedCredential returns tokens whose audience is the requested scope: valid for storage only
// with the scope that the service's challenge names.
type scopedCredential struct{ scopes []string }

func (c *scopedCredential) GetToken(_ context.Context, o policy.TokenRequestOptions) (azcore.AccessToken, error) {
	c.scopes = append(c.scopes, o.Scopes...)
	audience := strings.TrimSuffix(o.Scopes[0], "/.default")
	return azcore.AccessToken{Token: token(map[string]any{"aud": audience}), ExpiresOn: time.Now().Add(time.Hour)}, nil
}

// TestAzqueueFollowsChallenge: a client whose first token is for something else gets a challenge
// with the right scope, and uses it.
func TestAzqueueFollowsChallenge(t *testing.T) {
	e, transport := overTLS(t, must(New(nil, nil)))
	credential := &scopedCredential{}
	options := clientOptions(transport)
	options.Audience = "https://elsewhere.example"
	q, err := azqueue.NewQueueClient(e.URL()+"/orders", credential, options)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := q.Create(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(credential.scopes, " "); got != "https://elsewhere.example/.default https://storage.azure.com/.default" {
		t.Errorf("requested scopes: got %s, want those of elsewhere.example and storage.azure.com", got)
	}
}

// TestTLSEndpointRefusesPlainHTTP: an endpoint with TLS serves no plain request, and Close does not wait for a handshake.
func TestTLSEndpointRefusesPlainHTTP(t *testing.T) {
	s := must(New(nil, nil))
	e, transport := overTLS(t, s)
	r := signed("GET", "?comp=list", "")
	r.URL.Host, r.Host = e.Addr().String(), ""
	if a := send(t, transport, r); a.status != http.StatusBadRequest || a.header.Get("x-ms-request-id") != "" {
		t.Errorf("plain request: got status %d, want 400 from net/http: %s", a.status, a.body)
	}
	conn, err := net.Dial("tcp", e.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close() // after the endpoint, which must not wait for a handshake
	if n := s.Counts().Requests(); n != 0 {
		t.Errorf("requests: got %d, want 0", n)
	}
}

func TestAzqueueWithAccountSAS(t *testing.T) {
	e, transport := overTLS(t, must(New(nil, nil)))
	service, err := azqueue.NewServiceClientWithSharedKeyCredential(e.URL(), developmentKey(t), clientOptions(transport))
	if err != nil {
		t.Fatal(err)
	}
	// GetSASURL makes signatures for https only.
	address, err := service.GetSASURL(sas.AccountResourceTypes{Service: true, Container: true, Object: true},
		sas.AccountPermissions{Create: true, Add: true, Read: true, List: true}, time.Now().Add(time.Hour), nil)
	if err != nil {
		t.Fatal(err)
	}
	c, err := azqueue.NewServiceClientWithNoCredential(address, clientOptions(transport))
	if err != nil {
		t.Fatal(err)
	}
	q := c.NewQueueClient("orders")
	if _, err := q.Create(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if _, err := q.EnqueueMessage(t.Context(), "hello", nil); err != nil {
		t.Fatal(err)
	}
	if got, err := q.PeekMessage(t.Context(), nil); err != nil || len(got.Messages) != 1 {
		t.Fatalf("peeked: got %v, %v; want one message", got.Messages, err)
	}
	if _, err := q.DequeueMessage(t.Context(), nil); !queueerror.HasCode(err, queueerror.AuthorizationPermissionMismatch) {
		t.Fatalf("dequeue without the permission p: got %v, want AuthorizationPermissionMismatch", err)
	}
	page, err := c.NewListQueuesPager(nil).NextPage(t.Context())
	if err != nil || len(page.Queues) != 1 {
		t.Fatalf("listed: got %v, %v; want one queue", page.Queues, err)
	}
}

// TestAzqueueWithStoredPolicies changes the stored access policy of a SAS, on fake time, until it
// expires.
func TestAzqueueWithStoredPolicies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := must(New(nil, nil))
		owner := service(t, s.ConnectionString(), s).NewQueueClient("orders")
		must := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		_, err := owner.Create(t.Context(), nil)
		must(err)
		set := func(permission string) {
			t.Helper()
			_, err := owner.SetAccessPolicy(t.Context(), &azqueue.SetAccessPolicyOptions{QueueACL: []*azqueue.SignedIdentifier{{
				ID:           to.Ptr("workers"),
				AccessPolicy: &azqueue.AccessPolicy{Start: to.Ptr(time.Now()), Expiry: to.Ptr(time.Now().Add(time.Hour)), Permission: to.Ptr(permission)},
			}}})
			must(err)
		}
		set("ap")
		got, err := owner.GetAccessPolicy(t.Context(), nil)
		must(err)
		if len(got.SignedIdentifiers) != 1 || *got.SignedIdentifiers[0].AccessPolicy.Permission != "ap" || !got.SignedIdentifiers[0].AccessPolicy.Expiry.Equal(time.Now().Add(time.Hour)) {
			t.Fatalf("policies: got %+v, want one with ap for an hour", got.SignedIdentifiers)
		}
		values := sas.QueueSignatureValues{Protocol: sas.ProtocolHTTPSandHTTP, QueueName: "orders", Identifier: "workers"}
		signed, err := values.SignWithSharedKey(developmentKey(t))
		must(err)
		worker, err := azqueue.NewQueueClientWithNoCredential(s.URL()+"/orders?"+signed.Encode(), clientOptions(s))
		must(err)
		_, err = worker.EnqueueMessage(t.Context(), "hello", nil)
		must(err)
		m, err := worker.DequeueMessage(t.Context(), nil)
		must(err)
		if _, err := worker.PeekMessage(t.Context(), nil); !queueerror.HasCode(err, queueerror.AuthorizationPermissionMismatch) {
			t.Fatalf("peek without r: got %v, want AuthorizationPermissionMismatch", err)
		}
		set("r") // revokes the other permissions
		if _, err := worker.DeleteMessage(t.Context(), *m.Messages[0].MessageID, *m.Messages[0].PopReceipt, nil); !queueerror.HasCode(err, queueerror.AuthorizationPermissionMismatch) {
			t.Fatalf("delete without p: got %v, want AuthorizationPermissionMismatch", err)
		}
		set("p")
		_, err = worker.DeleteMessage(t.Context(), *m.Messages[0].MessageID, *m.Messages[0].PopReceipt, nil)
		must(err)
		time.Sleep(time.Hour)
		if _, err := worker.DequeueMessage(t.Context(), nil); !queueerror.HasCode(err, queueerror.AuthenticationFailed) {
			t.Fatalf("dequeue after the expiry: got %v, want AuthenticationFailed", err)
		}
	})
}

func TestAzqueueServiceProperties(t *testing.T) {
	s := must(New(nil, nil))
	c := service(t, s.ConnectionString(), s)
	retention := &azqueue.RetentionPolicy{Enabled: to.Ptr(true), Days: to.Ptr(int32(7))}
	if _, err := c.SetProperties(t.Context(), &azqueue.SetPropertiesOptions{
		Logging:     &azqueue.Logging{Version: to.Ptr("1.0"), Read: to.Ptr(true), Write: to.Ptr(false), Delete: to.Ptr(true), RetentionPolicy: retention},
		HourMetrics: &azqueue.Metrics{Version: to.Ptr("1.0"), Enabled: to.Ptr(true), IncludeAPIs: to.Ptr(true), RetentionPolicy: retention},
		CORS: []*azqueue.CORSRule{{AllowedOrigins: to.Ptr("https://x.example"), AllowedMethods: to.Ptr("GET"), AllowedHeaders: to.Ptr(""), ExposedHeaders: to.Ptr("x-ms-*"),
			MaxAgeInSeconds: to.Ptr(int32(60))}},
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.SetProperties(t.Context(), &azqueue.SetPropertiesOptions{
		MinuteMetrics: &azqueue.Metrics{Version: to.Ptr("1.0"), Enabled: to.Ptr(false), RetentionPolicy: &azqueue.RetentionPolicy{Enabled: to.Ptr(false)}},
	}); err != nil {
		t.Fatal(err)
	}
	got, err := c.GetServiceProperties(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if !*got.Logging.Read || *got.Logging.Write || *got.Logging.RetentionPolicy.Days != 7 || !*got.HourMetrics.IncludeAPIs || *got.MinuteMetrics.Enabled ||
		len(got.CORS) != 1 || *got.CORS[0].ExposedHeaders != "x-ms-*" || *got.CORS[0].MaxAgeInSeconds != 60 {
		t.Fatalf("properties: got %+v, want those of both calls", got)
	}
}

func TestAzqueueStatistics(t *testing.T) {
	s := must(New(nil, nil))
	secondary, err := azqueue.NewServiceClientWithSharedKeyCredential(s.URL()+"-secondary", developmentKey(t), clientOptions(s))
	if err != nil {
		t.Fatal(err)
	}
	got, err := secondary.GetStatistics(t.Context(), nil)
	if err != nil || *got.GeoReplication.Status != azqueue.GeoReplicationStatusLive || time.Since(*got.GeoReplication.LastSyncTime) > time.Minute {
		t.Fatalf("statistics: got %+v, %v; want live and a sync time of now", got, err)
	}
	if _, err := secondary.CreateQueue(t.Context(), "orders", nil); !queueerror.HasCode(err, queueerror.InsufficientAccountPermissions) {
		t.Fatalf("write: got %v, want InsufficientAccountPermissions", err)
	}
	if _, err := service(t, s.ConnectionString(), s).GetStatistics(t.Context(), nil); !queueerror.HasCode(err, queueerror.InvalidQueryParameterValue) {
		t.Fatalf("statistics of the primary location: got %v, want InvalidQueryParameterValue", err)
	}
}

// TestAzqueueHostStyle uses the addresses of the service itself, with a transport that dials the
// endpoint.
func TestAzqueueHostStyle(t *testing.T) {
	e, err := must(New(must(localqueue.New(&localqueue.Options{DeletingFor: -1})), &Options{Hosts: []string{DevelopmentAccount + ".queue.core.windows.net"}})).Start("")
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	transport := &http.Transport{DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, e.Addr().String())
	}}
	defer transport.CloseIdleConnections()
	connection := "DefaultEndpointsProtocol=http;AccountName=" + DevelopmentAccount + ";AccountKey=" + DevelopmentKey + ";EndpointSuffix=core.windows.net;"
	useAzqueue(t, service(t, connection, transport))
}

// TestUserDelegation gets a key with a token and signs with it.
func TestUserDelegation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // the second must not change between two uses of a time
		w := newFixture(t)
		s := w.server()
		post := func(body string) string {
			t.Helper()
			r := w.request(t, inProcess, exchange{secure: true, verb: "POST", path: "/?restype=service&comp=userdelegationkey", body: body, change: withToken(nil)})
			a := do(t, s, r)
			if a.status != http.StatusOK {
				t.Fatal(a.body)
			}
			return between(a.body, "Value")[0]
		}
		key := post(keyInfo(inHours(-1), inHours(2)))
		if other := post(keyInfo(inHours(-1), inHours(3))); other == key {
			t.Error("the key for another expiry is the same")
		}
		bound := post("<KeyInfo><Start>" + inHours(-1) + "</Start><Expiry>" + inHours(2) + "</Expiry><DelegatedUserTid>" + tenant + "</DelegatedUserTid></KeyInfo>")
		for name, c := range map[string]struct {
			change func(*http.Request)
			path   string
			code   string
		}{
			"get":               {delegationSAS("orders", key), "/orders/messages", ""},
			"peek":              {delegationSAS("orders", key, "sp", "r"), "/orders/messages?peekonly=true", ""},
			"without p":         {delegationSAS("orders", key, "sp", "r"), "/orders/messages", "AuthorizationPermissionMismatch"},
			"other queue":       {delegationSAS("full", key), "/orders/messages", "AuthenticationFailed"},
			"other key expiry":  {delegationSAS("orders", key, "ske", inHours(3)), "/orders/messages", "AuthenticationFailed"},
			"other user":        {delegationSAS("orders", key, "skoid", tenant), "/orders/messages", "AuthenticationFailed"},
			"expired":           {delegationSAS("orders", key, "se", inHours(-1)), "/orders/messages", "AuthenticationFailed"},
			"no expiry":         {delegationSAS("orders", key, "se", ""), "/orders/messages", "AuthenticationFailed"},
			"from elsewhere":    {delegationSAS("orders", key, "sip", "10.0.0.1"), "/orders/messages", "AuthorizationSourceIPMismatch"},
			"changed":           {then(delegationSAS("orders", key, "sp", "r"), withParameter("sp", "rp")), "/orders/messages", "AuthenticationFailed"},
			"bound":             {then(delegationSAS("orders", bound, "sduoid", user, "skdutid", tenant), authorizedBy("Bearer "+token(nil))), "/orders/messages", ""},
			"bound, no token":   {delegationSAS("orders", bound, "sduoid", user, "skdutid", tenant), "/orders/messages", "InvalidAuthenticationInfo"},
			"bound, other user": {then(delegationSAS("orders", bound, "sduoid", user, "skdutid", tenant), authorizedBy("Bearer "+token(map[string]any{"oid": "other"}))), "/orders/messages", "AuthenticationFailed"},
		} {
			a := do(t, s, w.request(t, inProcess, exchange{secure: true, verb: "GET", path: c.path, change: c.change}))
			if got := a.header.Get("x-ms-error-code"); got != c.code || strings.Contains(a.body, key) {
				t.Errorf("%s: got code %q, want %q, without the key in the body: %s", name, got, c.code, a.body)
			}
		}
	})
}

// TestDelegationKeyExpires: a signature is invalid after the expiry of the delegation key that
// signed it.
func TestDelegationKeyExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFixture(t)
		s := w.server()
		a := do(t, s, w.request(t, inProcess, exchange{secure: true, verb: "POST", path: "/?restype=service&comp=userdelegationkey",
			body: keyInfo(inHours(-1), inHours(2)), change: withToken(nil)}))
		key := between(a.body, "Value")[0]
		r := w.request(t, inProcess, exchange{verb: "GET", path: "/full/messages", change: delegationSAS("full", key, "se", inHours(3))})
		for hour, status := range []int{200, 200, 403} {
			if a := do(t, s, r); a.status != status {
				t.Errorf("after %d hours: got status %d, want %d: %s", hour, a.status, status, a.body)
			}
			time.Sleep(time.Hour)
		}
	})
}

func TestPublicServer(t *testing.T) {
	key := []byte("a key of this test alone")
	s := must(New(nil, &Options{Public: true, Accounts: map[string][]byte{"shop": key, "zoo": key}}))
	e, err := s.Start("0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	if !strings.HasPrefix(e.URL(), "http://127.0.0.1:") || !strings.HasSuffix(e.URL(), "/shop") || !strings.Contains(e.ConnectionString(), "AccountName=shop;AccountKey="+base64.StdEncoding.EncodeToString(key)+";") {
		t.Errorf("got URL %s and connection string %s, want 127.0.0.1 and the account shop with its key", e.URL(), e.ConnectionString())
	}
	if _, err := service(t, e.ConnectionString(), transport).CreateQueue(t.Context(), "orders", nil); err != nil {
		t.Error(err)
	}
	zoo, err := e.AccountConnectionString("zoo")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := service(t, zoo, transport).CreateQueue(t.Context(), "orders", nil); err != nil {
		t.Error(err)
	}
	if _, err := e.AccountConnectionString(DevelopmentAccount); err == nil || !strings.Contains(err.Error(), "no account") {
		t.Errorf("connection string of the development account: got %v, want an error", err)
	}
	w := newFixture(t)
	if a := do(t, s, w.request(t, inProcess, exchange{verb: "GET", path: "/?comp=list"})); a.status != 404 {
		t.Errorf("request for the development account: got status %d, want 404", a.status)
	}
	if a := do(t, s, w.request(t, inProcess, exchange{account: "shop", secure: true, verb: "GET", path: "/?comp=list", change: withToken(nil)})); a.status != 403 {
		t.Errorf("request with a token: got status %d, want 403", a.status)
	}
	if s, err := New(nil, &Options{Public: true}); err == nil || !strings.Contains(err.Error(), "no accounts") {
		t.Errorf("New without accounts: got %v, %v; want an error", s, err)
	}
	if s, err := New(nil, &Options{Accounts: map[string][]byte{"shop": nil}}); err == nil || !strings.Contains(err.Error(), "empty key") {
		t.Errorf("New with an empty key: got %v, %v; want an error", s, err)
	}
	if e, err := s.StartTLS("", nil); err == nil || !strings.Contains(err.Error(), "without a certificate") {
		t.Errorf("StartTLS without a certificate: got %v, %v; want an error", e, err)
	}
}

// TestPublicServerRefusesWeakKeys: only a public server refuses a key that everyone knows or can
// guess, whatever the account's name.
func TestPublicServerRefusesWeakKeys(t *testing.T) {
	zeros := append([]byte{1}, make([]byte, 63)...) // to HMAC the same key as {1}
	for name, c := range map[string]struct {
		key  []byte
		want string // part of the error; "" for no error
	}{
		"well-known":               {wellKnownKey(), "everyone knows"},
		"one byte":                 {[]byte{1}, "can guess"},
		"one byte, and zeros":      {zeros, "can guess"},
		"fifteen bytes":            {[]byte("fifteen bytes i"), "can guess"},
		"sixteen bytes":            {[]byte("sixteen bytes it"), ""},
		"the well-known, and more": {append(wellKnownKey(), 0), ""}, // a different key
	} {
		for _, account := range []string{DevelopmentAccount, "shop"} {
			for _, public := range []bool{true, false} {
				_, err := New(nil, &Options{Public: public, Accounts: map[string][]byte{account: c.key, "good": []byte("a key of this test alone")}})
				if want := c.want != "" && public; (err != nil) != want || want && !strings.Contains(err.Error(), c.want) {
					t.Errorf("%s, account %s, public %v: got the error %v, want %q if public", name, account, public, err, c.want)
				}
			}
		}
	}
}

func TestDevelopmentAccountWithOwnKey(t *testing.T) {
	s := must(New(nil, &Options{Accounts: map[string][]byte{DevelopmentAccount: []byte("mine")}}))
	if !strings.Contains(s.ConnectionString(), "AccountKey="+base64.StdEncoding.EncodeToString([]byte("mine"))+";") {
		t.Errorf("connection string: got %s, want the key given", s.ConnectionString())
	}
	if _, err := service(t, s.ConnectionString(), s).CreateQueue(t.Context(), "orders", nil); err != nil {
		t.Error(err)
	}
	if a := do(t, s, signed("GET", "?comp=list", "")); a.status != 403 {
		t.Errorf("request signed with the public key: got status %d, want 403", a.status)
	}
}
