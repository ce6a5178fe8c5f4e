package main

import (
	"context"
	"strings"
	"testing"
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
