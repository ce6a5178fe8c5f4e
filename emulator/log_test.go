package emulator

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// record is a log record of a request.
type record struct {
	Level, Msg, Operation, Account, Queue, Code, Fault string
	Status                                             int
	Took                                               time.Duration
	Limited                                            bool
	ID                                                 string
}

// journal collects the log. It is safe for concurrent use.
type journal struct {
	mu  sync.Mutex
	all bytes.Buffer // guarded by mu
}

func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.all.Write(p)
}

func (j *journal) log() *slog.Logger { return slog.New(slog.NewJSONHandler(j, nil)) }

func (j *journal) text() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.all.String()
}

func (j *journal) records(t *testing.T) []record {
	t.Helper()
	var all []record
	for line := range strings.Lines(j.text()) {
		var r record
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatal(err)
		}
		all = append(all, r)
	}
	return all
}

func TestLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var j journal
		rules, err := ParseFaults("put:delay=3s@#2 put:drop@#2 put:duplicate@#3 *:503@#4 *:reset@#5")
		if err != nil {
			t.Fatal(err)
		}
		s, _ := withOptions(t, &Options{Log: j.log(), Faults: &Faults{Rules: rules}, Quotas: Quotas{Messages: 4}})
		for range 7 {
			attempt(t, s, signed("POST", "/orders/messages", wrap("x")))
		}
		attempt(t, s, signed("GET", "/no!name/messages", ""))
		attempt(t, s, signed("PATCH", "/orders", ""))
		got := j.records(t)
		for i := range got {
			if len(got[i].ID) != 36 || got[i].Msg != "request" {
				t.Errorf("record %d: got %+v, want an id of 36 characters and the message request", i, got[i])
			}
			got[i].ID, got[i].Msg = "", ""
		}
		put := record{Level: "INFO", Operation: "PutMessage", Account: DevelopmentAccount, Queue: "orders"}
		with := func(r record, change func(*record)) record { change(&r); return r }
		done := with(put, func(r *record) { r.Status = 201 })
		want := []record{
			done,
			with(put, func(r *record) { r.Level, r.Fault, r.Took = "WARN", "delay=3s drop", 3*time.Second }),
			with(done, func(r *record) { r.Level, r.Fault = "WARN", "duplicate" }),
			with(done, func(r *record) { r.Level, r.Fault = "WARN", "duplicate" }),
			with(put, func(r *record) { r.Level, r.Fault, r.Status, r.Code = "WARN", "503", 503, "ServerBusy" }),
			with(put, func(r *record) { r.Level, r.Fault = "WARN", "reset" }),
			done,
			// The bucket was full again after the delay of the second put; four since then.
			with(put, func(r *record) { r.Status, r.Code, r.Limited = 503, "ServerBusy", true }),
			with(put, func(r *record) {
				r.Operation, r.Queue, r.Status, r.Code = "GetMessages", "", 400, "InvalidResourceName"
			}),
			with(put, func(r *record) { r.Operation, r.Status, r.Code = "Unknown", 405, "UnsupportedHttpVerb" }),
		}
		for i := range want {
			if i >= len(got) || got[i] != want[i] {
				t.Fatalf("record %d: got the log\n%s\nwant %+v", i, j.text(), want[i])
			}
		}
		if len(got) != len(want) || int64(len(got)) != s.Counts().Requests() {
			t.Errorf("records: got %d, want %d, one for each request", len(got), len(want))
		}
	})
}

// TestLogHasNoSecrets does every exchange, each with a fault that executes it, and searches the
// log for secrets of the requests and responses.
func TestLogHasNoSecrets(t *testing.T) {
	for x := range all {
		var j journal
		f := newFixture(t)
		s := f.server()
		s.log = j.log()
		if err := s.SetFaults(&Faults{Rules: []Fault{{Kind: FaultDuplicate, Every: 1}}}); err != nil {
			t.Fatal(err)
		}
		r := f.request(t, inProcess, x)
		_, credentials, _ := strings.Cut(r.Header.Get("Authorization"), " ")
		_, signature, _ := strings.Cut(credentials, ":")
		secrets := []string{DevelopmentKey, credentials, signature, x.body, r.URL.RawQuery, r.URL.Query().Get("sig"), r.URL.Query().Get("popreceipt")}
		for name, values := range r.Header {
			if strings.HasPrefix(name, "X-Ms-Meta-") || name == "Origin" {
				secrets = append(secrets, values...)
			}
		}
		a := do(t, s, r)
		secrets = append(secrets, a.header.Get("x-ms-popreceipt"))
		for _, part := range strings.Split(a.body, "<PopReceipt>")[1:] {
			receipt, _, _ := strings.Cut(part, "<")
			secrets = append(secrets, receipt)
		}
		text := j.text()
		for _, secret := range secrets {
			if len(secret) > 5 && secret != DevelopmentAccount && // one exchange has the account's name as its signature
				strings.Contains(text, secret) {
				t.Errorf("%s: %q is in the log: %s", x.name, secret, text)
			}
		}
		records := j.records(t)
		if int64(len(records)) != s.Counts().Requests() || records[len(records)-1].Status != a.status || records[len(records)-1].Code != a.header.Get("x-ms-error-code") {
			t.Errorf("%s: got status %d and the log %s; want a record for each request, the last with that status and code", x.name, a.status, text)
		}
	}
}

// TestAbandonedRequestIsLoggedWithoutStatus: a client that left got no status.
func TestAbandonedRequestIsLoggedWithoutStatus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var j journal
		s, _ := withOptions(t, &Options{Log: j.log(), Delay: time.Minute})
		client := &http.Client{Transport: s, Timeout: time.Second}
		if response, err := client.Do(signed("GET", "?comp=list", "")); err == nil {
			response.Body.Close()
			t.Fatalf("response: got %s, want an error", response.Status)
		}
		got := j.records(t)
		if len(got) != 1 || got[0].Status != 0 || got[0].Code != "" || got[0].Took != time.Second || got[0].Level != "INFO" {
			t.Errorf("log: got %+v, want one record at level INFO without status and code, after 1s", got)
		}
	})
}
