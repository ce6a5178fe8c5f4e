package emulator

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/localqueue"
)

// received returns a request as the server sees it when it begins to check the signature, or
// false if it refuses the request before.
func received(s *Server, r *http.Request) (*call, bool) {
	c := &call{server: s, request: r, header: http.Header{}}
	return c, c.route() == nil && c.accountState != nil && s.checkDate(r.Header) == nil && (!c.secondary || c.verb.traits&reads != 0)
}

// signedTexts returns the strings to sign with which a request is accepted; none if it is refused
// whatever was signed.
func signedTexts(c *call, scheme signingScheme) []string {
	if scheme.check(c) != nil {
		return nil
	}
	resources := []string{c.resource}
	if primary, ok := c.primaryResource(); ok {
		resources = append(resources, primary)
	}
	var texts []string
	for _, resource := range resources {
		for _, c.collated = range []bool{false, true} {
			texts = append(texts, string(scheme.appendText(c, nil, resource)))
		}
	}
	return texts
}

// meaning returns what a request does, as far as its signature must protect it. The secondary
// location reads the same data as the primary one.
func meaning(c *call, lite bool) string {
	h := c.request.Header
	metadata, f := c.metadata()
	what := string(c.operation)
	if lite { // lite does not sign the parameters that distinguish some operations
		what = c.request.Method
	}
	said := []string{what, c.account, c.queue, c.message, h.Get("Content-Md5"), h.Get("X-Ms-Version"), fmt.Sprint(metadata, f)}
	for _, p := range c.query.sorted() {
		if !lite || p.name == "comp" {
			said = append(said, p.name+"="+p.value)
		}
	}
	if !lite {
		said = append(said, fmt.Sprint(max(c.request.ContentLength, 0)))
	}
	return fmt.Sprintf("%q", said)
}

// meanings are meanings of requests by string to sign. Two requests with the same string must have
// the same meaning.
type meanings map[string]string

func (s meanings) add(t *rapid.T, text, meaning string) {
	if before, ok := s[text]; ok && before != meaning {
		t.Fatalf("two requests have the same string to sign\n%q\n%s\n%s", text, before, meaning)
	}
	s[text] = meaning
}

// fewLetters draws short texts that are often equal, also when joined.
func fewLetters(letters string) *rapid.Generator[string] {
	return rapid.StringOfN(rapid.RuneFrom([]rune(letters)), 0, 3, -1)
}

// atATime is the number of requests that are compared with each other.
const atATime = 200

// TestSharedKeyTellsParametersApart: no two requests with different parameters have the same
// string to sign.
func TestSharedKeyTellsParametersApart(t *testing.T) {
	if testing.Short() {
		t.Skip("a sweep over parameters")
	}
	s := must(New(nil, nil))
	rapid.Check(t, func(t *rapid.T) {
		known, taken := meanings{}, 0
		for range atATime {
			q := make([]string, rapid.IntRange(0, 3).Draw(t, "parameters"))
			for i := range q {
				q[i] = url.QueryEscape(fewLetters("a:\n,").Draw(t, "name")) + "=" + url.QueryEscape(fewLetters("a:\n,").Draw(t, "value"))
			}
			r := signed("GET", "/orders/messages?"+strings.Join(q, "&"), "")
			c, ok := received(s, r)
			if !ok {
				continue
			}
			for _, text := range signedTexts(c, sharedKey) {
				taken++
				known.add(t, text, meaning(c, false))
			}
		}
		if taken == 0 {
			t.Fatal("nothing was compared")
		}
	})
}

// TestSharedKeyTellsHeadersApart: no two requests with different headers have the same string
// to sign, in one scheme or in two.
func TestSharedKeyTellsHeadersApart(t *testing.T) {
	if testing.Short() {
		t.Skip("a sweep over headers")
	}
	s := must(New(nil, nil))
	date := time.Now().UTC().Format(http.TimeFormat)
	values := rapid.SampledFrom([]string{"1", "2", "1,2", "1:2", "1\n", "1\nx-ms-meta-b:2", "1\n2", "\u00a01"})
	pairs := rapid.SampledFrom([][]string{{"X-Ms-Meta-A", "X-Ms-Meta-B"}, {"X-Ms-Meta-A", "X-Ms-Meta-A:1"}, {"X-Ms-Meta-A:1\nx-ms-meta-b", "X-Ms-Meta-B"},
		{"X-Ms-Version", "X-Ms-Meta-A"}, {"Content-Md5", "Content-Type"}, {"Content-Encoding", "Content-Md5"}, {"Range", "X-Ms-Meta-A"}})
	rapid.Check(t, func(t *rapid.T) {
		known, names := meanings{}, rapid.SampledFrom(pairs.Draw(t, "names"))
		dated, length := rapid.SampledFrom([]string{"X-Ms-Date", "Date"}).Draw(t, "dated by"), rapid.Int64Range(-1, 1).Draw(t, "length")
		for range atATime {
			r := signed("PUT", "/orders?comp=metadata", "")
			r.Header, r.ContentLength = http.Header{dated: {date}}, length
			for range rapid.IntRange(0, 2).Draw(t, "headers") {
				name := names.Draw(t, "name")
				r.Header[name] = append(r.Header[name], values.Draw(t, "value"))
			}
			c, ok := received(s, r)
			if !ok {
				continue
			}
			for name, scheme := range map[string]signingScheme{"SharedKey": sharedKey, "SharedKeyLite": sharedKeyLite} {
				for _, text := range signedTexts(c, scheme) {
					known.add(t, text, name+" "+meaning(c, name == "SharedKeyLite"))
				}
			}
		}
	})
}

