package azureblob_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"

	"github.com/millrace/millrace/blob"
	"github.com/millrace/millrace/blob/azureblob"
	"github.com/millrace/millrace/codec/claimcheck"
	"github.com/millrace/millrace/producer"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/localqueue"
)

const someSAS = "sv=2024-11-04&ss=b&srt=sco&sp=rwdl&se=2099-01-01&sig=S3cret%2Fsign%3D"

// operations calls everything, and returns the errors.
func operations(ctx context.Context, s blob.Manager) map[string]error {
	_, open := s.Open(ctx, someRef)
	_, stat := s.Stat(ctx, someRef)
	_, access := s.Public(ctx, someRef.Container)
	var list error
	for _, list = range s.List(ctx, someRef.Container, "") {
	}
	return map[string]error{
		"put": s.Put(ctx, someRef, strings.NewReader("x"), nil), "create": s.Create(ctx, someRef, strings.NewReader("x"), nil),
		"open": open, "stat": stat, "delete": s.Delete(ctx, someRef), "list": list,
		"get access": access, "set access": s.SetPublic(ctx, someRef.Container, true),
	}
}

func TestErrorsSayWhatTheServiceSaid(t *testing.T) {
	for _, c := range []struct {
		status int
		code   string
		kind   error
		hint   string
	}{
		{403, "AuthenticationFailed", blob.ErrUnauthorized, "clock"},
		{403, "AuthorizationPermissionMismatch", blob.ErrUnauthorized, "Storage Blob Data Contributor"},
		{403, "Unheard", blob.ErrUnauthorized, "firewall"},
		{401, "NoAuthenticationInformation", blob.ErrUnauthorized, "credential"},
		{404, "ResourceNotFound", blob.ErrInvalid, "account"},
		{409, "PublicAccessNotPermitted", blob.ErrUnauthorized, "public access"},
		{409, "SnapshotsPresent", blob.ErrInvalid, "snapshots"},
		{412, "LeaseIdMissing", blob.ErrUnauthorized, "lease"},
		{400, "InvalidHeaderValue", blob.ErrInvalid, ""},
		{503, "ServerBusy", blob.ErrUnavailable, ""},
		{500, "OperationTimedOut", blob.ErrUnavailable, ""},
		{429, "TooMany", blob.ErrUnavailable, ""},
		{409, "ContainerBeingDeleted", blob.ErrUnavailable, "wait"},
	} {
		s := newService()
		s.setFault(func(string) fault { return fault{status: c.status, code: c.code} })
		store := s.open(t, azureblob.Options{RetryFor: -1})
		for op, err := range operations(t.Context(), store) {
			known := (*blob.Error)(nil)
			if !errors.Is(err, c.kind) || !errors.As(err, &known) {
				t.Errorf("%s, %s: %v", op, c.code, err)
				continue
			}
			resp := (*azcore.ResponseError)(nil)
			if known.Op != op || known.Ref.Container != "pictures" || known.Status != c.status || known.Code != c.code || known.RequestID != "fake-2" || !errors.As(err, &resp) {
				t.Errorf("%s, %s: %+v", op, c.code, known)
			}
			text := err.Error()
			if !strings.HasPrefix(text, op+" blob://pictures/") || !strings.Contains(text, c.code) || !strings.Contains(known.Hint, c.hint) || strings.Contains(text, "\n") {
				t.Errorf("%s, %s: %q", op, c.code, text)
			}
			if op != "open" && op != "stat" && !strings.HasSuffix(strings.TrimSuffix(text, "; "+known.Hint), "It is "+c.code) && op != "stat" {
				t.Errorf("%s, %s: the service's words are not in %q", op, c.code, text)
			}
		}
		if got := s.arrived(); len(got) != 8 {
			t.Errorf("%s: eight calls sent %v", c.code, got)
		}
	}
}

