package main

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/codec"
	"github.com/millrace/millrace/internal/envelope"
	"github.com/millrace/millrace/queue"
)

// bodies returns the visible messages of a queue, each as its format and body, sorted.
func bodies(t *testing.T, q queue.Queue) (all []string) {
	t.Helper()
	messages, err := q.Peek(t.Context(), queue.MaxBatch)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range messages {
		head, body, format, err := envelope.Open(m.Text, codec.Auto, envelope.Kinds)
		if err != nil {
			t.Fatal(err)
		}
		if format == codec.Envelope && (head.ID == "" || time.Since(head.Enqueued) > time.Hour) {
			t.Errorf("envelope of %q: got %+v, want a job id and the time of now", body, head)
		}
		of := ""
		if head.Kind != "" {
			of = " of " + head.Kind
		}
		all = append(all, string(format)+of+" "+string(body))
	}
	slices.Sort(all)
	return all
}

func TestPutSendsJobs(t *testing.T) {
	t.Parallel()
	accounts(t, func(t *testing.T, v invocation) {
		for _, c := range []struct {
			in     string
			args   []string
			output string
			want   []string
		}{
			{"", []string{`{"ID":"1"}`}, "1 job put on ", []string{`envelope {"ID":"1"}`}},
			{"", []string{`{"ID":"1"}`, `"text"`, `[1,2]`, `null`}, "4 jobs put on ",
				[]string{`envelope "text"`, `envelope [1,2]`, `envelope null`, `envelope {"ID":"1"}`}},
			{"{\"ID\":\"1\"}\r\n\n  \n 2 \n3", []string{"-"}, "3 jobs put on ", []string{"envelope  2 ", "envelope 3", `envelope {"ID":"1"}`}},
			{"\ufeff1\n", nil, "1 job put on ", []string{"envelope 1"}},
			{"", nil, "0 jobs put on ", nil},
			{"{a}\nb\n", []string{"-plain", "-"}, "2 jobs put on ", []string{"plain b", "plain {a}"}},
			{"", []string{`{"ID":"1"}`, "-kind", "mail"}, "1 job put on ", []string{`envelope of mail {"ID":"1"}`}},
			{"", []string{"-plain", "hello"}, "1 job put on ", []string{"plain hello"}},
			{"", []string{"-base64", `{"a":1}`}, "1 job put on ", []string{`base64 {"a":1}`}},
			{"", []string{"--", "-5"}, "1 job put on ", []string{`envelope -5`}},
			{"", []string{"7", "-ttl", "1h"}, "1 job put on ", []string{`envelope 7`}},
			{"", []string{"7", "-delay", "1h"}, "1 job put on ", nil},
		} {
			name := createQueue(t, v)
			if got := v.withInput(c.in).ok(t, append([]string{"put", name}, c.args...)...); !strings.Contains(got, c.output) || !strings.Contains(got, name) {
				t.Errorf("put %q: got the output %q, want %q and the queue's name", c.args, got, c.output)
			}
			if got := bodies(t, v.open(t, name)); !slices.Equal(got, c.want) {
				t.Errorf("put %q: got the messages %q, want %q", c.args, got, c.want)
			}
		}
	})
}

// TestPutDelayAndTTL: -delay and -ttl have an effect wherever they stand.
func TestPutDelayAndTTL(t *testing.T) {
	t.Parallel()
	v := on(startServer(t))
	name := createQueue(t, v)
	v.ok(t, "put", "-ttl", "90m", name, "1")
	v.ok(t, "put", name, "2", "--ttl=90m", "3")
	v.ok(t, "put", name, "4", "-delay", "1h")
	messages, err := v.open(t, name).Peek(t.Context(), queue.MaxBatch)
	if err != nil || len(messages) != 3 {
		t.Fatalf("visible messages: got %d, %v; want 3", len(messages), err)
	}
	for _, m := range messages {
		if life := m.Expires.Sub(m.Inserted); life != 90*time.Minute {
			t.Errorf("life of %q: got %v, want 90m", m.Text, life)
		}
	}
	if p, err := v.open(t, name).Properties(t.Context()); err != nil || p.Depth != 4 {
		t.Errorf("properties: got %+v, %v; want depth 4", p, err)
	}
}