// TestBothHeaderOrdersAreAccepted: clients sort names with an underscore in two ways, and the
// server accepts both.
func TestBothHeaderOrdersAreAccepted(t *testing.T) {
	s := must(New(nil, nil))
	for queue, sorted := range map[string][]string{
		"bytes":     {"x-ms-meta-a1b", "x-ms-meta-a_b", "x-ms-meta-ab"}, // azqueue
		"languages": {"x-ms-meta-a_b", "x-ms-meta-a1b", "x-ms-meta-ab"}, // the service, Python, JavaScript
		"neither":   {"x-ms-meta-ab", "x-ms-meta-a_b", "x-ms-meta-a1b"},
	} {
		r := signed("PUT", "/"+queue, "")
		text := "PUT" + strings.Repeat("\n", 12) + "x-ms-date:" + r.Header.Get("x-ms-date") + "\n"
		for _, name := range sorted {
			r.Header.Set(name, "1")
			text += name + ":1\n"
		}
		text += "x-ms-version:" + newestVersion + "\n/devstoreaccount1/devstoreaccount1/" + queue
		r.Header.Set("Authorization", "SharedKey devstoreaccount1:"+mac(DevelopmentKey, text))
		if a := do(t, s, r); (a.status == 201) != (queue != "neither") {
			t.Errorf("order %s: got status %d, want 201 except for neither: %s", queue, a.status, a.body)
		}
	}
}

// TestSharedKeyTellsAddressesApart: no two addresses of different resources have the same string
// to sign, path-style or host-style, at the primary or the secondary location. The test compares
// all addresses made of a few names.
func TestSharedKeyTellsAddressesApart(t *testing.T) {
	s := must(New(nil, &Options{Accounts: map[string][]byte{"second": []byte("key")}}))
	parts := []string{"", "orders", "messages", "devstoreaccount1", "devstoreaccount1-secondary", "%64evstoreaccount1", "devstoreaccount1%2Dsecondary", "second"}
	var paths []string
	for _, a := range parts {
		paths = append(paths, "/"+a)
		for _, b := range parts {
			paths = append(paths, "/"+a+"/"+b)
			for _, c := range []string{"", "messages", "orders-secondary"} {
				paths = append(paths, "/"+a+"/"+b+"/"+c, "/"+a+"/"+b+"/"+c+"/messages", "/"+a+"/"+b+"/"+c+"/id")
			}
		}
	}
	header := http.Header{"X-Ms-Date": {time.Now().UTC().Format(http.TimeFormat)}}
	for name, scheme := range map[string]signingScheme{"SharedKey": sharedKey, "SharedKeyLite": sharedKeyLite} {
		known := map[string]string{}
		styles := map[bool]int{}
		for _, host := range []string{"127.0.0.1", "devstoreaccount1.queue.localhost", "devstoreaccount1-secondary.queue.localhost", "second.queue.localhost"} {
			for _, query := range []string{"", "comp=metadata", "comp=acl", "comp=list", "restype=service&comp=properties", "restype=service&comp=stats", "peekonly=true"} {
				for _, path := range paths {
					u, err := url.ParseRequestURI(path + "?" + query)
					if err != nil {
						t.Fatal(err)
					}
					c, ok := received(s, &http.Request{Method: http.MethodGet, Host: host, URL: u, Header: header})
					if !ok {
						continue
					}
					for _, text := range signedTexts(c, scheme) {
						means := meaning(c, name == "SharedKeyLite")
						if before, ok := known[text]; ok && before != means {
							t.Fatalf("%s: %s%s?%s has the same string to sign as another request: %s and %s", name, host, path, query, before, means)
						}
						known[text] = means
						styles[c.hostStyle]++
					}
				}
			}
		}
		if styles[true] < 100 || styles[false] < 100 {
			t.Errorf("%s: compared %d host-style and %d path-style addresses, want at least 100 of each", name, styles[true], styles[false])
		}
	}
}

