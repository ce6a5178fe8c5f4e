package main

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/codec"
	"github.com/millrace/millrace/queue"
)

// bodies are the bodies of a queue's messages and the formats that they are in, by a
// peek.
func bodies(t *testing.T, q queue.Queue) (all []string) {
	t.Helper()
	messages, err := q.Peek(t.Context(), queue.MaxBatch)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range messages {
		head, body, format, err := codec.Open(m.Text, codec.Auto)
		if err != nil {
			t.Fatal(err)
		}
		if format == codec.Envelope && (head.ID == "" || time.Since(head.Enqueued) > time.Hour) {
			t.Errorf("the head of %q is %+v", body, head)
		}
		all = append(all, format.String()+" "+string(body))
	}
	slices.Sort(all)
	return all
}

func TestJobsArePut(t *testing.T) {
	t.Parallel()
	accounts(t, func(t *testing.T, v invocation) {
		for _, c := range []struct {
			in   string
			args string // with commas for blanks
			says string
			want []string
		}{
			{"", `{"ID":"1"}`, "1 job put on ", []string{`envelope {"ID":"1"}`}},
			{"", `{"ID":"1"},"text",[1,2],null`, "", []string{"a"}},
			{"{\"ID\":\"1\"}\r\n\n  \n 2 \n3", `-`, "3 jobs put on ", []string{"envelope  2 ", "envelope 3", `envelope {"ID":"1"}`}},
			{"\ufeff1\n", ``, "1 job put on ", []string{"envelope 1"}},
			{"", ``, "0 jobs put on ", nil},
			{"{a}\nb\n", `-plain,-`, "2 jobs put on ", []string{"plain b", "plain {a}"}},
			{"", `-plain,hello`, "1 job put on ", []string{"plain hello"}},
			{"", `-base64,{"a":1}`, "1 job put on ", []string{`base64 {"a":1}`}},
			{"", `--,-5`, "1 job put on ", []string{`envelope -5`}},
			{"", `7,-ttl,1h`, "1 job put on ", []string{`envelope 7`}},
			{"", `7,-delay,1h`, "1 job put on ", nil},
		} {
			args := slices.DeleteFunc(strings.Split(c.args, ","), func(s string) bool { return s == "" })
			want := c.want
			if strings.Contains(c.args, "null") { // commas in a JSON text
				args, want = []string{`{"ID":"1"}`, `"text"`, `[1,2]`, `null`}, []string{`envelope "text"`, `envelope [1,2]`, `envelope null`, `envelope {"ID":"1"}`}
			}
			name := made(t, v)
			if got := v.reads(c.in).ok(t, append([]string{"put", name}, args...)...); !strings.Contains(got, c.says) || !strings.Contains(got, name) {
				t.Errorf("%q: %q", c.args, got)
			}
			if got := bodies(t, v.open(t, name)); !slices.Equal(got, want) {
				t.Errorf("%q: the queue has %q, want %q", c.args, got, want)
			}
		}
	})
}

// TestDelayAndLifeOfJobs: flags stand where people put them, and mean what they say.
func TestDelayAndLifeOfJobs(t *testing.T) {
	t.Parallel()
	v := on(local(t))
	name := made(t, v)
	v.ok(t, "put", "-ttl", "90m", name, "1")
	v.ok(t, "put", name, "2", "--ttl=90m", "3")
	v.ok(t, "put", name, "4", "-delay", "1h")
	messages, err := v.open(t, name).Peek(t.Context(), queue.MaxBatch)
	if err != nil || len(messages) != 3 {
		t.Fatalf("%d messages, %v", len(messages), err)
	}
	for _, m := range messages {
		if life := m.Expires.Sub(m.Inserted); life != 90*time.Minute {
			t.Errorf("%q lives for %v", m.Text, life)
		}
	}
	if p, err := v.open(t, name).Properties(t.Context()); err != nil || p.Depth != 4 {
		t.Errorf("%+v, %v", p, err)
	}
}

