package main

import (
	"context"
	"encoding/base64"
	"strings"
	"testing"

	"github.com/millrace/millrace/emulator"
)

// refusal is what serve says of a command line before it does anything, "" for nothing.
func refusal(t *testing.T, args ...string) string {
	t.Helper()
	var out, errs strings.Builder
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // so that what is taken ends at once
	if status := command(ctx, append([]string{"serve", "-addr", "127.0.0.1:0"}, args...), &out, &errs); status != misused {
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
			args = append(args, "-account", key)
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
