package main

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azqueue/v2"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azqueue/v2/sas"

	"github.com/millrace/millrace/emulator"
	"github.com/millrace/millrace/internal/azuritetest"
)

// hostOf returns the host and port in a connection string.
func hostOf(t *testing.T, location string) string {
	t.Helper()
	_, endpoint, _ := strings.Cut(location, "QueueEndpoint=")
	u, err := url.Parse(strings.TrimSuffix(endpoint, ";"))
	if err != nil {
		t.Fatal(err)
	}
	return u.Host
}

// A server has the faults that are set until they are cleared, whatever they are.
func TestFaultsAreSetShownAndCleared(t *testing.T) {
	t.Parallel()
	location := startServer(t)
	v, host := on(location), hostOf(t, location)
	none := host + " has no faults.\n"
	if got := v.ok(t, "faults", "show"); got != none {
		t.Errorf("show before: got %q, want %q", got, none)
	}
	for rules, want := range map[string]string{
		"*:503":   "throttled",
		"*:403":   "unauthorized",
		"*:reset": "connection reset",
	} {
		set := v.ok(t, "faults", "set", rules)
		if !regexp.MustCompile(`^` + regexp.QuoteMeta(host+" has the faults "+rules) + `@100% \(repeat with -seed \d+\)\.\n$`).MatchString(set) {
			t.Errorf("set %s: got %q", rules, set)
		}
		// Not by the command, which would repeat it for half a minute.
		if err := v.open(t, "orders").Create(t.Context(), nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("create: got %v, want an error with %q", err, want)
		}
		if got := v.ok(t, "faults", "show"); got != set {
			t.Errorf("show: got %q, want %q as set printed", got, set)
		}
		if got := v.ok(t, "faults", "clear"); got != none {
			t.Errorf("clear: got %q, want %q", got, none)
		}
		v.ok(t, "create", "orders")
	}
	v.ok(t, "faults", "set", "*:delay=24h")
	want := host + " has the faults PutMessage:503@5% PeekMessages:drop@#3,7 *:delay=2s@1/10 (repeat with -seed 7).\n"
	if got := v.ok(t, "faults", "set", "-seed", "7", "put:503@5%", "peek:drop@#3,7; *:delay=2s@1/10"); got != want {
		t.Errorf("set: got %q, want %q", got, want)
	}
	if got := v.ok(t, "faults", "show"); got != want {
		t.Errorf("show: got %q, want %q", got, want)
	}
	if got := (invocation{}).ok(t, "faults", "clear", "-account", location); got != none {
		t.Errorf("clear -account: got %q, want %q", got, none)
	}
}

func TestFaultsExplainTheirArguments(t *testing.T) {
	t.Parallel()
	v := on(startServer(t))
	v.fails(t, exitUsage, []string{"faults set: missing argument: write millrace faults set RULES"}, "faults", "set")
	v.fails(t, exitUsage, []string{"no rules", "millrace faults clear"}, "faults", "set", " ")
	v.fails(t, exitUsage, []string{`unknown fault "404"`, "write one of 503"}, "faults", "set", "put:404")
	v.fails(t, exitUsage, []string{"faults do not apply to OpenWakeups"}, "faults", "set", "OpenWakeups:503")
	v.fails(t, exitUsage, []string{"is not a flag"}, "faults", "clear", "put:503")
	v.fails(t, exitUsage, []string{"missing verb: write millrace faults VERB; the verbs are set, show, clear"}, "faults")
	v.fails(t, exitUsage, []string{`unknown verb "end"; the verbs are set, show, clear`}, "faults", "end")
	v.fails(t, exitUsage, []string{"-account: faults need the key of the account"}, "faults", "clear", "-account", "https://a.queue.core.windows.net")
	v.fails(t, exitUsage, []string{"-account: the location is neither"}, "faults", "clear", "-account", "nowhere")
	v.fails(t, exitUsage, []string{"6000 rules are too long for a request"}, "faults", "set", strings.Repeat("put:503@#1 ", 6000))
	if got := v.ok(t, "faults", "set", "-h"); !strings.Contains(got, "RULES are operation:fault@when") || !strings.Contains(got, "-account location") {
		t.Errorf("set -h: got %q, want the rules and the flags", got)
	}
}

