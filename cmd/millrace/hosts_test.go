package main

import (
	"context"
	"encoding/base64"
	"net/http"
	"strings"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azqueue/v2"

	"github.com/millrace/millrace/emulator"
)

// refusal is what serve says of a command line before it does anything, "" for nothing.
func refusal(t *testing.T, args ...string) string {
	t.Helper()
	var out, errs strings.Builder
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // so that what is taken ends at once
	c := &console{in: strings.NewReader(""), out: &out, err: &errs, getenv: func(string) string { return "" }}
	if status := c.command(ctx, append([]string{"serve", "-addr", "127.0.0.1:0"}, args...)); status != exitUsage {
		return ""
	}
	return errs.String()
}

// TestPublicServerWantsKeys: where other machines come in, a key that everyone knows or can
// guess is refused, and the error says what to do without saying the key.
func TestPublicServerWantsKeys(t *testing.T) {
	long := base64.StdEncoding.EncodeToString([]byte("sixteen bytes it"))
	for name, c := range map[string]struct {
		keys []string
		want string // a part of the error; "" for none
	}{
		"well-known":                {[]string{"devstoreaccount1:" + emulator.DevelopmentKey}, "everyone knows"},
		"well-known, another name":  {[]string{"shop:" + emulator.DevelopmentKey}, "everyone knows"},
		"well-known besides a good": {[]string{"mine:" + secretKey, "shop:" + emulator.DevelopmentKey}, "everyone knows"},
		"one byte":                  {[]string{"shop:QQ=="}, "guess"},
		"fifteen bytes":             {[]string{"shop:" + base64.StdEncoding.EncodeToString([]byte("fifteen bytes i"))}, "guess"},
		"sixteen bytes":             {[]string{"shop:" + long}, ""},
	} {
		var args []string
		for _, key := range c.keys {
			args = append(args, "-serve-account", key)
		}
		said := refusal(t, append(args, "-public")...)
		if (said == "") != (c.want == "") || !strings.Contains(said, c.want) || c.want != "" && !strings.Contains(said, "openssl rand -base64 64") {
			t.Errorf("%s: %q", name, said)
		}
		for _, key := range c.keys {
			if _, key, _ = strings.Cut(key, ":"); strings.Contains(said, key) {
				t.Errorf("%s: it tells the key: %q", name, said)
			}
		}
		if said := refusal(t, args...); said != "" {
			t.Errorf("%s, on this machine only: %q", name, said)
		}
	}
}

func TestHostFlag(t *testing.T) {
	for _, host := range []string{"", "millrace:10001", "http://millrace", "a b", "*"} {
		if said := refusal(t, "-host", host); !strings.Contains(said, "without a port") {
			t.Errorf("%q: %q", host, said)
		}
	}
	if said := refusal(t, "-host", "millrace", "-host", "192.0.2.1", "-host", "2001:db8::1"); said != "" {
		t.Error(said)
	}
}

// TestPythonReadsStats asks for stats as the Python client does with the connection string
// that is printed for it: it puts the path of the primary location behind the secondary one,
// and signs that. It is asked with azqueue here, which signs alike.
func TestPythonReadsStats(t *testing.T) {
	s := parsed(t)
	e, err := emulator.New(nil, nil).Start("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	var said strings.Builder
	s.printStartup(&said, e, &data{})
	_, line, _ := strings.Cut(said.String(), "for Python")
	line, _, _ = strings.Cut(strings.TrimSpace(line), "\n")
	given := map[string]string{}
	for setting := range strings.SplitSeq(strings.TrimSuffix(line, ";"), ";") {
		name, value, _ := strings.Cut(setting, "=")
		given[name] = value
	}
	scheme, primary, _ := strings.Cut(given["QueueEndpoint"], "://")
	_, path, ok := strings.Cut(primary, "/")
	if !ok {
		t.Fatalf("it says %q", line)
	}
	credential, err := azqueue.NewSharedKeyCredential(given["AccountName"], given["AccountKey"])
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	client, err := azqueue.NewServiceClientWithSharedKeyCredential(scheme+"://"+given["QueueSecondaryEndpoint"]+"/"+path, credential,
		&azqueue.ClientOptions{ClientOptions: azcore.ClientOptions{Transport: &http.Client{Transport: transport}, Retry: policy.RetryOptions{MaxRetries: -1}}})
	if err != nil {
		t.Fatal(err)
	}
	stats, err := client.GetStatistics(t.Context(), nil)
	if err != nil || stats.GeoReplication == nil || *stats.GeoReplication.Status != "live" {
		t.Errorf("%+v %v", stats, err)
	}
}
