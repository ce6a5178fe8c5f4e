package main

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/codec"
	"github.com/millrace/millrace/internal/envelope"
	"github.com/millrace/millrace/internal/poisonrecord"
	"github.com/millrace/millrace/poison"
	"github.com/millrace/millrace/queue"
)

func TestPeekShowsMessagesWithoutTakingThem(t *testing.T) {
	t.Parallel()
	accounts(t, func(t *testing.T, v invocation) {
		name := createQueue(t, v)
		r := v.call(t, "peek", name)
		if r.status != exitOK || r.out != "" || !strings.Contains(r.errs, "No message of ") || !strings.Contains(r.errs, "millrace stat "+name) {
			t.Errorf("peek of an empty queue: got %+v, want success and a hint", r)
		}
		if r := v.call(t, "peek", name, "-json"); r != (result{}) {
			t.Errorf("peek -json of an empty queue: got %+v, want no output", r)
		}
		v.ok(t, "put", name, `{"ID": "1", "more": "<&>"}`)
		v.ok(t, "put", name, "-plain", "two\nlines")
		for range 2 {
			got := v.ok(t, "peek", name)
			for _, want := range []string{", job ", `  {"ID": "1", "more": "<&>"}` + "\n", ", without an envelope, put ", "  two\n  lines\n", "s ago\n"} {
				if !strings.Contains(got, want) {
					t.Errorf("peek: got %q, want %q in it", got, want)
				}
			}
			if strings.Contains(got, "delivered") {
				t.Errorf("peek: got %q, want no deliveries counted", got)
			}
		}
		if got := v.ok(t, "peek", "-n", "1", name); strings.Count(got, "message ") != 1 {
			t.Errorf("peek -n 1: got %q, want one message", got)
		}
		var shown []peeked
		for line := range strings.Lines(v.ok(t, "peek", name, "-json", "-n=32")) {
			var s peeked
			d := json.NewDecoder(strings.NewReader(line))
			d.DisallowUnknownFields()
			if err := d.Decode(&s); err != nil {
				t.Fatalf("%q: %v", line, err)
			}
			shown = append(shown, s)
		}
		if len(shown) != 2 {
			t.Fatalf("peek -json: got %+v, want two messages", shown)
		}
		job, text := shown[0], shown[1]
		if job.Format != "envelope" || job.Job == "" || job.Enqueued == nil || job.ID == "" || job.Inserted.IsZero() || job.Expires != nil ||
			string(job.Body) != `{"ID":"1","more":"<&>"}` || job.BodyText != nil || !strings.HasPrefix(job.Text, "millrace/1?") {
			t.Errorf("JSON of the job: got %+v, want an envelope with its body", job)
		}
		if text.Format != "plain" || text.Job != "" || text.Body != nil || text.BodyText == nil || *text.BodyText != "two\nlines" || text.Text != "two\nlines" {
			t.Errorf("JSON of the plain text: got %+v, want bodyText only", text)
		}
	})
}

func TestPeekRefusesANumberOutOfRange(t *testing.T) {
	t.Parallel()
	for _, n := range []string{"0", "-1", "33"} {
		invocation{}.fails(t, exitUsage, []string{"-n " + n + " is out of range: the service shows 1 to 32 messages"}, "peek", "orders", "-n", n)
	}
	invocation{}.fails(t, exitUsage, []string{`invalid value "x" for flag -n`}, "peek", "orders", "-n", "x")
}

