package main

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azqueue/v2"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azqueue/v2/sas"

	"github.com/millrace/millrace/emulator"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/azurequeue"
)

// secretFile writes a text to a new file and returns its path.
func secretFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestAccountComesFromFlagFileOrEnvironment(t *testing.T) {
	t.Parallel()
	location := startServer(t)
	v := on(location)
	name := createQueue(t, v)
	nowhere := invocation{env: map[string]string{accountVariable: "UseDevelopmentStorage=true;DevelopmentStorageProxyUri=http://nowhere.invalid"}}
	for _, flag := range []string{location, "@" + secretFile(t, location+"\r\n")} {
		if got := nowhere.ok(t, "queues", "-names", "-account", flag, name); got != name+"\n" {
			t.Errorf("queues -account: got %q, want %s", got, name)
		}
	}
	if got := v.ok(t, "queues", "-names", name); got != name+"\n" {
		t.Errorf("queues with the environment variable: got %q, want %s", got, name)
	}
	var a accountFlag
	for env, want := range map[string]string{"": shortForm, " ": shortForm, "x": "x"} {
		c := &console{getenv: func(string) string { return env }}
		if got, _, err := a.location(c); got != want || err != nil {
			t.Errorf("location with %q in the environment: got %q, %v; want %q", env, got, err, want)
		}
	}
}

func TestBadLocationsAreExplainedWithoutSecrets(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		location, environment string
		want                  string
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
		{"@" + secretFile(t, strings.Repeat("S3cret", 20_000)), "", "it must be one line"},
		{"@" + secretFile(t, "S3cret"), "", "-account: the location is neither"},
	} {
		args := []string{"queues"}
		if c.location != "" {
			args = append(args, "-account", c.location)
		}
		v := invocation{env: map[string]string{accountVariable: c.environment}}
		v.fails(t, exitUsage, []string{c.want}, args...)
		if r := v.call(t, args...); strings.Contains(r.errs, "S3cret") {
			t.Errorf("%q: the error contains a secret: %s", args, r.errs)
		}
	}
	invocation{}.fails(t, exitUsage, []string{"must not be empty: omit the flag"}, "queues", "-account", "")
	invocation{}.fails(t, exitUsage, []string{"needs an argument"}, "queues", "-account")
}

// TestUnreachableServerHintsAtServe: without a server, commands fail at once and say how to start
// one.
func TestUnreachableServerHintsAtServe(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for retries")
	}
	t.Parallel()
	e, err := must(emulator.New(nil, nil)).Start("")
	if err != nil {
		t.Fatal(err)
	}
	location := e.ConnectionString()
	if err := e.Close(); err != nil { // now nothing listens on its port
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"queues"}, {"create", "orders"}, {"drop", "orders", "-yes"}, {"put", "orders", "1"}, {"peek", "orders"}, {"clear", "orders", "-yes"}, {"stat", "orders"}, {"pause", "orders"}, {"resume", "orders"},
	} {
		on(location).fails(t, exitFailure, []string{"millrace: " + args[0] + ": devstoreaccount1", ": service unavailable: ", "start a server there with millrace serve", e.Addr().String()}, args...)
	}
	if r := on(location).withInput("1\n2\n").call(t, "put", "orders"); r.status != exitFailure || !strings.Contains(r.errs, "line 1: ") || !strings.Contains(r.errs, "millrace serve") {
		t.Errorf("put: got %+v, want a failure in line 1 with a hint", r)
	}
	known := &queue.Error{Kind: queue.ErrUnavailable, Hint: "x"}
	if text := (&task{}).explain(known).Error(); !strings.Contains(text, "millrace serve") || !strings.Contains(text, accountVariable) {
		t.Errorf("error for the default account: got %q, want hints at serve and the variable", text)
	}
	if text := (&task{source: accountVariable}).explain(known).Error(); !strings.HasSuffix(text, "; x") {
		t.Errorf("error for a chosen account: got %q, want its own hint", text)
	}
}

// TestQueueCommandsWorkWithAServiceSAS: commands on a queue need no permission on the account.
func TestQueueCommandsWorkWithAServiceSAS(t *testing.T) {
	t.Parallel()
	location := startServer(t)
	v := on(location)
	name := createQueue(t, v)
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

// signature returns a service SAS for a queue of the development account.
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

// noLogin is a credential of which no login works.
type noLogin struct{ err error }

func (c noLogin) GetToken(context.Context, policy.TokenRequestOptions) (azcore.AccessToken, error) {
	return azcore.AccessToken{}, c.err
}

// TestAMissingLoginIsExplained: in one short line, and with -v the causes before it.
func TestAMissingLoginIsExplained(t *testing.T) {
	t.Parallel()
	causes := "DefaultAzureCredential: failed to acquire a token.\nAttempted credentials:\n\tEnvironmentCredential: missing AZURE_TENANT_ID\n----\n\tsecret sig=S3cret"
	for _, c := range []struct {
		err     error
		verbose bool
		causes  string
		advice  string
	}{
		{azidentity.NewCredentialUnavailableError(causes), false, "", "run az login, or set AZURE_TENANT_ID"},
		{azidentity.NewCredentialUnavailableError(causes), true, "  DefaultAzureCredential: failed to acquire a token.\n  Attempted credentials:\n" +
			"  EnvironmentCredential: missing AZURE_TENANT_ID\n  secret sig=REDACTED\n", "run az login, or set AZURE_TENANT_ID"},
		{&net.OpError{Op: "dial", Err: errors.New("refused")}, false, "", "did not answer: try again"},
	} {
		q, err := azurequeue.Open("https://acct.queue.core.windows.net", "orders", &azurequeue.Options{Credential: noLogin{c.err}})
		if err != nil {
			t.Fatal(err)
		}
		_, err = q.Properties(t.Context())
		var errs strings.Builder
		text := (&task{console: &console{err: &errs}, verbose: c.verbose}).explain(err).Error()
		if !strings.HasPrefix(text, "not logged in to Azure") || !strings.Contains(text, c.advice) || strings.Contains(text, "Attempted") || len(text) > 250 {
			t.Errorf("got the error %q, want a short one with %q", text, c.advice)
		}
		if strings.Contains(text, "-v shows") == c.verbose || errs.String() != c.causes {
			t.Errorf("verbose %v: got %q after\n%s\nwant the causes\n%s", c.verbose, text, &errs, c.causes)
		}
	}
}
