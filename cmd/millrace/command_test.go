package main

import (
	"io"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/millrace/millrace/queue"
)

func TestNoArgumentsShowTheUsage(t *testing.T) {
	t.Parallel()
	r := invocation{}.call(t)
	if r.status != exitUsage || r.out != "" || r.errs != usage() {
		t.Errorf("no arguments: got %+v, want status 2 and the usage on standard error", r)
	}
	if r := (invocation{}).call(t, "help"); r.status != exitOK || r.out != usage() || r.errs != "" {
		t.Errorf("help: got %+v, want the usage on standard output", r)
	}
	for _, o := range commands() {
		if !strings.Contains(usage(), "  millrace "+o.name+" ") {
			t.Errorf("the usage does not list %s", o.name)
		}
		ways := [][]string{{"help", o.name}, {o.name, "-h"}, {o.name, "--help"}}
		for _, args := range ways {
			if got := (invocation{}).ok(t, args...); !strings.HasPrefix(got, "Usage: millrace "+o.name) || !strings.Contains(strings.ToLower(got), strings.ToLower(o.does)) {
				t.Errorf("%q: got %q, want the help of %s", args, got, o.name)
			}
		}
	}
	for _, line := range strings.Split(usage(), "\n") {
		if len(line) > 100 {
			t.Errorf("usage: got a line of %d characters, want at most 100: %q", len(line), line)
		}
	}
}

func TestUnknownCommandListsTheCommands(t *testing.T) {
	t.Parallel()
	const all = "the commands are serve, faults, queues, create, drop, put, peek, clear, pause, resume, stat, poison, bodies, agent, instances, cost, version, completion, help"
	invocation{}.fails(t, exitUsage, []string{`unknown command "list"; ` + all}, "list")
	invocation{}.fails(t, exitUsage, []string{`unknown command "list"; ` + all}, "help", "list")
	invocation{}.fails(t, exitUsage, []string{"the command comes first", all}, "-json", "queues")
	invocation{}.fails(t, exitUsage, []string{"give it with -account"}, "AccountName=a;AccountKey=S3cret")
}

// TestSlipsAreRecognized: in commands, verbs, and flags.
func TestSlipsAreRecognized(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"quues":             `unknown command "quues", did you mean queues?; the commands are`,
		"help staat":        `unknown command "staat", did you mean stat?; the commands are`,
		"redrive orders":    `unknown command "redrive", did you mean poison redrive?; the commands are`,
		"purge orders":      `unknown command "purge"; the commands are`, // of poison or of bodies
		"poison lst orders": `unknown verb "lst", did you mean list?; the verbs are list, show, stats, redrive, purge`,
		"help bodies swep":  `unknown verb "swep", did you mean sweep?; the verbs are list, sweep, purge`,
		"poison":            "missing verb: write millrace poison VERB QUEUE; the verbs are list, show, stats, redrive, purge",
		"queues --acount x": "not defined: -acount; did you mean -account? see millrace help queues",
		"put orders -kin x": "not defined: -kin; did you mean -kind? put a text that begins with a dash after --",
		"put orders -5":     "not defined: -5; put a text that begins with a dash after --",
	} {
		invocation{}.fails(t, exitUsage, []string{want}, strings.Fields(line)...)
	}
}

// TestHelpNamesNoFilesOfTheRepository: a user of the program may not have it.
func TestHelpNamesNoFilesOfTheRepository(t *testing.T) {
	t.Parallel()
	path := regexp.MustCompile(`[^/]\bdocs/[a-z]+\.md`)
	check := func(o *command) {
		if got := (invocation{}).ok(t, append([]string{"help"}, strings.Fields(o.name)...)...); path.MatchString(got) {
			t.Errorf("help of %s: got the path %q, want a URL", o.name, path.FindString(got))
		}
	}
	for _, o := range commands() {
		check(o)
		for _, verb := range o.verbs {
			check(verb)
		}
	}
}

