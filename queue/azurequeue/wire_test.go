package azurequeue

import (
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azqueue/v2"
	"pgregory.net/rapid"

	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/driver"
)

// Requests are those of the Queue service REST API. Visibility timeout and TTL are always sent and
// rounded up, and an update always has its text.
func TestRequests(t *testing.T) {
	var got string
	q := openCanned(t, func(r *http.Request) (*http.Response, error) {
		query := r.URL.Query()
		for name := range query {
			if strings.HasPrefix(name, "s") {
				query.Del(name) // the signature's
			}
		}
		got = r.Method + " " + r.URL.EscapedPath() + "?" + query.Encode()
		if r.Body != nil {
			b, _ := io.ReadAll(r.Body)
			got += " " + strings.TrimPrefix(string(b), `<?xml version="1.0" encoding="UTF-8"?>`+"\n")
			got = strings.TrimSpace(got)
		}
		if len(r.Header["User-Agent"]) != 0 {
			t.Errorf("headers: got %v, want no User-Agent", r.Header)
		}
		return responding(503, "")(r)
	})
	ctx := t.Context()
	for want, do := range map[string]func(){
		"POST /orders/messages?messagettl=-1&visibilitytimeout=0 <QueueMessage><MessageText>a&lt;b</MessageText></QueueMessage>": func() { q.Enqueue(ctx, "a<b", nil) },
		"POST /orders/messages?messagettl=61&visibilitytimeout=3 <QueueMessage><MessageText></MessageText></QueueMessage>": func() {
			q.Enqueue(ctx, "", &queue.EnqueueOptions{TTL: time.Minute + 1, Delay: 2500 * time.Millisecond})
		},
		"GET /orders/messages?numofmessages=32&visibilitytimeout=31": func() { q.Dequeue(ctx, 32, 30*time.Second+time.Nanosecond) },
		"GET /orders/messages?numofmessages=1&visibilitytimeout=1":   func() { q.Dequeue(ctx, 1, time.Second) },
		"GET /orders/messages?numofmessages=7&peekonly=true":         func() { q.Peek(ctx, 7) },
		"PUT /orders/messages/0f7a-1?popreceipt=AgAAAAMAAAAAAAAA%2Frece%2Bipt%3D&visibilitytimeout=0 <QueueMessage><MessageText>x</MessageText></QueueMessage>": func() { q.Update(ctx, someLease, "x", 0) },
		"PUT /orders/messages/a%2Fb%3F?popreceipt=r&visibilitytimeout=2 <QueueMessage><MessageText></MessageText></QueueMessage>": func() {
			q.Update(ctx, queue.Lease{ID: "a/b?", Receipt: "r"}, "", 1500*time.Millisecond)
		},
		"DELETE /orders/messages/0f7a-1?popreceipt=AgAAAAMAAAAAAAAA%2Frece%2Bipt%3D": func() { q.Delete(ctx, someLease) },
		"GET /orders?comp=metadata":                     func() { q.Properties(ctx) },
		"PUT /orders?":                                  func() { q.Create(ctx, nil) },
		"PUT /orders?comp=metadata":                     func() { q.SetMetadata(ctx, nil) },
		"DELETE /orders/messages?":                      func() { q.Clear(ctx) },
		"DELETE /orders?":                               func() { q.Drop(ctx) },
		"DELETE /orders-poison/messages/1?popreceipt=r": func() { q.Sibling("-poison").Delete(ctx, queue.Lease{ID: "1", Receipt: "r"}) },
	} {
		got = ""
		if do(); got != want {
			t.Errorf("request: got %s\nwant %s", got, want)
		}
	}
}

