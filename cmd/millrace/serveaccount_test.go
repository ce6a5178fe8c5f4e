package main

import (
	"encoding/base64"
	"strings"
	"testing"
)

// TestServeRefusesWhatIsEmptyOrMisplaced: each of these would otherwise do something else
// than was meant.
func TestServeRefusesWhatIsEmptyOrMisplaced(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args []string
		says string
	}{
		{[]string{"-data", ""}, "-data: it is empty: give a name, or leave the flag out"},
		{[]string{"-data="}, "-data: it is empty"},
		{[]string{"-cert", "", "-key", ""}, "-cert: it is empty"},
		{[]string{"-addr", ""}, "not host:port"},
		{[]string{"-delay", "30"}, "missing unit, write 30s"},
		{[]string{"-deleting-for", "30"}, "missing unit, write 30s"},
		{[]string{"-account", "mine:" + secretKey}, "serve takes -serve-account name:key"},
		{[]string{"AccountName=a;AccountKey=" + secretKey}, "is not a flag"},
	} {
		invocation{}.fails(t, exitUsage, []string{"millrace: serve: ", c.says}, append([]string{"serve"}, c.args...)...)
		if r := (invocation{}).call(t, append([]string{"serve"}, c.args...)...); strings.Contains(r.errs, secretKey) {
			t.Errorf("%q: it tells a key: %s", c.args, r.errs)
		}
	}
}

// TestKeysNeedNotBeOnTheCommandLine, where everybody on the machine sees them.
func TestKeysNeedNotBeOnTheCommandLine(t *testing.T) {
	other := base64.StdEncoding.EncodeToString([]byte("another key"))
	inFile := secretFile(t, secretKey+"\n")
	keys, err := accountFlags{"mine:@" + inFile, "ours:" + other}.read(" yours:" + other + "; theirs:@" + inFile + " ;")
	if err != nil || len(keys) != 4 {
		t.Fatalf("%d keys, %v", len(keys), err)
	}
	for name, want := range map[string]string{"mine": secretKey, "ours": other, "yours": other, "theirs": secretKey} {
		if got := base64.StdEncoding.EncodeToString(keys[name]); got != want {
			t.Errorf("the key of %s is %q, want %q", name, got, want)
		}
	}
	for _, c := range []struct {
		flag, environment string
		says              string
	}{
		{"mine:@", "", "-serve-account number 1: the key of mine: no file follows the @"},
		{"mine:@/does/not/exist", "", "no such file"},
		{"mine:@" + secretFile(t, "no key"), "", "-serve-account number 1: the key of mine is not Base64"},
		{"mine:@" + secretFile(t, ""), "", "is empty"},
		{"", "mine", "MILLRACE_ACCOUNTS, account number 1: it is not name:key"},
		{"", ";;mine:!" + secretKey, "MILLRACE_ACCOUNTS, account number 3: the key of mine is not Base64"},
		{"mine:" + secretKey, "mine:" + secretKey, "MILLRACE_ACCOUNTS, account number 1: mine is there twice"},
	} {
		args := []string{"serve"}
		if c.flag != "" {
			args = append(args, "-serve-account", c.flag)
		}
		v := invocation{env: map[string]string{accountsVariable: c.environment}}
		v.fails(t, exitUsage, []string{c.says}, args...)
		if r := v.call(t, args...); strings.Contains(r.errs, secretKey) || strings.Contains(r.errs, "no key") {
			t.Errorf("%+v: it tells a key: %s", c, r.errs)
		}
	}
}