func TestWhatCannotBePutIsRefused(t *testing.T) {
	t.Parallel()
	v := on(local(t))
	name := made(t, v)
	for _, c := range []struct {
		args   []string
		status int
		says   string
	}{
		{[]string{"{ID:", "1}"}, exitUsage, `text 1 of 2: "{ID:" is not JSON`},
		{[]string{"1", "{"}, exitUsage, `text 2 of 2: "{" is not JSON`}, // and the first is not sent
		{[]string{"hello"}, exitUsage, "-plain"},
		{[]string{"{'ID':1}"}, exitUsage, "at byte 2"},
		{[]string{"{} {}"}, exitUsage, "not JSON"},
		{[]string{""}, exitUsage, "not JSON"},
		{[]string{"1", "-"}, exitUsage, "- stands for the standard input"},
		{[]string{"-5"}, exitUsage, "a text that begins with a dash is given after --"},
		{[]string{"1", "-plain", "-base64"}, exitUsage, "give one of them"},
		{[]string{"1", "-delay", "30"}, exitUsage, `"30" for flag -delay: missing unit, write 30s`},
		{[]string{"1", "-ttl", "1.5"}, exitUsage, "missing unit, write 1.5s"},
		{[]string{"1", "-ttl", "soon"}, exitUsage, "a number with a unit, such as"},
		{[]string{"1", "-ttl", ""}, exitUsage, "a number with a unit, such as"},
		{[]string{"1", "-delay", "-1s"}, exitUsage, "-delay -1s is negative"},
		{[]string{"1", "-delay", "200h"}, exitUsage, "seven days"},
		{[]string{"1", "-ttl", "500ms"}, exitUsage, "too short"},
		{[]string{"1", "-ttl", "-1ns"}, exitUsage, "too short"}, // and not for ever
		{[]string{"1", "-ttl", "1000000h"}, exitUsage, "too long"},
		{[]string{"1", "-ttl", "1m", "-delay", "1m"}, exitUsage, "not shorter"},
		{[]string{"-plain", "a\x1bb"}, exitFailure, "send binary as Base64"},
		{[]string{"-plain", strings.Repeat("x", queue.MaxText+1)}, exitFailure, "65537 bytes"},
		{[]string{`"` + strings.Repeat("x", queue.MaxText-60) + `"`}, exitFailure, "to record attempts"},
	} {
		v.fails(t, c.status, []string{c.says}, append([]string{"put", name}, c.args...)...)
	}
	if p, err := v.open(t, name).Properties(t.Context()); err != nil || p.Depth != 0 {
		t.Errorf("%+v, %v", p, err)
	}
	terminal := v
	terminal.typed = true
	terminal.fails(t, exitUsage, []string{"or - to type jobs"}, "put", name)
	if r := terminal.reads("1\n2\n").call(t, "put", name, "-"); r.status != exitOK || !strings.Contains(r.errs, "Ctrl-D ends") {
		t.Errorf("%+v", r)
	}
}

// TestALineThatCannotBePutIsNamed: who mends a file wants to know where, and how far it
// got.
func TestALineThatCannotBePutIsNamed(t *testing.T) {
	t.Parallel()
	v := on(local(t))
	name := made(t, v)
	v.reads("1\n\n2\n{bad\n3\n").fails(t, exitFailure, []string{"line 4: ", `"{bad" is not JSON`, "; 2 jobs put on devstoreaccount1/" + name + " before that"}, "put", name)
	if got := bodies(t, v.open(t, name)); !slices.Equal(got, []string{"envelope 1", "envelope 2"}) {
		t.Errorf("%q", got)
	}
	v.reads("1\n"+strings.Repeat("x", 200_000)+"\n").fails(t, exitFailure, []string{"line 2: it has more than 65536 bytes"}, "put", "-plain", name)
	v.reads("1\n").fails(t, exitFailure, []string{"line 1: queue devstoreaccount1/" + name + "x does not exist; make it with millrace create " + name + "x, or see with millrace queues which there are\n"}, "put", name+"x")
	v.fails(t, exitFailure, []string{"text 1 of 2: queue devstoreaccount1/" + name + "x does not exist"}, "put", name+"x", "1", "2")
}

// TestLinesMayBeAsLongAsAMessage: neither the buffer that they are read with nor the end
// of the input cuts them.
func TestLinesMayBeAsLongAsAMessage(t *testing.T) {
	t.Parallel()
	v := on(local(t))
	for _, n := range []int{4095, 4096, 4097, 60_000, queue.MaxText} {
		for _, end := range []string{"\n", "\r\n", ""} {
			name := made(t, v)
			long := strings.Repeat("x", n)
			v.reads("a\n"+long+end).ok(t, "put", name, "-plain")
			if got := bodies(t, v.open(t, name)); !slices.Equal(got, []string{"plain a", "plain " + long}) {
				t.Errorf("of %d bytes with the end %q: %d messages", n, end, len(got))
			}
		}
	}
}

// TestATextInTheQueuesPlaceIsNamed, and not the queue in the text's place.
func TestATextInTheQueuesPlaceIsNamed(t *testing.T) {
	t.Parallel()
	on(local(t)).fails(t, exitUsage, []string{`put: queue name "{\"ID\":\"1\"}"`}, "put", `{"ID":"1"}`, "orders")
}
