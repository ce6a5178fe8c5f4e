package main

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/millrace/millrace/emulator"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/localqueue"
)

const secretKey = "c2VjcmV0IG9mIG1pbmUsIGFsbCBtaW5l"

// servedPage returns a page with the settings of these arguments and an endpoint that serves it.
// The queue "orders" of the account "mine" has one message.
func servedPage(t *testing.T, args ...string) (*page, *emulator.Endpoint) {
	t.Helper()
	s := parsedSettings(t, append([]string{"-serve-account", "mine:" + secretKey}, args...)...)
	p := &page{settings: s, engine: must(localqueue.New(nil))}
	q := p.engine.Queue(queue.Name{Account: "mine", Queue: "orders"})
	if err := q.Create(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if _, err := q.Enqueue(t.Context(), "x", nil); err != nil {
		t.Fatal(err)
	}
	p.server = must(emulator.New(p.engine, &emulator.Options{Accounts: s.keys, Public: s.public, Hosts: s.hosts, Front: p}))
	e, err := p.server.Start("")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	return p, e
}

// parsedSettings returns the settings for these arguments of serve.
func parsedSettings(t *testing.T, args ...string) *settings {
	t.Helper()
	s := new(settings)
	if err := s.flags().Parse(args); err != nil {
		t.Fatal(err)
	}
	if err := s.check(func(string) string { return "" }); err != nil {
		t.Fatal(err)
	}
	return s
}

// gotResponse is a response whose body was read.
type gotResponse struct {
	status int
	header http.Header
	length int64
}

func get(t *testing.T, method, url, host string) (gotResponse, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Host = host
	transport := &http.Transport{DisableKeepAlives: true}
	response, err := transport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return gotResponse{response.StatusCode, response.Header, response.ContentLength}, string(body)
}

func TestPage(t *testing.T) {
	p, e := servedPage(t)
	root := "http://" + e.Addr().String() + "/"
	get(t, "GET", root+"mine?comp=list", "") // one request, refused
	response, body := get(t, "GET", root, "")
	if response.status != http.StatusOK || !strings.HasPrefix(response.header.Get("Content-Type"), "text/html") {
		t.Errorf("GET: got %+v, want 200 and text/html", response)
	}
	for _, want := range []string{
		"emulator of Azure Queue Storage", "in memory only",
		"<h3>devstoreaccount1</h3>", "AccountName=devstoreaccount1;AccountKey=Eby8", "QueueEndpoint=" + root + "devstoreaccount1;",
		"<h3>mine</h3>", `<tr><td>orders</td><td class="n">1</td></tr>`,
		`<tr><td>ListQueues</td><td class="n">1</td></tr>`, `<tr><th>All</th><td class="n">1</td></tr>`,
		"Millrace " + version(),
	} {
		if !strings.Contains(body, want) {
			t.Errorf("page: got\n%s\nwant %q in it", body, want)
		}
	}
	if strings.Contains(body, secretKey) || strings.Contains(body, "AccountName=mine") {
		t.Errorf("the page contains a secret key:\n%s", body)
	}
	head, nothing := get(t, "HEAD", root, "")
	if head.status != http.StatusOK || nothing != "" || head.length != int64(len(body)) {
		t.Errorf("HEAD: got status %d, length %d and body %q; want 200, %d and none", head.status, head.length, nothing, len(body))
	}
	if icon, _ := get(t, "GET", root+"favicon.ico", ""); icon.status != http.StatusNoContent {
		t.Errorf("favicon.ico: got status %d, want 204", icon.status)
	}
	invocation{}.ok(t, "faults", "show", "-account", e.ConnectionString())
	if _, again := get(t, "GET", root, ""); !strings.Contains(again, `<tr><td>GetFaults</td><td class="n">1</td></tr>`) || !strings.Contains(again, `<tr><th>All</th><td class="n">2</td></tr>`) {
		t.Errorf("page after a look at the faults: got\n%s\nwant two requests in all", again)
	}
	if got := p.server.Counts().Requests(); got != 1 {
		t.Errorf("requests counted: got %d, want 1, without those for the page", got)
	}
	if _, again := get(t, "GET", root, "127.0.0.1:10001"); !strings.Contains(again, "<pre>"+shortForm+"</pre>") {
		t.Errorf("page at the default address: got\n%s\nwant the short form of the connection string", again)
	}
}

// TestPageShowsNoDataToOthers: a page that another host's page can fetch, or that a public server
// shows, says only what it is.
func TestPageShowsNoDataToOthers(t *testing.T) {
	_, e := servedPage(t)
	_, named := servedPage(t, "-host", "millrace")
	_, public := servedPage(t, "-public")
	for name, c := range map[string]struct {
		e    *emulator.Endpoint
		host string
		want string
	}{
		"another host":  {e, "attacker.example:10001", "does not accept the host"},
		"allowed host":  {named, "millrace:10001", "emulator of Azure Queue Storage"},
		"public":        {public, "", "emulator of Azure Queue Storage"},
		"public's name": {public, "millrace.example", "emulator of Azure Queue Storage"},
	} {
		_, body := get(t, "GET", "http://"+c.e.Addr().String()+"/", c.host)
		if !strings.Contains(body, c.want) {
			t.Errorf("%s: got %s, want %q in it", name, body, c.want)
		}
		for _, unwanted := range []string{"orders", "mine", "devstoreaccount1", "AccountKey", "Requests"} {
			if strings.Contains(body, unwanted) {
				t.Errorf("%s: got\n%s\nwant no %q in it", name, body, unwanted)
			}
		}
	}
	far := httptest.NewRequest(http.MethodGet, "http://127.0.0.1:10001/", nil)
	far.RemoteAddr = "192.0.2.1:1234"
	if sameMachine(far) {
		t.Error("sameMachine: got true for a request from 192.0.2.1")
	}
}

// TestPageDoesNotReplaceTheProtocol: a request that has credentials, names an account or has
// parameters is handled by the protocol.
func TestPageDoesNotReplaceTheProtocol(t *testing.T) {
	_, e := servedPage(t)
	root := "http://" + e.Addr().String() + "/"
	for _, c := range []struct{ method, url, host string }{
		{"POST", root, ""}, {"PUT", root, ""}, {"DELETE", root, ""},
		{"GET", root + "?comp=list", ""},
		{"GET", root + "mine", ""}, {"GET", root + "mine/", ""}, {"GET", root + "/", ""},
		{"GET", root, "mine.queue.localhost"}, {"GET", root + "favicon.ico", "mine.queue.localhost"},
		{"GET", root + "favicon.ico/x", ""},
	} {
		response, body := get(t, c.method, c.url, c.host)
		if response.header.Get("x-ms-request-id") == "" || response.status < 400 {
			t.Errorf("%v: got status %d without a request id or below 400: %s", c, response.status, body)
		}
	}
}

// TestPageEscapesHTML: names and paths cannot inject markup.
func TestPageEscapesHTML(t *testing.T) {
	var out bytes.Buffer
	const evil = `"><script>alert(1)</script>`
	if err := pageTemplate.Execute(&out, view{Version: evil, Data: evil, Open: true,
		Accounts: []accountView{{Name: evil, Connect: []string{evil}, Queues: []queueView{{Name: evil}}}},
		Requests: []requestsView{{Operation: evil}}}); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(out.String(), "<script") {
		t.Errorf("page: got a script element in\n%s", &out)
	}
}

func TestPageLimitsTheQueuesShown(t *testing.T) {
	p, _ := servedPage(t)
	for n := range maxQueues {
		if err := p.engine.Queue(queue.Name{Account: "mine", Queue: fmt.Sprintf("queue-%03d", n)}).Create(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
	}
	queues, more := p.queues(t.Context(), "mine")
	if len(queues) != maxQueues || !more {
		t.Errorf("queues: got %d, more %v; want %d, more true", len(queues), more, maxQueues)
	}
}

func TestStartupText(t *testing.T) {
	for _, c := range []struct {
		args       string
		has, hasNo []string
	}{
		{"", []string{"AccountName=devstoreaccount1;AccountKey=" + emulator.DevelopmentKey}, []string{shortForm, "TLS"}},
		{"-serve-account devstoreaccount1:" + secretKey, []string{"AccountName=devstoreaccount1;AccountKey=(your key);"}, []string{secretKey, emulator.DevelopmentKey}},
		{"-public -serve-account mine:" + secretKey, []string{"AccountName=mine;AccountKey=(your key", "without TLS"}, []string{"devstoreaccount1", secretKey}},
	} {
		s := parsedSettings(t, strings.Fields(c.args)...)
		e, err := must(emulator.New(nil, &emulator.Options{Accounts: s.keys, Public: s.public})).Start("127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		var out strings.Builder
		printf(&out, "%s", s.startupText(e.Addr().String(), e.AccountURL, &data{}))
		e.Close()
		for _, want := range c.has {
			if !strings.Contains(out.String(), want) {
				t.Errorf("serve %s: got\n%s\nwant %q in it", c.args, &out, want)
			}
		}
		for _, unwanted := range c.hasNo {
			if strings.Contains(out.String(), unwanted) {
				t.Errorf("serve %s: got\n%s\nwant no %q in it", c.args, &out, unwanted)
			}
		}
	}
	ours := map[string][]byte{emulator.DevelopmentAccount: {1}}
	for i, c := range []struct {
		s       settings
		address string
		want    string
	}{
		{settings{}, "127.0.0.1:10001", "millrace create orders"},
		{settings{}, "127.0.0.1:10002", "export AZURE_STORAGE='" + connectionString("http://here", emulator.DevelopmentAccount, emulator.DevelopmentKey) + "'; millrace create orders"},
		{settings{cert: "x"}, "127.0.0.1:10001", ""},
		{settings{public: true}, "127.0.0.1:10001", ""},
		{settings{keys: ours}, "127.0.0.1:10002", ""},
	} {
		if step := c.s.firstCommand(c.address, func(string) string { return "http://here" }); step != c.want {
			t.Errorf("firstCommand %d: got %q, want %q", i, step, c.want)
		}
	}
	for host, want := range map[string]bool{"127.0.0.1:10001": true, "localhost:10001": true, "127.0.0.1:10002": false, "[::1]:10001": false, "x": false} {
		if isDefaultAddress(host) != want {
			t.Errorf("isDefaultAddress(%q) = %v, want %v", host, !want, want)
		}
	}
}

func TestVersionAndHelp(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"version", "millrace " + version() + "\n"},
		{"help serve", "-deleting-for duration"},
		{"serve -h", "-deleting-for duration"},
	} {
		if r := (invocation{}).call(t, strings.Fields(c.args)...); r.status != exitOK || !strings.Contains(r.out, c.want) || r.errs != "" {
			t.Errorf("%s: got %+v, want success with %q", c.args, r, c.want)
		}
	}
	released := &debug.BuildInfo{GoVersion: "go1", Main: debug.Module{Version: "v1.2.3"}}
	local := &debug.BuildInfo{GoVersion: "go1", Main: debug.Module{Version: "(devel)"}, Settings: []debug.BuildSetting{
		{Key: "vcs.revision", Value: "0123456789abcdef"}, {Key: "vcs.modified", Value: "true"}}}
	if a, b := describe(released), describe(local); a != "v1.2.3 go1" || b != "(devel) 0123456789ab modified go1" {
		t.Errorf("describe: got %q and %q, want v1.2.3 go1 and (devel) 0123456789ab modified go1", a, b)
	}
}

// FuzzAccount parses arbitrary values of -serve-account. Accepted keys are the decoded ones, and
// errors do not contain the key.
func FuzzAccount(f *testing.F) {
	f.Add("abc:" + secretKey)
	f.Add("abc")
	f.Add("abc:" + secretKey + "!")
	f.Add(":")
	f.Fuzz(func(t *testing.T, given string) {
		keys, err := accountFlags{given}.read("")
		name, key, _ := strings.Cut(given, ":")
		if err == nil {
			decoded, _ := base64.StdEncoding.DecodeString(key)
			if len(keys) != 1 || !bytes.Equal(keys[name], decoded) {
				t.Fatalf("read(%q): got the keys %v, want the decoded one", given, keys)
			}
		} else if len(key) > 32 && isAccountName(name) && strings.Contains(err.Error(), key) {
			t.Fatalf("read(%q): the error contains the key: %v", given, err)
		}
	})
}
