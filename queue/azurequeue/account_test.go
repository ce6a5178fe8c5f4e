package azurequeue

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/millrace/millrace/queue"
)

// TestAccountsAndQueuesOpenAtTheSameLocations: OpenAccount and Open accept the same locations.
func TestAccountsAndQueuesOpenAtTheSameLocations(t *testing.T) {
	for _, location := range []string{
		"UseDevelopmentStorage=true",
		"https://acct.queue.core.windows.net",
		"https://acct.queue.core.windows.net/orders?" + someSAS,
		"http://127.0.0.1:10001/devstoreaccount1/orders?" + someSAS,
		"AccountName=acct;AccountKey=" + someKey,
	} {
		a, err := OpenAccount(location, nil)
		if err != nil {
			t.Errorf("%q: got the error %v, want none", location, err)
			continue
		}
		q, err := Open(location, "orders", nil)
		if err != nil {
			t.Fatal(err)
		}
		same, err := a.Open("orders")
		if err != nil || same.Name() != q.Name() || a.Name() != q.Name().Account {
			t.Errorf("%q: opened through the account: got %v, %v; want the same queue", location, same, err)
		}
		_, err = a.Open("other")
		if of := strings.Contains(location, "/orders"); of != errors.Is(err, queue.ErrInvalid) || err != nil && !strings.Contains(err.Error(), "has a path that is not the queue name") {
			t.Errorf("%q: opening another queue: got %v, want success, or ErrInvalid if the location is a queue's address", location, err)
		}
	}
	for _, bad := range []string{"", "acct", "https://acct.queue.core.windows.net/orders/messages?" + someSAS, "AccountName=acct;AccountKey=S3cret!"} {
		if a, err := OpenAccount(bad, nil); !errors.Is(err, queue.ErrInvalid) || a != nil || strings.Contains(err.Error(), "S3cret") {
			t.Errorf("%q: got %v, want ErrInvalid", bad, err)
		}
	}
	if _, err := OpenAccount("UseDevelopmentStorage=true", &Options{Connections: -1}); !errors.Is(err, queue.ErrInvalid) {
		t.Errorf("bad options: got %v, want ErrInvalid", err)
	}
}

func TestListRequests(t *testing.T) {
	for want, o := range map[string]struct {
		prefix, marker string
		limit          int
	}{
		"GET /?comp=list&include=metadata&maxresults=5000":                             {},
		"GET /?comp=list&include=metadata&marker=%2Fa%2Fb&maxresults=7&prefix=or+%26x": {"or &x", "/a/b", 7},
	} {
		var got string
		a, err := OpenAccount("https://acct.queue.core.windows.net?"+someSAS, &Options{Transport: canned(func(r *http.Request) (*http.Response, error) {
			query := r.URL.Query()
			for name := range query {
				if strings.HasPrefix(name, "s") {
					query.Del(name) // the signature's
				}
			}
			got = r.Method + " " + r.URL.EscapedPath() + "?" + query.Encode()
			return responding(503, "")(r)
		})})
		if err != nil {
			t.Fatal(err)
		}
		_, _, err = a.List(t.Context(), o.prefix, o.marker, o.limit)
		if got != want || !errors.Is(err, queue.ErrThrottled) {
			t.Errorf("request: got %s, %v\nwant %s", got, err, want)
		}
	}
}

// TestListErrorsAreOfTheAccount: an error of the service about the account names no queue.
func TestListErrorsAreOfTheAccount(t *testing.T) {
	for _, c := range []struct {
		response canned
		kind     error
		says     string
	}{
		{responding(404, "", "x-ms-error-code", "ResourceNotFound"), queue.ErrInvalid, "check the account's name"},
		{responding(403, "", "x-ms-error-code", "AuthorizationResourceTypeMismatch"), queue.ErrUnauthorized, "permission"},
		{responding(200, `<EnumerationResults ServiceEndpoint="https://acct.queue.core.windows.net/"><Queues><Queue><Name></Name></Queue></Queues></EnumerationResults>`), queue.ErrOutcomeUnknown, "no name of a queue"},
		{responding(200, "<EnumerationResults><Queues><Queue>"), queue.ErrOutcomeUnknown, "EOF"},
	} {
		a, err := OpenAccount("https://acct.queue.core.windows.net?"+someSAS, &Options{Transport: c.response})
		if err != nil {
			t.Fatal(err)
		}
		page, next, err := a.List(t.Context(), "", "", 0)
		if !errors.Is(err, c.kind) || !strings.Contains(err.Error(), c.says) || !strings.HasPrefix(err.Error(), "list on acct: ") || errors.Is(err, queue.ErrQueueMissing) {
			t.Errorf("List: got %v, want %v with %q", err, c.kind, c.says)
		}
		if len(page) != 0 || next != "" {
			t.Errorf("page beside an error: got %+v and the marker %q, want none", page, next)
		}
	}
}

// A 200 that is not a list of queues is not an account without queues.
func TestForeign200IsNotAnEmptyAccount(t *testing.T) {
	for name, page := range foreign {
		if name == "another document" { // to a list of queues it is the right one
			page.body = "<QueueMessagesList></QueueMessagesList>"
		}
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", page.contentType)
			w.Header().Set("x-ms-request-id", "rid-1")
			io.WriteString(w, page.body)
		}))
		a, err := OpenAccount(s.URL+"/acct?"+someSAS, nil)
		if err != nil {
			t.Fatal(err)
		}
		_, _, err = a.List(t.Context(), "", "", 0)
		if !errors.Is(err, queue.ErrOutcomeUnknown) {
			t.Errorf("%s: got %v, want %v", name, err, queue.ErrOutcomeUnknown)
		}
		a.Close()
		s.Close()
	}
}