// What is sent without azqueue is what azqueue sends, with the same signature.
func TestRequestsAreThoseOfAzqueue(t *testing.T) {
	const key = "AccountName=acct;AccountKey=c2VjcmV0;QueueEndpoint="
	var sent *http.Request
	var body []byte
	catch := canned(func(r *http.Request) (*http.Response, error) {
		sent, body = r, nil
		if r.Body != nil {
			body, _ = io.ReadAll(r.Body)
		}
		return responding(503, "")(r)
	})
	for _, location := range []string{
		key + "https://acct.queue.core.windows.net/", key + "http://127.0.0.1:10001/acct", key + "https://proxy.example/a//b/../c d/%7Ee",
		"https://acct.queue.core.windows.net/?" + someSAS, "AccountName=acct;QueueEndpoint=https://proxy.example/a%20b;SharedAccessSignature=&sv=1&sdd=a b\"\u00e9&sig=+/=",
	} {
		at, err := parse(location)
		if err != nil {
			t.Fatal(err)
		}
		q, err := Open(location, "orders", &Options{Transport: catch})
		if err != nil {
			t.Fatal(err)
		}
		rapid.Check(t, func(t *rapid.T) {
			ctx := t.Context()
			text := rapid.OneOf(rapid.StringMatching(`[A-Za-z0-9+/=]{0,100}`), rapid.String()).Filter(func(s string) bool { return driver.CheckText(s) == nil }).Draw(t, "text")
			id := rapid.OneOf(rapid.StringMatching(`[0-9a-f-]{36}`), rapid.StringN(1, 40, -1)).Filter(func(s string) bool { return checkID(queue.ID(s)) == nil }).Draw(t, "id")
			receipt := rapid.StringN(1, 40, -1).Draw(t, "receipt")
			seconds, n := rapid.Int32Range(1, 1000).Draw(t, "seconds"), rapid.Int32Range(1, 32).Draw(t, "n")
			wait := time.Duration(seconds) * time.Second
			for _, c := range []struct{ ours, theirs func() }{
				{func() { q.Enqueue(ctx, text, &queue.EnqueueOptions{Delay: wait, TTL: 2 * wait}) },
					func() {
						client(q).EnqueueMessage(ctx, text, &azqueue.EnqueueMessageOptions{VisibilityTimeout: &seconds, TimeToLive: new(2 * seconds)})
					}},
				{func() { q.Dequeue(ctx, int(n), wait) },
					func() {
						client(q).DequeueMessages(ctx, &azqueue.DequeueMessagesOptions{NumberOfMessages: &n, VisibilityTimeout: &seconds})
					}},
				{func() { q.Peek(ctx, int(n)) },
					func() { client(q).PeekMessages(ctx, &azqueue.PeekMessagesOptions{NumberOfMessages: &n}) }},
				{func() { q.Delete(ctx, queue.Lease{ID: queue.ID(id), Receipt: queue.Receipt(receipt)}) },
					func() { client(q).DeleteMessage(ctx, url.PathEscape(id), receipt, nil) }},
			} {
				c.ours()
				ours, oursBody := sent, body
				c.theirs()
				if ours.Method != sent.Method || ours.URL.EscapedPath() != sent.URL.EscapedPath() || ours.URL.Host != sent.URL.Host || ours.URL.Scheme != sent.URL.Scheme ||
					!slices.Equal(parameters(ours), parameters(sent)) || ours.ContentLength != sent.ContentLength || string(oursBody) != string(body) {
					t.Fatalf("got %s %v with %d bytes %q\nwant, as from azqueue, %s %v with %d bytes %q", ours.Method, ours.URL, ours.ContentLength, oursBody, sent.Method, sent.URL, sent.ContentLength, body)
				}
				for name, values := range sent.Header {
					mine := ours.Header[http.CanonicalHeaderKey(name)]
					switch http.CanonicalHeaderKey(name) {
					case "X-Ms-Date", "X-Ms-Client-Request-Id", "Authorization":
						if len(mine) != 1 {
							t.Errorf("header %s: got %q, want one", name, mine)
						}
					default:
						if !slices.Equal(mine, values) {
							t.Errorf("header %s: got %q, want %q", name, mine, values)
						}
					}
				}
				if len(ours.Header) != len(sent.Header) {
					t.Errorf("headers: got %v, want those of %v", ours.Header, sent.Header)
				}
				signed := sent.Header.Get("Authorization")
				if at.Sign(sent); sent.Header.Get("Authorization") != signed {
					t.Fatalf("signature of %s %v: got %s, want, as from azqueue, %s", sent.Method, sent.URL, sent.Header.Get("Authorization"), signed)
				}
			}
		})
	}
}

// parameters returns the parameters of a request in order, as they are on the wire.
func parameters(r *http.Request) []string {
	return slices.Sorted(strings.SplitSeq(r.URL.RawQuery, "&"))
}

// Sign signs as azqueue does if a request already has a date, no query, or one whose parameters are
// repeated, escaped, and in another order.
func TestSignaturesAreThoseOfAzqueue(t *testing.T) {
	at, err := parse("AccountName=acct;AccountKey=c2VjcmV0;QueueEndpoint=https://acct.queue.core.windows.net/")
	if err != nil {
		t.Fatal(err)
	}
	key, err := azqueue.NewSharedKeyCredential(at.Account, at.Key)
	if err != nil {
		t.Fatal(err)
	}
	for _, query := range []string{"", "?a=10&a=1&a=&a%20b=%2Fc&comp=x&maxresults=5"} {
		sdk := sdkOptions(canned(func(r *http.Request) (*http.Response, error) {
			want := r.Header.Get("Authorization")
			first, rest, _ := strings.Cut(r.URL.RawQuery, "&")
			r.URL.RawQuery = strings.Trim(rest+"&&"+first, "&")
			if at.Sign(r); want == "" || r.Header.Get("Authorization") != want {
				t.Errorf("signature of %v: got %s, want, as from azqueue, %s", r.URL, r.Header.Get("Authorization"), want)
			}
			return responding(503, "")(r)
		}))
		sdk.PerRetryPolicies = append(sdk.PerRetryPolicies, dated{})
		c, err := azqueue.NewQueueClientWithSharedKeyCredential(at.Endpoint+"orders"+query, key, sdk)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Create(t.Context(), nil); err == nil {
			t.Error("create: got no error, want one")
		}
	}
}

// dated is a policy that dates requests.
type dated struct{}

func (dated) Do(r *policy.Request) (*http.Response, error) {
	r.Raw().Header.Set("X-Ms-Date", "Sat, 01 Jan 2000 00:00:00 GMT")
	return r.Next()
}
