package main

import (
	"encoding/base64"
	"strings"
	"testing"
)

// TestServeRefusesEmptyAndMisplacedValues: each of these would otherwise do something that was
// not meant.
func TestServeRefusesEmptyAndMisplacedValues(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"-data", ""}, "-data: must not be empty: give a name, or omit the flag"},
		{[]string{"-data="}, "-data: must not be empty"},
		{[]string{"-cert", "", "-key", ""}, "-cert: must not be empty"},
		{[]string{"-addr", ""}, "not host:port"},
		{[]string{"-delay", "30"}, "missing unit, write 30s"},
		{[]string{"-deleting-for", "30"}, "missing unit, write 30s"},
		{[]string{"-account", "mine:" + secretKey}, "serve has -serve-account name:key"},
		{[]string{"AccountName=a;AccountKey=" + secretKey}, "is not a flag"},
	} {
		invocation{}.fails(t, exitUsage, []string{"millrace: serve: ", c.want}, append([]string{"serve"}, c.args...)...)
		if r := (invocation{}).call(t, append([]string{"serve"}, c.args...)...); strings.Contains(r.errs, secretKey) {
			t.Errorf("%q: the error contains a key: %s", c.args, r.errs)
		}
	}
}

// TestKeysFromFilesAndTheEnvironment: keys need not be on the command line, where all users see them.
func TestKeysFromFilesAndTheEnvironment(t *testing.T) {
	other := base64.StdEncoding.EncodeToString([]byte("another key"))
	inFile := secretFile(t, secretKey+"\n")
	keys, err := accountFlags{"mine:@" + inFile, "ours:" + other}.read(" yours:" + other + "; theirs:@" + inFile + " ;")
	if err != nil || len(keys) != 4 {
		t.Fatalf("keys: got %d, %v; want 4", len(keys), err)
	}
	for name, want := range map[string]string{"mine": secretKey, "ours": other, "yours": other, "theirs": secretKey} {
		if got := base64.StdEncoding.EncodeToString(keys[name]); got != want {
			t.Errorf("key of %s: got %q, want %q", name, got, want)
		}
	}
	for _, c := range []struct {
		flag, environment string
		want              string
	}{
		{"mine:@", "", "-serve-account number 1: the key of mine: no file follows the @"},
		{"mine:@/does/not/exist", "", "no such file"},
		{"mine:@" + secretFile(t, "no key"), "", "-serve-account number 1: the key of mine is not Base64"},
		{"mine:@" + secretFile(t, ""), "", "is empty"},
		{"", "mine", "MILLRACE_ACCOUNTS, account number 1: not name:key"},
		{"", ";;mine:!" + secretKey, "MILLRACE_ACCOUNTS, account number 3: the key of mine is not Base64"},
		{"mine:" + secretKey, "mine:" + secretKey, "MILLRACE_ACCOUNTS, account number 1: mine is given twice"},
	} {
		args := []string{"serve"}
		if c.flag != "" {
			args = append(args, "-serve-account", c.flag)
		}
		v := invocation{env: map[string]string{accountsVariable: c.environment}}
		v.fails(t, exitUsage, []string{c.want}, args...)
		if r := v.call(t, args...); strings.Contains(r.errs, secretKey) || strings.Contains(r.errs, "no key") {
			t.Errorf("%+v: the error contains a key: %s", c, r.errs)
		}
	}
}
