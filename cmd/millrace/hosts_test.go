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

// refusal returns the usage error of serve for a command line, or "" if it is valid.
func refusal(t *testing.T, args ...string) string {
	t.Helper()
	var out, errs strings.Builder
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // so that a valid command line ends at once
	c := &console{in: strings.NewReader(""), out: &out, err: &errs, getenv: func(string) string { return "" }}
	if status := c.command(ctx, append([]string{"serve", "-addr", "127.0.0.1:0"}, args...)); status != exitUsage {
		return ""
	}
	return errs.String()
}

// TestPublicServerRefusesWeakKeys: with -public, a key that everyone knows or can guess is refused,
// and the error says what to do without the key.
func TestPublicServerRefusesWeakKeys(t *testing.T) {
	long := base64.StdEncoding.EncodeToString([]byte("sixteen bytes it"))
	for name, c := range map[string]struct {
		keys []string
		want string // part of the error; "" for no error
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
		refused := refusal(t, append(args, "-public")...)
		if (refused == "") != (c.want == "") || !strings.Contains(refused, c.want) || c.want != "" && !strings.Contains(refused, "openssl rand -base64 64") {
			t.Errorf("%s: got the error %q, want %q", name, refused, c.want)
		}
		for _, key := range c.keys {
			if _, key, _ = strings.Cut(key, ":"); strings.Contains(refused, key) {
				t.Errorf("%s: the error contains the key: %q", name, refused)
			}
		}
		if refused := refusal(t, args...); refused != "" {
			t.Errorf("%s without -public: got the error %q, want none", name, refused)
		}
	}
}

func TestHostFlag(t *testing.T) {
	for _, host := range []string{"", "millrace:10001", "http://millrace", "a b", "*"} {
		if refused := refusal(t, "-host", host); !strings.Contains(refused, "without a port") {
			t.Errorf("-host %q: got the error %q, want without a port", host, refused)
		}
	}
	if refused := refusal(t, "-host", "millrace", "-host", "192.0.2.1", "-host", "2001:db8::1"); refused != "" {
		t.Errorf("valid hosts: got the error %q, want none", refused)
	}
}

// TestPythonConnectionStringReadsStats reads the stats as the Python client does with the connection
// string printed for it: that client appends the path of the primary location to the secondary one,
// and signs the result. The test uses azqueue, which signs in the same way.
func TestPythonConnectionStringReadsStats(t *testing.T) {
	s := parsedSettings(t)
	e, err := must(emulator.New(nil, nil)).Start("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	var refused strings.Builder
	printf(&refused, "%s", s.startupText(e.Addr().String(), e.AccountURL, &data{}))
	_, line, _ := strings.Cut(refused.String(), "for Python")
	line, _, _ = strings.Cut(strings.TrimSpace(line), "\n")
	given := map[string]string{}
	for setting := range strings.SplitSeq(strings.TrimSuffix(line, ";"), ";") {
		name, value, _ := strings.Cut(setting, "=")
		given[name] = value
	}
	scheme, primary, _ := strings.Cut(given["QueueEndpoint"], "://")
	_, path, ok := strings.Cut(primary, "/")
	if !ok {
		t.Fatalf("connection string for Python: got %q, want a queue endpoint with a path", line)
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
		t.Errorf("statistics: got %+v, %v; want live", stats, err)
	}
}