// serverSignature returns a SAS for the account's service.
func serverSignature(t *testing.T, p sas.AccountPermissions) string {
	t.Helper()
	c, err := azqueue.NewSharedKeyCredential(emulator.DevelopmentAccount, emulator.DevelopmentKey)
	if err != nil {
		t.Fatal(err)
	}
	q, err := sas.AccountSignatureValues{Protocol: sas.ProtocolHTTPSandHTTP, ExpiryTime: time.Now().Add(time.Hour), Permissions: p.String(),
		ResourceTypes: (&sas.AccountResourceTypes{Service: true}).String()}.SignWithSharedKey(c)
	if err != nil {
		t.Fatal(err)
	}
	return q.Encode()
}

func TestFaultsNeedTheRightToThem(t *testing.T) {
	t.Parallel()
	location := startServer(t)
	address := "http://" + hostOf(t, location) + "/devstoreaccount1?"
	invocation{}.ok(t, "faults", "set", "put:503", "-account", address+serverSignature(t, sas.AccountPermissions{Write: true}))
	invocation{}.ok(t, "faults", "show", "-account", address+serverSignature(t, sas.AccountPermissions{Read: true}))
	for _, with := range []string{
		address + serverSignature(t, sas.AccountPermissions{Read: true}),
		strings.Replace(location, "AccountKey=E", "AccountKey=F", 1),
	} {
		r := (invocation{}).call(t, "faults", "clear", "-account", with)
		if r.status != exitFailure || !strings.Contains(r.errs, "unauthorized (403 Auth") || !strings.Contains(r.errs, "the permission w") || strings.Contains(r.errs, "sig=") {
			t.Errorf("clear: got %+v, want that it is unauthorized", r)
		}
	}
	if got := on(location).ok(t, "faults", "show"); !strings.Contains(got, "PutMessage:503@100%") {
		t.Errorf("show: got %q, want the rules as before", got)
	}
}

// Servers that have no faults say so in their way, and nothing of theirs changes.
func TestOtherServersHaveNoFaults(t *testing.T) {
	t.Parallel()
	respond := func(status int, server, code, document string) string {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Server", server)
			w.Header().Set("x-ms-error-code", code)
			w.WriteHeader(status)
			_, _ = w.Write([]byte(document))
		}))
		t.Cleanup(s.Close)
		return "AccountName=a;AccountKey=" + emulator.DevelopmentKey + ";QueueEndpoint=" + s.URL + "/a"
	}
	azure := respond(400, "Windows-Azure-Queue/1.0 Microsoft-HTTPAPI/2.0", "InvalidQueryParameterValue", "<Error/>")
	old := respond(400, "Millrace-Queue/1.0", "InvalidQueryParameterValue",
		"<Error><Code>InvalidQueryParameterValue</Code><Message>No.</Message><QueryParameterName>comp</QueryParameterName></Error>")
	strange := respond(200, "nginx", "", "<html>")
	wrong := respond(500, "Millrace-Queue/1.0", "InternalError", "<Error><Code>InternalError</Code><Message>It broke.\nRequestId:1</Message></Error>")
	for _, verb := range [][]string{{"faults", "set", "*:503"}, {"faults", "show"}, {"faults", "clear"}} {
		on(azure).fails(t, exitFailure, []string{verb[1] + ": " + hostOf(t, azure) + " is no server of Millrace", "(it responded 400 InvalidQueryParameterValue)", "millrace serve"}, verb...)
		on(strange).fails(t, exitFailure, []string{"is no server of Millrace", "(it responded 200)"}, verb...)
		on(old).fails(t, exitFailure, []string{"a server of an older version", "millrace serve -faults"}, verb...)
		on(wrong).fails(t, exitFailure, []string{hostOf(t, wrong) + ": It broke.\n"}, verb...)
	}
	t.Run("azurite", func(t *testing.T) {
		t.Parallel()
		v := on(azuritetest.ConnectionString(t))
		name := createQueue(t, v)
		for _, verb := range [][]string{{"faults", "set", "*:503"}, {"faults", "show"}, {"faults", "clear"}} {
			v.fails(t, exitFailure, []string{"is no server of Millrace", "(it responded 4"}, verb...)
		}
		if got := v.ok(t, "queues", "-names", name); got != name+"\n" {
			t.Errorf("queues afterwards: got %q, want %s", got, name)
		}
	})
}

func TestFaultsOfAServerThatIsNotThere(t *testing.T) {
	t.Parallel()
	e, err := must(emulator.New(nil, nil)).Start("")
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	for _, verb := range [][]string{{"faults", "set", "*:503"}, {"faults", "show"}, {"faults", "clear"}} {
		on(e.ConnectionString()).fails(t, exitFailure, []string{"millrace: faults " + verb[1] + ": " + e.Addr().String() + " does not respond: ", "connection refused", "millrace serve"}, verb...)
	}
}