// TestWhatIsNotTheServicesIsNeverABlob: above all, a proxy's 404 must not make a claim's message
// poison, nor a login page a blob.
func TestWhatIsNotTheServicesIsNeverABlob(t *testing.T) {
	for name, f := range map[string]fault{"404 of a proxy": {status: 404}, "login page": {login: true}, "redirect": {status: 302}, "502": {status: 502},
		"200 of a proxy": {status: 200}, "201 of a proxy": {status: 201}, "202 of a proxy": {status: 202}} {
		s := newService()
		s.setFault(func(string) fault { return f })
		for op, err := range operations(t.Context(), s.open(t, azureblob.Options{RetryFor: -1})) {
			if err == nil || errors.Is(err, blob.ErrMissing) || errors.Is(err, blob.ErrExists) || name != "502" && !strings.Contains(err.Error(), "proxy") {
				t.Errorf("%s: %s: %v", name, op, err)
			}
		}
	}
}

// TestAConditionThatIsNotMetMeansThatTheBlobExists: some servers say it so.
func TestAConditionThatIsNotMetMeansThatTheBlobExists(t *testing.T) {
	s := newService()
	s.setFault(func(op string) fault {
		if strings.HasPrefix(op, "PUT") && op != "PUT block" {
			return fault{status: 412, code: "ConditionNotMet"}
		}
		return fault{}
	})
	for _, size := range []int{10, 3 << 10} {
		if err := s.open(t, azureblob.Options{}).Create(t.Context(), someRef, strings.NewReader(string(content(size))), nil); !errors.Is(err, blob.ErrExists) {
			t.Errorf("create: %v", err)
		}
	}
}

// TestALoginPageForARangeIsNotTheRest: nor is the whole blob where the rest was asked for.
func TestALoginPageForARangeIsNotTheRest(t *testing.T) {
	for name, change := range map[string]func(h http.Header) int{
		"login page":    func(h http.Header) int { clear(h); return 200 },
		"other range":   func(h http.Header) int { h.Set("Content-Range", "bytes 0-299/300"); return 206 },
		"no range":      func(h http.Header) int { h.Del("Content-Range"); return 200 },
		"other version": func(h http.Header) int { h.Set("Etag", `"0x99"`); return 206 },
		"other size":    func(h http.Header) int { h.Set("Content-Length", "7"); return 206 },
	} {
		s := newService()
		store := s.open(t, azureblob.Options{RetryFor: -1, Transport: nil})
		if err := store.Put(t.Context(), someRef, strings.NewReader(string(content(300))), nil); err != nil {
			t.Fatal(err)
		}
		s.setFault(nth("GET", 1, fault{cutResponse: 100}))
		r, err := store.Open(t.Context(), someRef)
		if err != nil {
			t.Fatal(err)
		}
		s.setFault(func(string) fault { return fault{changed: change} })
		if got, err := io.ReadAll(r); !errors.Is(err, blob.ErrUnavailable) || len(got) != 100 || !strings.Contains(err.Error(), "the response has no") {
			t.Errorf("%s: read %d bytes, %v", name, len(got), err)
		}
		r.Close()
	}
}

// TestTheErrorOfAReaderIsReturnedUnchanged: it may be that of another blob.
func TestTheErrorOfAReaderIsReturnedUnchanged(t *testing.T) {
	s := newService()
	store := s.open(t, azureblob.Options{})
	source := blob.Ref{Container: "others", Name: "source"}
	broken := &blob.Error{Op: "read", Ref: source, Kind: blob.ErrChanged}
	err := store.Put(t.Context(), someRef, errorReader{broken}, nil)
	if !errors.Is(err, broken) || !strings.HasPrefix(err.Error(), "put blob://pictures/a/b: read blob://others/source: ") {
		t.Errorf("put: %v", err)
	}
	if got := s.arrived(); len(got) > 0 {
		t.Errorf("sent %v", got)
	}
}

type errorReader struct{ err error }

func (e errorReader) Read([]byte) (int, error) { return 0, e.err }

