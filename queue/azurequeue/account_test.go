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

// TestAnAccountIsWhereItsQueuesAre: an account and a queue are opened at the same
// locations.
func TestAnAccountIsWhereItsQueuesAre(t *testing.T) {
	for _, location := range []string{
		"UseDevelopmentStorage=true",
		"https://acct.queue.core.windows.net",
		"https://acct.queue.core.windows.net/orders?" + someSAS,
		"http://127.0.0.1:10001/devstoreaccount1/orders?" + someSAS,
		"AccountName=acct;AccountKey=" + someKey,
	} {
		a, err := OpenAccount(location, nil)
		if err != nil {
			t.Errorf("%q: %v", location, err)
			continue
		}
		q, err := Open(location, "orders", nil)
		if err != nil {
			t.Fatal(err)
		}
		same, err := a.Open("orders")
		if err != nil || same.Name() != q.Name() || a.Name() != q.Name().Account {
			t.Errorf("%q: %v, %v", location, same, err)
		}
		_, err = a.Open("other")
		if of := strings.Contains(location, "/orders"); of != errors.Is(err, queue.ErrInvalid) || err != nil && !strings.Contains(err.Error(), "has a path that is not the queue name") {
			t.Errorf("%q: opening another queue: %v", location, err)
		}
	}
	for _, bad := range []string{"", "acct", "https://acct.queue.core.windows.net/orders/messages?" + someSAS, "AccountName=acct;AccountKey=S3cret!"} {
		if a, err := OpenAccount(bad, nil); !errors.Is(err, queue.ErrInvalid) || a != nil || strings.Contains(err.Error(), "S3cret") {
			t.Errorf("%q: %v", bad, err)
		}
	}
	if _, err := OpenAccount("UseDevelopmentStorage=true", &Options{Connections: -1}); !errors.Is(err, queue.ErrInvalid) {
		t.Errorf("bad options: %v", err)
	}
}

func TestRequestsOfAList(t *testing.T) {
	for want, o := range map[string]*queue.ListOptions{
		"GET /?comp=list&include=metadata&maxresults=5000":                             nil,
		"GET /?comp=list&include=metadata&marker=%2Fa%2Fb&maxresults=7&prefix=or+%26x": {Prefix: "or &x", Marker: "/a/b", Max: 7},
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
			return answering(503, "")(r)
		})})
		if err != nil {
			t.Fatal(err)
		}
		_, err = a.List(t.Context(), o)
		if got != want || !errors.Is(err, queue.ErrThrottled) {
			t.Errorf("sent %s, %v\nwant %s", got, err, want)
		}
	}
}

// TestAListThatFails: what the service says of the account is not said of a queue.
func TestAListThatFails(t *testing.T) {
	for _, c := range []struct {
		answer canned
		kind   error
		says   string
	}{
		{answering(404, "", "x-ms-error-code", "ResourceNotFound"), queue.ErrInvalid, "check the account's name"},
		{answering(403, "", "x-ms-error-code", "AuthorizationResourceTypeMismatch"), queue.ErrUnauthorized, "permission"},
		{answering(200, `<EnumerationResults ServiceEndpoint="https://acct.queue.core.windows.net/"><Queues><Queue><Name></Name></Queue></Queues></EnumerationResults>`), queue.ErrOutcomeUnknown, "no name of a queue"},
		{answering(200, "<EnumerationResults><Queues><Queue>"), queue.ErrOutcomeUnknown, "EOF"},
	} {
		a, err := OpenAccount("https://acct.queue.core.windows.net?"+someSAS, &Options{Transport: c.answer})
		if err != nil {
			t.Fatal(err)
		}
		page, err := a.List(t.Context(), nil)
		if !errors.Is(err, c.kind) || !strings.Contains(err.Error(), c.says) || !strings.HasPrefix(err.Error(), "list on acct: ") || errors.Is(err, queue.ErrQueueMissing) {
			t.Errorf("%v, want %v that says %q", err, c.kind, c.says)
		}
		if len(page.Queues) != 0 || page.Next != "" {
			t.Errorf("there is an error and a page: %+v", page)
		}
	}
}

// A 200 that is no list of queues must not pass for an account without queues.
func TestA200ThatIsNoListIsNoEmptyAccount(t *testing.T) {
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
		_, err = a.List(t.Context(), nil)
		if !errors.Is(err, queue.ErrOutcomeUnknown) {
			t.Errorf("%s: got %v, want %v", name, err, queue.ErrOutcomeUnknown)
		}
		a.Close()
		s.Close()
	}
}