func TestPutRefusesInvalidJobs(t *testing.T) {
	t.Parallel()
	v := on(startServer(t))
	name := createQueue(t, v)
	for _, c := range []struct {
		args   []string
		status int
		want   string
	}{
		{[]string{"{ID:", "1}"}, exitUsage, `text 1 of 2: "{ID:" is not JSON`},
		{[]string{"1", "{"}, exitUsage, `text 2 of 2: "{" is not JSON`}, // without sending the first
		{[]string{"hello"}, exitUsage, "-plain"},
		{[]string{"1", "-kind", "mail", "-plain"}, exitUsage, "-kind cannot be combined with -plain or -base64"},
		{[]string{"1", "-kind", "a\nb"}, exitUsage, "-kind: the kind \"a\\nb\" has the control character U+000A"},
		{[]string{"{'ID':1}"}, exitUsage, "at byte 2"},
		{[]string{"{} {}"}, exitUsage, "not JSON"},
		{[]string{""}, exitUsage, "not JSON"},
		{[]string{"1", "-"}, exitUsage, "- means the standard input"},
		{[]string{"-5"}, exitUsage, "put a text that begins with a dash after --"},
		{[]string{"1", "-plain", "-base64"}, exitUsage, "give one of them"},
		{[]string{"1", "-delay", "30"}, exitUsage, `"30" for flag -delay: missing unit, write 30s`},
		{[]string{"1", "-ttl", "1.5"}, exitUsage, "missing unit, write 1.5s"},
		{[]string{"1", "-ttl", "soon"}, exitUsage, "a number with a unit, such as"},
		{[]string{"1", "-ttl", ""}, exitUsage, "a number with a unit, such as"},
		{[]string{"1", "-delay", "-1s"}, exitUsage, "-delay -1s is negative"},
		{[]string{"1", "-delay", "200h"}, exitUsage, "seven days"},
		{[]string{"1", "-ttl", "500ms"}, exitUsage, "too short"},
		{[]string{"1", "-ttl", "-1ns"}, exitUsage, "too short"}, // not forever
		{[]string{"1", "-ttl", "1000000h"}, exitUsage, "too long"},
		{[]string{"1", "-ttl", "1m", "-delay", "1m"}, exitUsage, "not shorter"},
		{[]string{"-plain", "a\x1bb"}, exitFailure, "send binary as Base64"},
		{[]string{"-plain", strings.Repeat("x", queue.MaxText+1)}, exitFailure, "65537 bytes"},
		{[]string{`"` + strings.Repeat("x", queue.MaxText-60) + `"`}, exitFailure, "to record attempts"},
	} {
		v.fails(t, c.status, []string{c.want}, append([]string{"put", name}, c.args...)...)
	}
	if p, err := v.open(t, name).Properties(t.Context()); err != nil || p.Depth != 0 {
		t.Errorf("properties: got %+v, %v; want depth 0", p, err)
	}
	terminal := v
	terminal.interactive = true
	terminal.fails(t, exitUsage, []string{"or - to type one job per line"}, "put", name)
	if r := terminal.withInput("1\n2\n").call(t, "put", name, "-"); r.status != exitOK || !strings.Contains(r.errs, "Ctrl-D ends") {
		t.Errorf("put - at a terminal: got %+v, want success and the prompt", r)
	}
}

// TestPutNamesTheInvalidLine: the error has the number of the invalid line and of the jobs that
// were put before it.
func TestPutNamesTheInvalidLine(t *testing.T) {
	t.Parallel()
	v := on(startServer(t))
	name := createQueue(t, v)
	v.withInput("1\n\n2\n{bad\n3\n").fails(t, exitFailure, []string{"line 4: ", `"{bad" is not JSON`, "; 2 jobs put on devstoreaccount1/" + name + " before that"}, "put", name)
	if got := bodies(t, v.open(t, name)); !slices.Equal(got, []string{"envelope 1", "envelope 2"}) {
		t.Errorf("messages: got %q, want those before the invalid line", got)
	}
	v.withInput("1\n"+strings.Repeat("x", 200_000)+"\n").fails(t, exitFailure, []string{"line 2: longer than 65536 bytes"}, "put", "-plain", name)
	v.withInput("1\n").fails(t, exitFailure, []string{"line 1: queue devstoreaccount1/" + name + "x does not exist; create it with millrace create " + name + "x, or list the queues with millrace queues\n"}, "put", name+"x")
	v.fails(t, exitFailure, []string{"text 1 of 2: queue devstoreaccount1/" + name + "x does not exist"}, "put", name+"x", "1", "2")
}

// TestPutReadsLinesUpToTheLargestMessage: neither the read buffer nor the end of the input
// truncates a line.
func TestPutReadsLinesUpToTheLargestMessage(t *testing.T) {
	if testing.Short() {
		t.Skip("puts large messages")
	}
	t.Parallel()
	v := on(startServer(t))
	for _, n := range []int{4095, 4096, 4097, 60_000, queue.MaxText} {
		for _, end := range []string{"\n", "\r\n", ""} {
			name := createQueue(t, v)
			long := strings.Repeat("x", n)
			v.withInput("a\n"+long+end).ok(t, "put", name, "-plain")
			if got := bodies(t, v.open(t, name)); !slices.Equal(got, []string{"plain a", "plain " + long}) {
				t.Errorf("line of %d bytes with the end %q: got %d messages, want both unchanged", n, end, len(got))
			}
		}
	}
}

// TestPutExplainsAMissingQueueName: the error is about the text that stands in the queue's place.
func TestPutExplainsAMissingQueueName(t *testing.T) {
	t.Parallel()
	on(startServer(t)).fails(t, exitUsage, []string{`put: queue name "{\"ID\":\"1\"}"`}, "put", `{"ID":"1"}`, "orders")
}