func TestTimeOutsAndEndsOfContexts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService()
		s.setFault(func(string) fault { return fault{hangs: true} })
		store := s.open(t, azureblob.Options{RetryFor: -1, TryTimeout: 5 * time.Second})
		before := time.Now()
		for op, err := range operations(t.Context(), store) {
			if !errors.Is(err, blob.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "no response within 5s") {
				t.Errorf("%s: %v", op, err)
			}
		}
		if d := time.Since(before); d != 8*5*time.Second {
			t.Errorf("eight calls took %v", d)
		}
		why := errors.New("the worker stops")
		for name, o := range map[string]azureblob.Options{"during a try": {}, "during a wait": {}} {
			s.setFault(func(string) fault { return fault{hangs: name == "during a try", lost: true} })
			store := s.open(t, o)
			for _, op := range []string{"stat", "put"} {
				ctx, cancel := context.WithCancelCause(t.Context())
				time.AfterFunc(time.Second, func() { cancel(why) })
				if err := operations(ctx, store)[op]; !errors.Is(err, why) {
					t.Errorf("%s: %s: %v", name, op, err)
				}
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			if _, err := store.Stat(ctx, someRef); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s: %v", name, err)
			}
			cancel()
		}
	})
}

// TestRequestsAreRepeatedForRetryFor: not longer, and with growing waits.
func TestRequestsAreRepeatedForRetryFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService()
		s.setFault(func(string) fault { return fault{status: 503, code: "ServerBusy"} })
		before := time.Now()
		_, err := s.open(t, azureblob.Options{RetryFor: time.Minute}).Stat(t.Context(), someRef)
		if d := time.Since(before); !errors.Is(err, blob.ErrUnavailable) || d < 50*time.Second || d > time.Minute {
			t.Errorf("after %v: %v", d, err)
		}
		if n := len(s.arrived()); n < 10 || n > 25 {
			t.Errorf("it was tried %d times in a minute", n)
		}
	})
}

// TestARepeatedRequestMayTakeLonger: twice as long, then four times, the last one beyond RetryFor.
func TestARepeatedRequestMayTakeLonger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService()
		s.setFault(func(string) fault { return fault{hangs: true} })
		before := time.Now()
		_, err := s.open(t, azureblob.Options{TryTimeout: 10 * time.Second, RetryFor: time.Minute}).Stat(t.Context(), someRef)
		if d := time.Since(before).Truncate(time.Second); d != 70*time.Second || !strings.Contains(err.Error(), "no response within 40s") {
			t.Errorf("after %v: %v", d, err)
		}
		if n := len(s.arrived()); n != 3 {
			t.Errorf("%d requests were sent, want 3", n)
		}
	})
}

func TestBadLocationsAndOptionsAreRefused(t *testing.T) {
	for _, location := range []string{
		"", "acct", "https://acct.queue.core.windows.net", "http://acct.blob.core.windows.net", "https://acct.blob.core.windows.net/Pictures?" + someSAS,
		"https://acct.blob.core.windows.net/pictures/a?" + someSAS, "AccountName=devstoreaccount1;AccountKey=c2VjcmV0;QueueEndpoint=http://127.0.0.1:10001/devstoreaccount1", "AccountName=acct;AccountKey=S3cret!", "https://user:S3cret@acct.blob.core.windows.net",
	} {
		if s, err := azureblob.Open(location, nil); s != nil || !errors.Is(err, blob.ErrInvalid) || strings.Contains(err.Error(), "S3cret") || !strings.HasPrefix(err.Error(), "open the blob store: ") {
			t.Errorf("%q: %v", location, err)
		}
	}
	for _, o := range []azureblob.Options{
		{TryTimeout: -1}, {TryTimeout: 30}, {RetryFor: 30}, {Connections: -1}, {BlockSize: -1}, {BlockSize: 1023}, {BlockSize: 100<<20 + 1}, {Credential: token{}},
	} {
		if _, err := azureblob.Open("UseDevelopmentStorage=true", &o); !errors.Is(err, blob.ErrInvalid) {
			t.Errorf("%+v: %v", o, err)
		}
	}
	s, err := azureblob.Open("https://acct.blob.core.windows.net/others?"+someSAS, nil)
	if err != nil {
		t.Fatal(err)
	}
	for op, err := range operations(t.Context(), s) {
		if !errors.Is(err, blob.ErrInvalid) || !strings.Contains(err.Error(), `the container "others" alone`) {
			t.Errorf("%s in another container: %v", op, err)
		}
	}
}

// token is a credential.
type token struct{ err error }

func (c token) GetToken(context.Context, policy.TokenRequestOptions) (azcore.AccessToken, error) {
	return azcore.AccessToken{Token: "S3cret-token", ExpiresOn: time.Now().Add(time.Hour)}, c.err
}

