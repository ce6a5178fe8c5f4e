package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azqueue/v2"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azqueue/v2/sas"

	"github.com/millrace/millrace/emulator"
	"github.com/millrace/millrace/queue"
)

// secretFile is a file with a text.
func secretFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestTheAccountIsSaidInThreeWays: by the flag, in a file, or in the environment.
func TestTheAccountIsSaidInThreeWays(t *testing.T) {
	t.Parallel()
	location := local(t)
	v := on(location)
	name := made(t, v)
	nowhere := invocation{env: map[string]string{accountVariable: "UseDevelopmentStorage=true;DevelopmentStorageProxyUri=http://nowhere.invalid"}}
	for _, flag := range []string{location, "@" + secretFile(t, location+"\r\n")} {
		if got := nowhere.ok(t, "queues", "-account", flag, name); got != name+"\n" {
			t.Errorf("%q", got)
		}
	}
	if got := v.ok(t, "queues", name); got != name+"\n" {
		t.Errorf("%q", got)
	}
	var a accountFlag
	for env, want := range map[string]string{"": shortForm, " ": shortForm, "x": "x"} {
		c := &console{getenv: func(string) string { return env }}
		if got, _, err := a.location(c); got != want || err != nil {
			t.Errorf("with %q in the environment: %q, %v", env, got, err)
		}
	}
}

func TestBadLocationsAreExplainedWithoutSecrets(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		location, environment string
		says                  string
	}{
		{"nowhere", "", "-account: the location is neither"},
		{"", "nowhere", "AZURE_STORAGE: the location is neither"},
		{"AccountName=a;AccountKey=S3cret!", "", "-account: the AccountKey is not Base64"},
		{"https://a.queue.core.windows.net/x/y?sig=S3cret", "", "-account: the location has a path"},
		{"@", "", "-account: no file follows the @"},
		{"@/does/not/exist", "", "/does/not/exist"},
		{"@AccountName=a;AccountKey=S3cret", "", "AccountKey=REDACTED"},
		{"@" + t.TempDir(), "", "is a directory"},
		{"@" + secretFile(t, " \n"), "", "is empty"},
		{"@" + secretFile(t, "S3cret\nS3cret"), "", "more than one line"},
		{"@" + secretFile(t, strings.Repeat("S3cret", 20_000)), "", "one line is wanted"},
		{"@" + secretFile(t, "S3cret"), "", "-account: the location is neither"},
	} {
		args := []string{"queues"}
		if c.location != "" {
			args = append(args, "-account", c.location)
		}
		v := invocation{env: map[string]string{accountVariable: c.environment}}
		v.fails(t, exitUsage, []string{c.says}, args...)
		if r := v.call(t, args...); strings.Contains(r.errs, "S3cret") {
			t.Errorf("%q: it tells a secret: %s", args, r.errs)
		}
	}
	invocation{}.fails(t, exitUsage, []string{"it is empty: leave it out"}, "queues", "-account", "")
	invocation{}.fails(t, exitUsage, []string{"needs an argument"}, "queues", "-account")
}

// TestNoServerIsMissed: who has not started one is told how, at once.
func TestNoServerIsMissed(t *testing.T) {
	t.Parallel()
	e, err := emulator.New(nil, nil).Start("")
	if err != nil {
		t.Fatal(err)
	}
	location := e.ConnectionString()
	if err := e.Close(); err != nil { // now nobody listens on its port
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"queues"}, {"create", "orders"}, {"drop", "orders", "-yes"}, {"put", "orders", "1"}, {"peek", "orders"}, {"clear", "orders", "-yes"}, {"stat", "orders"},
	} {
		on(location).fails(t, exitFailure, []string{"millrace: " + args[0] + ": devstoreaccount1", ": service unavailable: ", "start a server there with millrace serve", e.Addr().String()}, args...)
	}
	if r := on(location).reads("1\n2\n").call(t, "put", "orders"); r.status != exitFailure || !strings.Contains(r.errs, "line 1: ") || !strings.Contains(r.errs, "millrace serve") {
		t.Errorf("%+v", r)
	}
	known := &queue.Error{Kind: queue.ErrUnavailable, Hint: "x"}
	if text := (&task{}).explain(known).Error(); !strings.Contains(text, "millrace serve") || !strings.Contains(text, accountVariable) {
		t.Errorf("of the account that nobody chose: %q", text)
	}
	if text := (&task{source: accountVariable}).explain(known).Error(); !strings.HasSuffix(text, "; x") {
		t.Errorf("of one that somebody chose: %q", text)
	}
}

// TestASignatureForAQueueIsEnough: what is not needed is not asked for.
func TestASignatureForAQueueIsEnough(t *testing.T) {
	t.Parallel()
	location := local(t)
	v := on(location)
	name := made(t, v)
	_, endpoint, _ := strings.Cut(location, "QueueEndpoint=")
	signed := func(permissions string) []string {
		return []string{"-account", strings.TrimSuffix(endpoint, ";") + "/" + name + "?" + signature(t, name, permissions)}
	}
	for _, args := range [][]string{
		append([]string{"put", name, `{"ID":"1"}`}, signed("a")...),
		append([]string{"peek", name}, signed("r")...),
		append([]string{"stat", name}, signed("r")...),
	} {
		invocation{}.ok(t, args...)
	}
	invocation{}.fails(t, exitFailure, []string{"unauthorized"}, append([]string{"put", name, "1"}, signed("r")...)...)
	invocation{}.fails(t, exitFailure, []string{"unauthorized"}, append([]string{"queues"}, signed("r")...)...)
	invocation{}.fails(t, exitUsage, []string{"-account: the location has a path that is not the queue name"}, append([]string{"peek", name + "x"}, signed("r")...)...)
}

// signature is a shared access signature for one queue, by the development account.
func signature(t *testing.T, name, permissions string) string {
	t.Helper()
	c, err := azqueue.NewSharedKeyCredential(emulator.DevelopmentAccount, emulator.DevelopmentKey)
	if err != nil {
		t.Fatal(err)
	}
	p, err := sas.QueueSignatureValues{Protocol: sas.ProtocolHTTPSandHTTP, ExpiryTime: time.Now().Add(time.Hour), Permissions: permissions, QueueName: name}.SignWithSharedKey(c)
	if err != nil {
		t.Fatal(err)
	}
	return p.Encode()
}