// TestDecodedMessages: peek decodes envelopes, poison records, and other texts.
func TestDecodedMessages(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	seal := func(h envelope.Head, body string, f codec.Format) string {
		text, err := envelope.Seal(h, []byte(body), f)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	job := seal(envelope.Head{ID: "job-1", Enqueued: at, Attempts: 3, Settled: 4}, `{"a":1}`, codec.Envelope)
	record := poisonrecord.New(queue.Name{Account: "acme", Queue: "orders"}, queue.Message{Lease: queue.Lease{ID: "m-1"}, Text: job, DequeueCount: 5}, 5, poison.ReasonAttempts, errors.New("no such order"))
	poisoned, err := record.Encode()
	if err != nil {
		t.Fatal(err)
	}
	unread, err := poisonrecord.New(queue.Name{Queue: "orders"}, queue.Message{Text: "not json"}, 1, poison.ReasonUndecodable, nil).Encode()
	if err != nil {
		t.Fatal(err)
	}
	sum := strings.Repeat("0a", 32)
	claim := "blob://claims/bodies/a?size=7&sha256=" + sum
	for name, c := range map[string]struct {
		m     queue.Message
		json  []string // parts of it
		human string
	}{
		"a job that was tried": {
			queue.Message{Text: job, DequeueCount: 4, Expires: at.Add(time.Hour)},
			[]string{`"dequeueCount":4`, `"format":"envelope"`, `"job":"job-1"`, `"enqueued":"2026-01-02T03:04:05Z"`, `"attempts":3`, `"body":{"a":1}`, `"expires":"2026-01-02T04:04:05Z"`},
			"message id, job job-1, put 2m03s ago, delivered 4 times, 3 failed attempts\n  {\"a\":1}\n",
		},
		"a job of a kind": {
			queue.Message{Text: seal(envelope.Head{ID: "j", Kind: "mail\x1b"}, `{"a":1}`, codec.Envelope)},
			[]string{`"job":"j"`, `"kind":"mail\u001b"`, `"body":{"a":1}`},
			"message id, job j, kind mail\\x1b, put 2m03s ago\n  {\"a\":1}\n",
		},
		"poison": {
			queue.Message{Text: poisoned},
			[]string{`"job":"job-1"`, `"attempts":5`, `"reason":"attempts"`, `"error":"no such order"`, `"queue":"orders"`, `"id":"m-1"`, `"body":{"a":1}`, `"expires":null`},
			"message id, job job-1, put 2m03s ago, poison of orders after 5 failed attempts: no such order\n  {\"a\":1}\n",
		},
		"poison without attempts": {
			queue.Message{Text: unread},
			[]string{`"reason":"undecodable"`, `"bodyText":"not json"`},
			"message id, without an envelope, put 2m03s ago, poison of orders (undecodable)\n  not json\n",
		},
		"JSON in Base64": {
			queue.Message{Text: seal(envelope.Head{}, `{"a":1}`, codec.Base64), DequeueCount: 1},
			[]string{`"format":"base64"`, `"body":{"a":1}`, `"text":"eyJhIjoxfQ=="`},
			"message id, in Base64 without an envelope, put 2m03s ago, delivered 1 time\n  {\"a\":1}\n",
		},
		"no text": {
			queue.Message{Text: seal(envelope.Head{ID: "j"}, "\xff\x00", codec.Envelope)},
			[]string{`"bodyBase64":"/wA="`},
			"message id, job j, put 2m03s ago\n  (Base64) /wA=\n",
		},
		"a body that is stored elsewhere": {
			queue.Message{Text: seal(envelope.Head{ID: "j", Claim: claim}, "", codec.Envelope)},
			[]string{`"format":"envelope"`, `"job":"j"`, `"claim":{"text":"` + claim + `","ref":"blob://claims/bodies/a","size":7,"sha256":"` + sum + `"}`},
			"message id, job j, put 2m03s ago\n  (stored elsewhere) 7 bytes in blob://claims/bodies/a, SHA-256 " + sum + "\n",
		},
		"a group": {
			queue.Message{Text: seal(envelope.Head{ID: "j", Items: 3, Done: envelope.NewItemSet(3, func(i int) bool { return i == 0 }),
				Failed: envelope.NewItemSet(3, func(i int) bool { return i == 2 })}, "7:{\"a\":1}\n7:{\"a\":2}\n3:two\n", codec.Envelope)},
			[]string{`"group":{"jobs":3,"done":1,"failed":1,"items":[{"state":"done","body":{"a":1}},{"state":"left","body":{"a":2}},{"state":"failed","bodyText":"two"}]}`},
			"message id, job j, a group of 3 jobs, 1 done, 1 failed for good, put 2m03s ago\n  item 0, done: {\"a\":1}\n  item 1, left: {\"a\":2}\n  item 2, failed: two\n",
		},
		"a group that is stored elsewhere": {
			queue.Message{Text: seal(envelope.Head{ID: "j", Items: 1000, Claim: "row 7"}, "", codec.Envelope)},
			[]string{`"claim":{"text":"row 7"}`, `"group":{"jobs":1000,"done":0}`},
			"message id, job j, a group of 1000 jobs, put 2m03s ago\n  (stored elsewhere) row 7\n",
		},
		"a broken group": {
			queue.Message{Text: seal(envelope.Head{ID: "j", Items: 2}, "7:{\"a\":1}\n", codec.Envelope)},
			[]string{`"bodyText":"7:{\"a\":1}\n"`, `"error":"decode a group: it has 1 items, and the head says 2"`},
			"message id, job j, put 2m03s ago, cannot be decoded: decode a group: it has 1 items, and the head says 2\n  7:{\"a\":1}\n  \n",
		},
		"a body that a store of the user's keeps": {
			queue.Message{Text: seal(envelope.Head{ID: "j", Claim: "row 7"}, "", codec.Envelope)},
			[]string{`"claim":{"text":"row 7"}`},
			"message id, job j, put 2m03s ago\n  (stored elsewhere) row 7\n",
		},
		"nothing": {
			queue.Message{},
			[]string{`"bodyText":""`},
			"message id, without an envelope, put 2m03s ago\n  \n",
		},
		"an envelope of a later version": {
			queue.Message{Text: "millrace/9?x\nbody"},
			[]string{`"error":"open an envelope: newer version than this program reads`, `"text":"millrace/9?x\nbody"`},
			"message id, put 2m03s ago, cannot be decoded: open an envelope: newer version than this program reads: version 9, the newest it knows is 2\n  millrace/9?x\n  body\n",
		},
		"what controls a terminal": {
			queue.Message{Text: "a\x1b]0;x\x07\u009b1m\u202eb\r\tc\u200dd"},
			[]string{`"bodyText":"a\u001b]0;x\u0007`},
			"message id, without an envelope, put 2m03s ago\n  a\\x1b]0;x\\x07\\u009b1m\\u202eb\\x0d\tc\u200dd\n",
		},
	} {
		c.m.ID, c.m.Inserted = "id", at
		if c.m.Expires.IsZero() {
			c.m.Expires = time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)
		}
		s := decode(c.m)
		var human, object strings.Builder
		if err := s.print(&human, at.Add(2*time.Minute+3*time.Second)); err != nil {
			t.Fatal(err)
		}
		if human.String() != c.human {
			t.Errorf("%s: got the text\n%q, want\n%q", name, &human, c.human)
		}
		if err := printJSON(&object, s); err != nil {
			t.Fatal(err)
		}
		for _, part := range c.json {
			if !strings.Contains(object.String(), part) {
				t.Errorf("%s: got the JSON %s, want %s in it", name, &object, part)
			}
		}
	}
}

func TestAges(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-time.Hour: "0s", 0: "0s", 400 * time.Millisecond: "0s", 59 * time.Second: "59s", 61 * time.Second: "1m01s",
		time.Hour + 2*time.Minute: "1h02m", 25 * time.Hour: "1d01h", 400 * 24 * time.Hour: "400d00h", 59*time.Minute + 59*time.Second + 600*time.Millisecond: "1h00m",
	} {
		if got := age(d); got != want {
			t.Errorf("age(%v) = %q, want %q", d, got, want)
		}
	}
}

// TestMissingPoisonQueueIsExplained: the error does not suggest creating a poison queue to look
// into it.
func TestMissingPoisonQueueIsExplained(t *testing.T) {
	t.Parallel()
	v := on(startServer(t))
	name := createQueue(t, v)
	v.fails(t, exitFailure, []string{"peek: queue devstoreaccount1/" + name + "-poison does not exist; a worker creates it for its first poison message\n"}, "peek", name+"-poison")
}