func TestFlagsMayStandAnywhere(t *testing.T) {
	for _, c := range []struct {
		args  string
		want  string
		delay time.Duration
	}{
		{"", "", 0},
		{"a b", "a b", 0},
		{"-delay 5s a b", "a b", 5 * time.Second},
		{"a -delay 5s b", "a b", 5 * time.Second},
		{"a b --delay=5s", "a b", 5 * time.Second},
		{"a -- -delay 5s", "a -delay 5s", 0},
		{"-- a -delay", "a -delay", 0},
		{"-delay 5s -- a", "a", 5 * time.Second},
		{"a - b", "a - b", 0},
		{"a -- -- b", "a -- b", 0},
		{"a -delay 5s -delay 6s", "a", 6 * time.Second},
	} {
		var delay time.Duration
		f := newFlags("x")
		f.Var(duration{&delay}, "delay", "")
		got, err := parseInterspersed(f, strings.Fields(c.args))
		if err != nil || !slices.Equal(got, strings.Fields(c.want)) || delay != c.delay {
			t.Errorf("%q: got %q, delay %v, %v; want %q, delay %v", c.args, got, delay, err, c.want, c.delay)
		}
	}
	for _, args := range []string{"-x", "a -x", "a -delay", "a -delay 5 b"} {
		f := newFlags("x")
		f.Var(duration{new(time.Duration)}, "delay", "")
		if got, err := parseInterspersed(f, strings.Fields(args)); err == nil {
			t.Errorf("%q: got %q, want an error", args, got)
		}
	}
}

func TestInvalidDurationsAreExplained(t *testing.T) {
	for text, want := range map[string]string{
		"30": "missing unit, write 30s", "1.5": "missing unit, write 1.5s", "-3": "missing unit, write -3s",
		"": "number with a unit", "soon": "number with a unit", "5d": "number with a unit", "1e3": "number with a unit", "s": "number with a unit",
	} {
		if err := (duration{new(time.Duration)}).Set(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Set(%q): got %v, want an error with %q", text, err, want)
		}
	}
	var d time.Duration
	for text, want := range map[string]time.Duration{"30s": 30 * time.Second, "0": 0, "1h30m": 90 * time.Minute} {
		if err := (duration{&d}).Set(text); err != nil || d != want {
			t.Errorf("Set(%q): got %v, %v; want %v", text, d, err, want)
		}
	}
}

// brokenOutput is an output that fails.
type brokenOutput struct{ err error }

func (b brokenOutput) Write([]byte) (int, error) { return 0, b.err }

func TestOnlyAClosedOutputIsSilent(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err    error
		silent bool
	}{{syscall.EPIPE, true}, {io.ErrClosedPipe, true}, {syscall.ENOSPC, false}} {
		var errs strings.Builder
		program := &console{in: strings.NewReader(""), out: brokenOutput{c.err}, err: &errs, getenv: func(string) string { return "" }}
		if status := program.command(t.Context(), []string{"help"}); status != exitFailure || (errs.Len() == 0) != c.silent {
			t.Errorf("output fails with %v: got status %d and %q, want 1 and silence %v", c.err, status, &errs, c.silent)
		}
	}
	// A broken connection to a server is reported.
	if closedPipe(&queue.Error{Kind: queue.ErrOutcomeUnknown, Err: syscall.EPIPE}) {
		t.Error("closedPipe: got true for a broken connection, want false")
	}
}

func TestRedact(t *testing.T) {
	for text, want := range map[string]string{
		"open AccountKey=S3cret==;x":      "open AccountKey=REDACTED;x",
		"https://a/?sv=1&SIG=S3cret&x=1":  "https://a/?sv=1&SIG=REDACTED&x=1",
		"signature=public and sigh=a":     "signature=public and sigh=a",
		"SharedAccessSignature=sv=S3cret": "SharedAccessSignature=REDACTED",
	} {
		if got := redact(text); got != want {
			t.Errorf("%q is said as %q, want %q", text, got, want)
		}
	}
}