// TestSASStringsToSignAreUnambiguous: no two shared access signatures with different permissions
// have the same string to sign, whatever their kinds.
func TestSASStringsToSignAreUnambiguous(t *testing.T) {
	s := must(New(nil, nil))
	names := []string{"sp", "st", "se", "sip", "spr", "si", "ss", "srt", "ses", "skoid", "sktid", "skt", "ske", "sks", "skv", "skdutid", "sduoid"}
	rapid.Check(t, func(t *rapid.T) {
		known, taken := meanings{}, 0
		varied := rapid.SliceOfNDistinct(rapid.SampledFrom(names), 3, 3, rapid.ID).Draw(t, "varied")
		kind := rapid.SampledFrom([][]string{nil, {"ss", "srt"}, {"skoid"}}).Draw(t, "kind")
		for range atATime {
			q := url.Values{"sv": {rapid.SampledFrom([]string{"2015-04-05", "2020-12-06", "2026-04-06"}).Draw(t, "sv")}, "sig": {"AAAA"}}
			for _, name := range kind {
				q.Set(name, "q")
			}
			for _, name := range varied {
				q.Set(name, fewLetters("a\n").Draw(t, name))
			}
			name := rapid.SampledFrom([]string{"q", "q\n", "q\na", "a\nq", "q/a"}).Draw(t, "queue")
			u := &url.URL{Path: "/" + DevelopmentAccount + "/" + name + "/messages", RawPath: "/" + DevelopmentAccount + "/" + url.PathEscape(name) + "/messages", RawQuery: q.Encode()}
			c, ok := received(s, &http.Request{Method: http.MethodGet, Host: "127.0.0.1", URL: u, Header: http.Header{"Date": {time.Now().UTC().Format(http.TimeFormat)}}})
			if !ok {
				t.Fatalf("%v is refused before its signature is checked", u)
			}
			given, f := c.signature()
			if f != nil {
				continue
			}
			taken++
			switch {
			case given.services != "" || given.resources != "":
				if given.version < encryptionScopeSAS {
					given.scope = "" // older versions have none
				}
				given.identifier = ""
				clearDelegation(&given)
				known.add(t, c.accountText(given), fmt.Sprintf("account %+v", given))
			case given.keyObject != "":
				given.scope, given.identifier = "", ""
				known.add(t, string(c.accountState.delegated(given))+c.delegationText(given), fmt.Sprintf("delegation %+v %q", given, c.queue))
			default:
				given.scope = ""
				clearDelegation(&given)
				known.add(t, c.serviceText(given), fmt.Sprintf("service %+v %q", given, c.queue))
			}
		}
		if taken == 0 {
			t.Fatal("nothing was compared")
		}
	})
}

// clearDelegation clears the fields of a user delegation SAS, which have no meaning in others.
func clearDelegation(s *signature) {
	s.keyObject, s.keyTenant, s.keyStart, s.keyExpiry, s.keyService, s.keyVersion, s.userTenant, s.userObject = "", "", "", "", "", "", "", ""
}

// captured returns a signed request that an attacker has seen.
func captured(verb, path string, headers ...string) *http.Request {
	r, err := http.NewRequest(verb, "http://"+inProcess+"/"+DevelopmentAccount+path, nil)
	if err != nil {
		panic(err)
	}
	for name, value := range inPairs(headers) {
		r.Header.Set(name, value)
	}
	sign(r)
	return r
}