func TestTokensAreSentAndDeniedOnesExplained(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		kind error
	}{
		"good":        {nil, nil},
		"none":        {azidentity.NewCredentialUnavailableError("no login\nat all"), blob.ErrUnauthorized},
		"unreachable": {&net.OpError{Op: "dial", Err: errors.New("refused")}, blob.ErrUnavailable},
	} {
		s := newService()
		sent := ""
		store, err := azureblob.Open("https://acct.blob.core.windows.net", &azureblob.Options{Credential: token{c.err}, RetryFor: -1, Transport: transport(func(r *http.Request) (*http.Response, error) {
			sent = r.Header.Get("Authorization")
			r.URL.Path = "/devstoreaccount1" + r.URL.Path
			return s.Do(r)
		})})
		if err != nil {
			t.Fatal(err)
		}
		if err := store.Put(t.Context(), someRef, strings.NewReader("x"), nil); !errors.Is(err, c.kind) || err != nil && strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", name, err)
		}
		if (sent == "Bearer S3cret-token") != (c.err == nil) {
			t.Errorf("%s: sent %q", name, sent)
		}
	}
}

type transport func(*http.Request) (*http.Response, error)

func (t transport) Do(r *http.Request) (*http.Response, error) { return t(r) }

// TestResponseToAnotherRequestIsRefused: it may have another blob's content.
func TestResponseToAnotherRequestIsRefused(t *testing.T) {
	s := newService()
	store := openAt(t, "UseDevelopmentStorage=true", &azureblob.Options{RetryFor: -1, Transport: transport(func(r *http.Request) (*http.Response, error) {
		resp, err := s.Do(r)
		resp.Header.Set("X-Ms-Client-Request-Id", "another")
		return resp, err
	})})
	for op, err := range operations(t.Context(), store) {
		if !errors.Is(err, blob.ErrUnavailable) || !strings.Contains(err.Error(), "another request") {
			t.Errorf("%s: got %v, want ErrUnavailable", op, err)
		}
	}
}

// TestErrorsHaveNoSecrets: neither from the wire nor from a server that repeats our request.
func TestErrorsHaveNoSecrets(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Ms-Request-Id", "x?"+r.URL.RawQuery)
		w.WriteHeader(http.StatusBadRequest)
		io.WriteString(w, "<Error><Code>X</Code><Message>you sent "+strings.ReplaceAll(r.URL.String(), "&", "&amp;")+r.Header.Get("Authorization")+"</Message></Error>")
	}))
	url := server.URL
	check := func(location string) {
		t.Helper()
		s, err := azureblob.Open(location, &azureblob.Options{RetryFor: -1})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		for op, err := range operations(t.Context(), s) {
			if err == nil || strings.Contains(err.Error(), "S3cret") || strings.Contains(err.Error(), "SharedKey devstore") {
				t.Errorf("%s: %v", op, err)
			}
		}
	}
	check(url + "/devstoreaccount1?" + someSAS)
	check("AccountName=a;AccountKey=c2VjcmV0;BlobEndpoint=" + url + "/a")
	server.Close()
	check(url + "/devstoreaccount1?" + someSAS) // nobody listens
}

// refusing is a machine on which nothing listens until a time.
type refusing struct {
	until time.Time
	then  *fakeService
}

func (r *refusing) Do(q *http.Request) (*http.Response, error) {
	if time.Now().Before(r.until) {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connection refused")}
	}
	return r.then.Do(q)
}

