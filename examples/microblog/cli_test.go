package main

import (
	"bytes"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millrace/millrace/examples/internal/cli"
)

// Every error is one line that says what to do.
func TestErrorsAreOneLine(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for a server that does not answer")
	}
	t.Parallel()
	occupied, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer occupied.Close()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args   []string
		status int
		say    string
	}{
		{[]string{"nonsense"}, cli.StatusUsage, `unknown command "nonsense"; see microblog -h`},
		{[]string{"-nonsense"}, cli.StatusUsage, "see microblog -h"},
		{[]string{"-addr", "8090"}, cli.StatusUsage, "-addr 8090 is not HOST:PORT"},
		{[]string{"-addr", ""}, cli.StatusUsage, "-addr is empty"},
		{[]string{"-addr", "127.0.0.1:99999"}, cli.StatusFailed, "cannot serve the pages on 127.0.0.1:99999"},
		{[]string{"-addr", occupied.Addr().String()}, cli.StatusFailed, "choose another address with -addr"},
		{[]string{"-host", " "}, cli.StatusUsage, "must not be empty"},
		{[]string{"-role", "reader", "-account", "UseDevelopmentStorage=true"}, cli.StatusUsage, "-role reader is none of web, worker and both"},
		{[]string{"-role", "worker"}, cli.StatusUsage, "-role worker needs -account"},
		{[]string{"-role", "web", "-data", file}, cli.StatusUsage, "-role web needs -account"},
		{[]string{"-account", "nonsense"}, cli.StatusUsage, "-account: "},
		{[]string{"-account", "@" + file + "x"}, cli.StatusUsage, "-account: "},
		{[]string{"-account", "DefaultEndpointsProtocol=http;AccountName=a;AccountKey=YWJj;QueueEndpoint=http://127.0.0.1:1/a"}, cli.StatusFailed, "no queue server answers at 127.0.0.1:1"},
		{[]string{"-data", file}, cli.StatusFailed, "choose another folder with -data"},
		{[]string{"-data", " "}, cli.StatusUsage, "-data is empty"},
		{[]string{"extra", "argument"}, cli.StatusUsage, "unknown command"},
		{[]string{"demo", "-posts", "1"}, cli.StatusUsage, "-posts 1 is outside 2000…100000"},
		{[]string{"demo", "x"}, cli.StatusUsage, `unexpected argument "x"; see microblog demo -h`},
		{[]string{"sweep"}, cli.StatusUsage, "sweep needs -data or -account"},
		{[]string{"sweep", "-data", t.TempDir()}, cli.StatusUsage, "has no microblog in it"},
		{[]string{"victim", "-data", "x", "-after", "mark"}, cli.StatusUsage, "is not STEP:COUNT"},
	} {
		var stdout, stderr bytes.Buffer
		status := command(t.Context(), c.args, &stdout, &stderr)
		if status != c.status || strings.Count(stderr.String(), "\n") != 1 || !strings.HasPrefix(stderr.String(), "microblog: ") || !strings.Contains(stderr.String(), c.say) {
			t.Errorf("%q: got %d and %q, want %d and %q", c.args, status, stderr.String(), c.status, c.say)
		}
	}
}

func TestHelp(t *testing.T) {
	for _, c := range []struct {
		args []string
		say  []string
	}{
		{[]string{"-h"}, []string{"microblog demo", "microblog sweep", "-addr", "-role", "-data", "-account", "Exit status"}},
		{[]string{"help"}, []string{"microblog demo"}},
		{[]string{"demo", "-h"}, []string{"SIGKILL", "-posts N"}},
		{[]string{"sweep", "-h"}, []string{"-data DIR", "-account LOCATION"}},
	} {
		var stdout, stderr bytes.Buffer
		if status := command(t.Context(), c.args, &stdout, &stderr); status != cli.StatusDone || stderr.Len() > 0 {
			t.Errorf("%q: got %d, %q", c.args, status, stderr.String())
		}
		for _, want := range c.say {
			if !strings.Contains(stdout.String(), want) {
				t.Errorf("%q: the help lacks %q: %s", c.args, want, stdout.String())
			}
		}
		if strings.Contains(stdout.String(), victim) {
			t.Errorf("%q: the help shows the hidden command", c.args)
		}
		for line := range strings.Lines(stdout.String()) {
			if len([]rune(line)) > 121 {
				t.Errorf("%q: a line of the help is long: %s", c.args, line)
			}
		}
	}
}