// TestCapturedRequestsCannotBeReinterpreted sends a captured signature with another request that
// would have the same string to sign, to both loops. The request must be refused.
func TestCapturedRequestsCannotBeReinterpreted(t *testing.T) {
	for name, c := range map[string]struct {
		captured *http.Request
		line     string // target of the other request
		host     string
	}{
		"peek as a get":                 {captured("GET", "/orders/messages?numofmessages=32&peekonly=true"), "/devstoreaccount1/orders/messages?numofmessages:32%0Apeekonly=true", ""},
		"peek as a get of one":          {captured("GET", "/orders/messages?numofmessages=32&peekonly=true&timeout=30"), "/devstoreaccount1/orders/messages?numofmessages=32&peekonly:true%0atimeout=30", ""},
		"peek as a get, in the value":   {captured("GET", "/orders/messages?api=1&peekonly=true"), "/devstoreaccount1/orders/messages?api=1%0Apeekonly:true", ""},
		"set metadata as a create":      {captured("PUT", "/new?comp=metadata&timeout=30", "x-ms-meta-a", "1"), "/devstoreaccount1/new?comp:metadata%0Atimeout=30", ""},
		"set ACL as a create":           {captured("PUT", "/new?comp=acl&timeout=30"), "/devstoreaccount1/new?comp%3Aacl%0Atimeout=30", ""},
		"drop as a clear, host-style":   {captured("DELETE", "/messages"), "/devstoreaccount1/messages", "devstoreaccount1.queue.localhost"},
		"metadata as a get, host-style": {captured("GET", "/messages?comp=metadata"), "/devstoreaccount1/messages?comp=metadata", "devstoreaccount1.queue.localhost"},
	} {
		t.Run(name, func(t *testing.T) {
			onBothLoops(t, func(t *testing.T, e *Endpoint, engine *localqueue.Engine) {
				own := queue.Name{Account: DevelopmentAccount, Queue: DevelopmentAccount}
				if err := engine.Queue(own).Create(t.Context(), nil); err != nil {
					t.Fatal(err)
				}
				for _, q := range []queue.Name{own, {Account: DevelopmentAccount, Queue: "orders"}} {
					if _, err := engine.Queue(q).Enqueue(t.Context(), "x", nil); err != nil {
						t.Fatal(err)
					}
				}
				host := c.host
				if host == "" {
					host = "127.0.0.1"
				}
				var text strings.Builder
				fmt.Fprintf(&text, "%s %s HTTP/1.1\r\nHost: %s\r\n", c.captured.Method, c.line, host)
				c.captured.Header.Write(&text)
				conn, in := dial(t, e)
				fmt.Fprintf(conn, "%s\r\n", &text)
				if got := status(t, in, c.captured.Method); got < 400 {
					t.Errorf("status: got %d, want 400 or more", got)
				}
				for _, q := range []queue.Name{own, {Account: DevelopmentAccount, Queue: "orders"}} {
					if found, err := engine.Queue(q).Peek(t.Context(), 1); err != nil || len(found) != 1 {
						t.Errorf("peek of %s: got %v, %v; want its message", q, found, err)
					}
				}
				if _, err := engine.Queue(queue.Name{Account: DevelopmentAccount, Queue: "new"}).Properties(t.Context()); err == nil {
					t.Error("a queue was created")
				}
			})
		})
	}
}

// TestEmptyDateIsRefused: the signature of a request with an empty x-ms-date does not include its
// Date, so that the request could be replayed at any time with another Date.
func TestEmptyDateIsRefused(t *testing.T) {
	s := must(New(nil, nil))
	createOrders(t, s)
	r := signed("GET", "/orders?comp=metadata", "")
	r.Header["X-Ms-Date"] = []string{""}
	r.Header.Set("Authorization", authorization(r, ""))
	for _, date := range []time.Time{time.Now(), time.Now().Add(10 * time.Minute)} {
		r.Header.Set("Date", date.UTC().Format(http.TimeFormat))
		if a := do(t, s, r); a.status != 403 || !strings.Contains(a.body, "x-ms-date is empty") {
			t.Errorf("got status %d, want 403 with x-ms-date is empty: %s", a.status, a.body)
		}
	}
}

// TestSecondarySuffixIsCutFromTheAccountOnly: the signed address of a request to the secondary
// location may omit the suffix of the account, but no other.
func TestSecondarySuffixIsCutFromTheAccountOnly(t *testing.T) {
	s := must(New(nil, nil))
	for _, name := range []string{"orders", "orders-secondary"} {
		if a := do(t, s, signed("PUT", "/"+name, "")); a.status != 201 {
			t.Fatal(a.body)
		}
	}
	for sent, signedAs := range map[string]string{
		"/devstoreaccount1%2Dsecondary/orders-secondary":    "/devstoreaccount1%2Dsecondary/orders",
		"/devstoreaccount1-%73econdary/orders-secondary":    "/devstoreaccount1-%73econdary/orders",
		"/devstoreaccount1-secondary/orders-secondary":      "/devstoreaccount1/orders",
		"/devstoreaccount1-secondary/orders-secondary?x=-1": "/devstoreaccount1-secondary/orders",
	} {
		query := "?comp=metadata"
		if strings.Contains(sent, "?") {
			query = "&comp=metadata"
		}
		r, err := http.NewRequest(http.MethodGet, "http://"+inProcess+signedAs+"?comp=metadata", nil)
		if err != nil {
			t.Fatal(err)
		}
		sign(r)
		if r.URL, err = url.Parse("http://" + inProcess + sent + query); err != nil {
			t.Fatal(err)
		}
		if a := do(t, s, r); a.status != 403 {
			t.Errorf("%s, signed as %s: got status %d, want 403: %s", sent, signedAs, a.status, a.body)
		}
	}
}
