package serverwakeup_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azqueue/v2"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azqueue/v2/sas"

	"github.com/millrace/millrace/emulator"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/localqueue"
	"github.com/millrace/millrace/wakeup/serverwakeup"
)

// credential returns an unsigned token, which an emulator on this machine accepts over TLS, or an error.
type credential struct{ err error }

func (c credential) GetToken(_ context.Context, o policy.TokenRequestOptions) (azcore.AccessToken, error) {
	claims, err := json.Marshal(map[string]any{"aud": "https://storage.azure.com", "iss": "https://sts.windows.net/ab1f708d-50f6-404c-a006-d71b2ac7a606/",
		"iat": time.Now().Unix(), "nbf": time.Now().Unix(), "exp": time.Now().Add(time.Hour).Unix(), "oid": "11059fcc-5514-4800-b5f8-49808b9cfab6",
		"tid": "ab1f708d-50f6-404c-a006-d71b2ac7a606"})
	if err != nil || len(o.Scopes) != 1 || o.Scopes[0] != "https://storage.azure.com/.default" {
		return azcore.AccessToken{}, errors.New("unexpected request for a token")
	}
	encode := base64.RawURLEncoding.EncodeToString
	return azcore.AccessToken{Token: encode([]byte(`{"typ":"JWT","alg":"none"}`)) + "." + encode(claims) + "."}, c.err
}

func TestATokenAuthorizesAStream(t *testing.T) {
	inBubble(t, func(b *bundle) {
		const location = "https://millrace.invalid/devstoreaccount1"
		s, err := serverwakeup.Open(location, &serverwakeup.Options{Credential: credential{}, Transport: &http.Client{Transport: b.server}})
		if err != nil {
			b.Fatal(err)
		}
		defer s.Close()
		e := b.subscribe(s)
		e.want(0, 1, 0)
		e.subscription.Ready(false)
		time.Sleep(time.Second)
		e.subscription.Ready(true)
		e.want(0, 2, 0)
		if _, err := serverwakeup.Open(b.server.ConnectionString(), &serverwakeup.Options{Credential: credential{}}); !errors.Is(err, queue.ErrInvalid) {
			b.Errorf("a key and a credential: got %v, want %v", err, queue.ErrInvalid)
		}
	})
}

func TestACredentialThatFailsSendsNothing(t *testing.T) {
	inBubble(t, func(b *bundle) {
		s, err := serverwakeup.Open("https://millrace.invalid/devstoreaccount1",
			&serverwakeup.Options{Credential: credential{errors.New("not logged in")}, Transport: &http.Client{Transport: b.server}})
		if err != nil {
			b.Fatal(err)
		}
		defer s.Close()
		e := b.subscribe(s)
		time.Sleep(time.Hour)
		e.want(0, 0, 0)
		if open, _ := b.requests(); open != 0 {
			b.Errorf("got %d requests, want none", open)
		}
	})
}

// TestARedirectIsNotFollowed shows over sockets that another host gets neither signature nor key.
func TestARedirectIsNotFollowed(t *testing.T) {
	var asked atomic.Int64
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
	defer other.Close()
	done := make(chan struct{}, 1)
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, other.URL+r.URL.RequestURI(), http.StatusTemporaryRedirect)
		select {
		case done <- struct{}{}:
		default:
		}
	}))
	defer proxy.Close()
	for _, o := range []*serverwakeup.Options{nil, {Transport: &http.Client{Transport: new(http.Transport)}}} {
		s, err := serverwakeup.Open(proxy.URL+"/devstoreaccount1?sv=2020-08-04&sig=c2VjcmV0", o)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Subscribe(queue.Name{Account: "devstoreaccount1", Queue: "orders"}, func(queue.Name, int64, time.Time) {}, func(bool) {}); err != nil {
			t.Fatal(err)
		}
		<-done
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if o != nil {
			o.Transport.(*http.Client).CloseIdleConnections()
		}
	}
	if n := asked.Load(); n != 0 {
		t.Errorf("another host got %d requests, want none", n)
	}
}

// TestAStreamOverTLS opens a stream over TLS, and with the certificate of somebody else none.
func TestAStreamOverTLS(t *testing.T) {
	lent := httptest.NewUnstartedServer(nil) // for its certificate
	lent.StartTLS()
	defer lent.Close()
	engine := must(localqueue.New(nil))
	name := queue.Name{Account: emulator.DevelopmentAccount, Queue: "orders"}
	if err := engine.Queue(name).Create(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	endpoint, err := must(emulator.New(engine, nil)).StartTLS("", &tls.Config{Certificates: lent.TLS.Certificates})
	if err != nil {
		t.Fatal(err)
	}
	defer endpoint.Close()
	trusted := x509.NewCertPool()
	trusted.AddCert(lent.Certificate())
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: trusted, ServerName: "example.com"}}
	s, err := serverwakeup.Open(endpoint.ConnectionString(), &serverwakeup.Options{Transport: &http.Client{Transport: transport}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	listening, events := make(chan bool, 10), make(chan event, 10)
	if _, err := s.Subscribe(name, func(q queue.Name, bytes int64, due time.Time) {
		events <- event{q, bytes, due}
	}, func(l bool) { listening <- l }); err != nil {
		t.Fatal(err)
	}
	if !<-listening {
		t.Fatal("got Listening(false), want true")
	}
	if _, err := engine.Queue(name).Enqueue(t.Context(), "abc", nil); err != nil {
		t.Fatal(err)
	}
	if e := <-events; e.Queue != name || e.Bytes != 3 || !e.Due.IsZero() {
		t.Errorf("got %+v, want an event of 3 bytes", e)
	}
	if err := endpoint.Close(); err != nil {
		t.Fatal(err)
	}
	if <-listening {
		t.Error("got Listening(true), want false")
	}
}

// TestASignatureForTheQueueIsEnough opens a stream with a signature that allows processing messages of one
// queue. Every other permission is too little.
func TestASignatureForTheQueueIsEnough(t *testing.T) {
	for allows, want := range map[sas.QueuePermissions]int{{Add: true, Update: true, Read: true}: 0, {Process: true}: 1} {
		inBubble(t, func(b *bundle) {
			key, err := azqueue.NewSharedKeyCredential(emulator.DevelopmentAccount, emulator.DevelopmentKey)
			if err != nil {
				b.Fatal(err)
			}
			client, err := azqueue.NewQueueClientWithSharedKeyCredential("https://127.0.0.1/devstoreaccount1/orders", key, nil) // the SDK knows the account of addresses only
			if err != nil {
				b.Fatal(err)
			}
			location, err := client.GetSASURL(allows, time.Now().Add(time.Hour), nil)
			if err != nil {
				b.Fatal(err)
			}
			e := b.subscribe(b.open(location))
			e.want(0, want, 0)
			if want == 1 {
				e.subscription.Ready(false)
				time.Sleep(time.Second)
				e.subscription.Ready(true)
				e.want(0, 2, 0)
			}
		})
	}
}

// event is what was published, or heard.
type event struct {
	Queue queue.Name
	Bytes int64
	Due   time.Time
}