// With UseDevelopmentStorage=true nobody waits for two minutes to learn that Azurite has to be started.
func TestAnEmulatorThatIsNotThereIsReportedWithinTwoSeconds(t *testing.T) {
	for name, c := range map[string]struct {
		location    string
		least, most time.Duration
	}{
		"emulator":        {"UseDevelopmentStorage=true", time.Second, 2 * time.Second},
		"another service": {"AccountName=a;AccountKey=c2VjcmV0;BlobEndpoint=http://127.0.0.1:1/a", time.Minute, 2 * time.Minute},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := openAt(t, c.location, &azureblob.Options{Transport: &refusing{until: time.Now().Add(time.Hour)}})
			for _, put := range []int{1, 5 << 20} {
				begun := time.Now()
				err := s.Put(t.Context(), someRef, bytes.NewReader(make([]byte, put)), nil)
				took := time.Since(begun)
				if !errors.Is(err, blob.ErrUnavailable) || !strings.Contains(err.Error(), "start Azurite's blob service there (azurite-blob), or use a directory") {
					t.Errorf("%s, put %d bytes: got %v, want what to do", name, put, err)
				}
				if took < c.least || took > c.most {
					t.Errorf("%s, put %d bytes: got an error after %v, want %v to %v", name, put, took, c.least, c.most)
				}
			}
		})
	}
	synctest.Test(t, func(t *testing.T) { // the emulator is starting
		s := openAt(t, "UseDevelopmentStorage=true", &azureblob.Options{Transport: &refusing{until: time.Now().Add(time.Second / 2), then: newService()}})
		if err := s.Put(t.Context(), someRef, strings.NewReader("x"), nil); err != nil {
			t.Errorf("put into an emulator that starts: got %v, want nil", err)
		}
	})
	synctest.Test(t, func(t *testing.T) { // a setting of the user's
		s := openAt(t, "UseDevelopmentStorage=true", &azureblob.Options{RetryFor: time.Minute, Transport: &refusing{until: time.Now().Add(30 * time.Second), then: newService()}})
		if err := s.Put(t.Context(), someRef, strings.NewReader("x"), nil); err != nil {
			t.Errorf("put with RetryFor: got %v, want nil", err)
		}
	})
}

func TestNobodyListeningIsExplained(t *testing.T) {
	s, err := azureblob.Open("AccountName=a;AccountKey=c2VjcmV0;BlobEndpoint=http://127.0.0.1:1/a", &azureblob.Options{RetryFor: -1})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Stat(t.Context(), someRef); !errors.Is(err, blob.ErrUnavailable) || !strings.Contains(err.Error(), "azurite-blob") {
		t.Errorf("stat: %v", err)
	}
}

// A send whose store is away fails before its 30 s, while there would still be time to send, and says which account it is,
// which blob, and what the account answered. It took all of the 30 s, and the error did not name the account.
func TestASendWhoseStoreIsAwaySaysSoInTime(t *testing.T) {
	for name, c := range map[string]struct {
		fault fault
		says  string
	}{
		"busy":           {fault{status: 503, code: "ServerBusy"}, "503 ServerBusy"},
		"fails":          {fault{status: 500, code: "InternalError"}, "500 InternalError"},
		"cannot be sent": {fault{lost: true}, errCut.Error()},
		"hangs":          {fault{hangs: true}, "the wait for the response ended"},
	} {
		for _, blockSize := range []int{1 << 10, 1 << 20} { // several requests, or one
			synctest.Test(t, func(t *testing.T) {
				s := newService()
				s.setFault(func(string) fault { return c.fault })
				claims, err := claimcheck.New(s.open(t, azureblob.Options{BlockSize: blockSize}), "pictures", &claimcheck.Options{Limit: 100})
				if err != nil {
					t.Fatal(err)
				}
				q := must(localqueue.New(nil)).Queue(queue.Name{Account: "test", Queue: "jobs"})
				if err := q.Create(t.Context(), nil); err != nil {
					t.Fatal(err)
				}
				begin := time.Now()
				_, err = producer.New(q, &producer.Options[string]{Claims: claims}).Send(t.Context(), strings.Repeat("x", 5000), nil)
				if took := time.Since(begin); took != 29*time.Second {
					t.Errorf("%s: it took %v, want 29s", name, took)
				}
				if !errors.Is(err, blob.ErrUnavailable) {
					t.Fatalf("%s: got %v, want %v", name, err, blob.ErrUnavailable)
				}
				for _, want := range []string{"test/jobs", "blob://pictures/bodies/", "account devstoreaccount1", c.says} {
					if !strings.Contains(err.Error(), want) {
						t.Errorf("%s: got %v, want it to say %q", name, err, want)
					}
				}
			})
		}
	}
}

// must returns the value of a constructor that must not fail.
func must[T any](made T, err error) T {
	if err != nil {
		panic(err)
	}
	return made
}
