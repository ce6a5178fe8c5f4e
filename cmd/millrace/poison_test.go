package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/blob"
	"github.com/millrace/millrace/codec"
	"github.com/millrace/millrace/codec/claimcheck"
	"github.com/millrace/millrace/internal/claimtext"
	"github.com/millrace/millrace/internal/envelope"
	"github.com/millrace/millrace/internal/poisonrecord"
	"github.com/millrace/millrace/poison"
	"github.com/millrace/millrace/queue"
)

// bury puts the record of job n into the poison queue of q.
func bury(t *testing.T, q queue.Manager, n int, reason poison.Reason, cause error, stack string) {
	t.Helper()
	text, err := envelope.Seal(envelope.Head{ID: fmt.Sprintf("job-%d", n), Attempts: 5}, fmt.Appendf(nil, `{"ID":%d,"Item":"lamp"}`, n), codec.Envelope)
	if err != nil {
		t.Fatal(err)
	}
	if reason == poison.ReasonUndecodable {
		text = "order 40"
	}
	r := poisonrecord.New(q.Name(), queue.Message{Lease: queue.Lease{ID: queue.ID(fmt.Sprintf("m-%d", n))}, Text: text, DequeueCount: 5}, 5, reason, cause)
	r.Inserted, r.FirstSeen = r.Poisoned, r.Poisoned
	r.Host, r.Stack = "web-3", stack
	if err := (poisonrecord.Policy{Queue: q.Sibling(poison.Suffix)}).Copy(t.Context(), r); err != nil {
		t.Fatal(err)
	}
}

// buryNight fills the poison queue as docs/poison.md finds it.
func buryNight(t *testing.T, q queue.Manager) {
	t.Helper()
	for n := 1; n <= 40; n++ {
		switch {
		case n <= 27:
			bury(t, q, n, poison.ReasonAttempts, fmt.Errorf("no stock of LAMP for order %d", n), "")
		case n <= 39:
			bury(t, q, n, poison.ReasonAttempts, fmt.Errorf("handler panicked: order %d has no price", n), "main.price()\n\t/src/orders/price.go:37\nmain.ship()\n\t/src/orders/ship.go:12")
		default:
			bury(t, q, n, poison.ReasonUndecodable, errors.New("decode JSON as main.Order: invalid character 'o' looking for beginning of value"), "")
		}
	}
}

// Messages of one kind can be shown, and chosen.
func TestPoisonOfOneKind(t *testing.T) {
	t.Parallel()
	v := on(startServer(t))
	name := createQueue(t, v)
	for n, kind := range []string{"", "mail", "invoice", "mail"} {
		text, err := envelope.Seal(envelope.Head{ID: fmt.Sprintf("job-%d", n), Kind: kind, Enqueued: time.Now()}, []byte(`{}`), codec.Envelope)
		if err != nil {
			t.Fatal(err)
		}
		q := v.open(t, name)
		r := poisonrecord.New(q.Name(), queue.Message{Lease: queue.Lease{ID: queue.ID(fmt.Sprintf("m-%d", n))}, Text: text}, 5, poison.ReasonAttempts, nil)
		if err := (poisonrecord.Policy{Queue: q.Sibling(poison.Suffix)}).Copy(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	if show := v.ok(t, "poison", "show", name, "m-2"); !strings.Contains(show, "\nkind        invoice\n") {
		t.Errorf("show: got %q, want the kind in it", show)
	}
	if show := v.ok(t, "poison", "show", name, "m-0"); strings.Contains(show, "\nkind") {
		t.Errorf("show: got %q, want no kind in it", show)
	}
	if got := v.ok(t, "poison", "redrive", name, "-kind", "mail", "-yes"); !strings.Contains(got, "2 messages of ") {
		t.Errorf("redrive: got %q, want 2 messages", got)
	}
	if got := bodies(t, v.open(t, name)); !slices.Equal(got, []string{"envelope of mail {}", "envelope of mail {}"}) {
		t.Errorf("the queue has %q, want the two of the kind", got)
	}
}

// varying is what differs from run to run in the output of docs/poison.md.
var varying = []struct {
	what *regexp.Regexp
	by   string
}{
	{regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`), "ID"},
	{regexp.MustCompile(`[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9:]{8} UTC`), "TIME"},
	{regexp.MustCompile(`\b[0-9]+s( |$)`), "AGE "},
	{regexp.MustCompile(`  +`), "  "},
	{regexp.MustCompile(` +\n`), "\n"},
}

func withoutVarying(text string) string {
	for _, v := range varying {
		text = v.what.ReplaceAllString(text, v.by)
	}
	return text
}

// TestTheNightIsAsDocumented runs the commands of docs/poison.md in order and compares what they
// print with the page, apart from ids and times.
func TestTheNightIsAsDocumented(t *testing.T) {
	if testing.Short() {
		t.Skip("plays a night")
	}
	t.Parallel()
	v := on(startServer(t))
	v.ok(t, "create", "orders")
	buryNight(t, v.open(t, "orders"))
	commands := 0
	for _, block := range regexp.MustCompile("(?ms)^```console\n(.*?)^```$").FindAllStringSubmatch(document(t, "docs/poison.md"), -1) {
		for one := range strings.SplitSeq(strings.TrimPrefix(block[1], "$ "), "\n$ ") {
			line, want, _ := strings.Cut(strings.TrimSuffix(one, "\n"), "\n")
			args := strings.Fields(line)[1:]
			if before, rest, quoted := strings.Cut(line, `"`); quoted {
				inner, after, _ := strings.Cut(rest, `"`)
				args = append(append(strings.Fields(before)[1:], inner), strings.Fields(after)...)
			}
			got := strings.TrimSuffix(v.ok(t, args...), "\n")
			if got, want := withoutVarying(got), withoutVarying(want); got != want {
				t.Errorf("%s: got\n%s\nwant\n%s", line, got, want)
			}
			commands++
		}
	}
	if commands < 7 {
		t.Errorf("the page has %d commands, want at least 7", commands)
	}
	if p, err := v.open(t, "orders").Properties(t.Context()); err != nil || p.Depth != 27 {
		t.Errorf("got %d orders, %v; want the 27 that had no stock", p.Depth, err)
	}
}

func TestPoisonIsListedShownRedrivenAndPurged(t *testing.T) {
	t.Parallel()
	accounts(t, func(t *testing.T, v invocation) {
		name := createQueue(t, v)
		q := v.open(t, name)
		for n := range 40 {
			cause, reason := fmt.Errorf("no stock for order %d", n), poison.ReasonAttempts
			if n%4 == 0 {
				cause, reason = errors.New("\x1b[31mno such\ncustomer"), poison.ReasonRejected
			}
			bury(t, q, n, reason, cause, "")
		}
		dead := v.open(t, name+"-poison")
		if _, err := dead.Enqueue(t.Context(), "foreign", nil); err != nil {
			t.Fatal(err)
		}
		list := v.ok(t, "poison", "list", name, "-beyond")
		if strings.Count(list, "\n") != 42 || !strings.Contains(list, `\x1b[31mno such customer`) || !strings.Contains(list, "(no record)") {
			t.Errorf("list: got %q, want 42 lines with an escaped error and one without a record", list)
		}
		if r := v.call(t, "poison", "list", name, "-reason", "rejected"); !strings.Contains(r.errs, "that match, of about 41") || !strings.Contains(r.errs, "-beyond") {
			t.Errorf("list -reason: got %+v, want the number looked at and a hint at -beyond", r)
		}
		show := v.ok(t, "poison", "show", name, "job-7", "-beyond")
		for _, want := range []string{"no stock for order 7", "on web-3", `"ID": 7`, "millrace poison redrive " + name + "-poison -id "} {
			if !strings.Contains(show, want) {
				t.Errorf("show: got %q, want %q in it", show, want)
			}
		}
		var shown peeked
		if err := json.Unmarshal([]byte(v.ok(t, "poison", "show", name, "m-7", "-json", "-beyond")), &shown); err != nil || shown.Job != "job-7" || shown.Poison.Fingerprint != "no stock for order #" || shown.Poison.Host != "web-3" {
			t.Errorf("show -json: got %+v, %v; want job-7, its fingerprint and web-3", shown, err)
		}
		v.fails(t, exitFailure, []string{`message "nobody" is not visible`}, "poison", "show", name, "nobody")

		if got := v.ok(t, "poison", "redrive", name, "-reason", "attempts", "-dry-run"); !strings.Contains(got, "30 messages of "+dead.Name().String()+" would be redriven.") {
			t.Errorf("dry run: got %q, want 30 messages that would be redriven", got)
		}
		var report sweepReport
		if err := json.Unmarshal([]byte(v.ok(t, "poison", "redrive", name, "-match", "order 7", "-json", "-parallel", "2")), &report); err != nil || report.Redriven != 1 || report.Chosen != 1 || report.ByReason["attempts"].Redriven != 1 {
			t.Errorf("redrive -json: got %+v, %v; want 1 redriven", report, err)
		}
		if got := v.ok(t, "poison", "redrive", name); !strings.Contains(got, "39 messages of ") || !strings.Contains(got, "(no record): 1 left") || !strings.Contains(got, "name a queue to send it to") {
			t.Errorf("redrive: got %q, want 39 messages and one left", got)
		}
		if p, err := q.Properties(t.Context()); err != nil || p.Depth != 40 {
			t.Errorf("got %d messages, %v; want all 40 back", p.Depth, err)
		}
		v.ok(t, "poison", "redrive", name, "-to", name, "-forever")
		if got := v.ok(t, "peek", name, "-n", "50", "-beyond", "-json"); strings.Count(got, "\n") != 41 || !strings.Contains(got, `"text":"foreign"`) || strings.Contains(got, `"attempts":5`) {
			t.Errorf("peek -beyond: got %q, want 41 lines, the foreign text and no attempts", got)
		}
		bury(t, q, 1, poison.ReasonLost, nil, "")
		v.fails(t, exitUsage, []string{"not a terminal", "-yes to purge"}, "poison", "purge", name)
		if got := v.ok(t, "poison", "purge", name, "-yes", "-json"); !strings.Contains(got, `"purged":1`) {
			t.Errorf("purge: got %q, want 1 purged", got)
		}
		if got := v.ok(t, "poison", "stats", name); got != "No poison messages.\n" {
			t.Errorf("stats of an empty queue: got %q, want that there are none", got)
		}
	})
}

// TestALargeBodyIsShownByItsReference: what failed is a job whose body is in a blob.
func TestALargeBodyIsShownByItsReference(t *testing.T) {
	t.Parallel()
	v := on(startServer(t))
	name := createQueue(t, v)
	q := v.open(t, name)
	claims, err := claimcheck.New(blob.Memory(), "bodies", nil)
	if err != nil {
		t.Fatal(err)
	}
	claim, err := claims.Put(t.Context(), make([]byte, 100_000))
	if err != nil {
		t.Fatal(err)
	}
	text, err := envelope.Seal(envelope.Head{ID: "large", Claim: claim}, nil, codec.Envelope)
	if err != nil {
		t.Fatal(err)
	}
	r := poisonrecord.New(q.Name(), queue.Message{Lease: queue.Lease{ID: "m"}, Text: text}, 0, poison.ReasonBlobGone, envelope.ErrClaimGone)
	if err := (poisonrecord.Policy{Queue: q.Sibling(poison.Suffix)}).Copy(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	stored, err := claimtext.Parse(claim)
	if err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf("(stored elsewhere) 100000 bytes in %v, SHA-256 %x\n", stored.Ref, stored.SHA256)
	for _, command := range [][]string{{"poison", "show", name}, {"poison", "show", name, "-match", stored.Ref.Name}, {"peek", name + "-poison"}} {
		if got := v.ok(t, command...); !strings.Contains(got, want) || !strings.Contains(got, "large") || strings.Contains(got, "newer") {
			t.Errorf("%q: got %q, want %q in it", command, got, want)
		}
	}
	if got := v.ok(t, "poison", "redrive", name, "-id", "m"); !strings.Contains(got, "1 message of ") {
		t.Errorf("redrive: got %q, want 1 message", got)
	}
	var shown peeked
	if err := json.Unmarshal([]byte(v.ok(t, "peek", name, "-json")), &shown); err != nil || shown.Claim == nil || shown.Claim.Text != claim || shown.Claim.Size != 100_000 || shown.BodyText != nil || shown.Error != "" {
		t.Errorf("peek -json: got %+v, %v; want the claim", shown, err)
	}
}

// TestARedriveIsAskedFirstOnATerminal: the name is typed, or nothing is sent.
func TestARedriveIsAskedFirstOnATerminal(t *testing.T) {
	t.Parallel()
	v := on(startServer(t))
	v.interactive = true
	name := createQueue(t, v)
	bury(t, v.open(t, name), 1, poison.ReasonLost, nil, "")
	if r := v.withInput("no\n").call(t, "poison", "redrive", name); r.status != exitFailure || !strings.Contains(r.errs, "nothing was redriven") || !strings.Contains(r.errs, "about 1") {
		t.Errorf("redrive, answered no: got %+v, want a failure that nothing was redriven", r)
	}
	if r := v.withInput("no\n").call(t, "poison", "purge", name); r.status != exitFailure || !strings.Contains(r.errs, "nothing was deleted") {
		t.Errorf("purge, answered no: got %+v, want a failure that nothing was deleted", r)
	}
	if got := v.withInput(name+"-poison\n").ok(t, "poison", "redrive", name); !strings.Contains(got, "1 message of ") {
		t.Errorf("redrive, confirmed: got %q, want 1 message", got)
	}
}

func TestPoisonCommandLinesAreChecked(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"poison":                                   "write millrace poison VERB QUEUE",
		"poison look orders":                       `unknown verb "look"; the verbs are list, show, stats, redrive, purge`,
		"poison -json list orders":                 "the verb comes before the flags",
		"poison list":                              "write millrace poison list QUEUE",
		"poison list orders -n -1":                 "negative",
		"poison list Orders":                       "only lower-case letters",
		"poison list orders -reason bad":           "the reasons are attempts, lost",
		"poison list orders -older -1s":            "negative",
		"poison list orders -older 2h -newer 1h":   "no message is older",
		"poison redrive orders -rate -1":           "-rate -1 is negative",
		"poison redrive orders -parallel 0":        "at least 1",
		"poison redrive orders -lease 1s":          "at least 2s",
		"poison redrive orders -ttl 1ms":           "too short",
		"poison redrive orders -ttl 1h -forever":   "exclude each other",
		"poison redrive orders -to orders-poison":  "is the queue that the messages are in",
		"poison purge orders -n -2":                "negative",
		"peek orders -n 33":                        "-beyond reads further",
		"help poison look":                         "unknown verb",
		"help serve list":                          "unexpected argument",
		"poison show orders a b":                   "unexpected argument",
		"poison redrive orders --exact -to orders": "is the queue that the messages are in",
	} {
		v := on(startServer(t))
		v.fails(t, exitUsage, []string{want}, strings.Fields(line)...)
	}
	v := on(startServer(t))
	v.fails(t, exitFailure, []string{"orders does not exist; create it with millrace create orders"}, "poison", "redrive", "orders")
	if got := (invocation{}).ok(t, "help", "poison", "redrive"); !strings.HasPrefix(got, "Usage: millrace poison redrive QUEUE") {
		t.Errorf("help: got %q, want the usage of redrive", got)
	}
	for _, one := range poisonCommand().verbs {
		for line := range strings.SplitSeq(one.more, "\n") {
			if len(line) > 101 {
				t.Errorf("%s: %q is wide", one.name, line)
			}
		}
	}
}

// TestTheProgressBarIsForTerminals: it is drawn over itself, and nothing of it remains.
func TestTheProgressBarIsForTerminals(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	p := &progressBar{out: &out, done: "redriven"}
	p.show(poison.Summary{Depth: 100, Seen: 50, Counts: poison.Counts{Done: 49, Failed: 1}})
	p.show(poison.Summary{Depth: 100, Seen: 51})
	p.clear()
	if got, want := out.String(), "\r\x1b[K["+strings.Repeat("#", 15)+strings.Repeat(" ", 15)+"] 50 of about 100 looked at: 49 redriven, 1 left\r\x1b[K"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	new(progressBar).show(poison.Summary{}) // without a terminal
	for _, c := range [][2]int64{{0, 0}, {5, 0}, {7, 5}} {
		if got := bar(c[0], c[1]); len(got) != barWidth {
			t.Errorf("%v: got %q, want %d bytes", c, got, barWidth)
		}
	}
}

// TestNoPoisonIsSuccess: whether or not a worker has created the poison queue. A queue that does not
// exist is still an error.
func TestNoPoisonIsSuccess(t *testing.T) {
	t.Parallel()
	accounts(t, func(t *testing.T, v invocation) {
		name := createQueue(t, v)
		for range 2 {
			for _, given := range []string{name, name + "-poison"} {
				for _, verb := range []string{"list", "stats", "show"} {
					if r := v.call(t, "poison", verb, given); r.status != exitOK || r.out != "No poison messages.\n" || r.errs != "" {
						t.Errorf("%s %s: got %+v, want that there are no poison messages", verb, given, r)
					}
				}
				for verb, want := range map[string]string{"redrive": "redriven", "purge": "purged"} {
					if got := v.ok(t, "poison", verb, given, "-yes"); !strings.HasPrefix(got, "0 messages of ") || !strings.HasSuffix(got, " were "+want+".\n") {
						t.Errorf("%s %s: got %q, want 0 messages", verb, given, got)
					}
				}
			}
			if got := v.ok(t, "poison", "list", name, "-json"); got != "" {
				t.Errorf("list -json: got %q, want nothing", got)
			}
			if got := v.ok(t, "poison", "stats", name, "-json"); !strings.Contains(got, `"depth":0,"read":0,"kinds":[]`) {
				t.Errorf("stats -json: got %q, want no messages", got)
			}
			v.fails(t, exitFailure, []string{`message "m-1" is not visible`}, "poison", "show", name, "m-1")
			v.ok(t, "create", name+"-poison")
		}
		for _, verb := range []string{"list", "stats", "show", "redrive"} {
			v.fails(t, exitFailure, []string{"/" + name + "x does not exist; create it with millrace create " + name + "x"}, "poison", verb, name+"x")
			v.fails(t, exitFailure, []string{"/" + name + "x-poison does not exist"}, "poison", verb, name+"x-poison")
			v.fails(t, exitFailure, []string{"/" + name + "x does not exist"}, "poison", verb, "-exact", name+"x")
		}
	})
}

// TestEitherNameConfirms: of the queue or of its poison queue, and no other.
func TestEitherNameConfirms(t *testing.T) {
	t.Parallel()
	v := on(startServer(t))
	v.interactive = true
	for _, verb := range []string{"redrive", "purge"} {
		name := createQueue(t, v)
		for n, typed := range []string{name, name + "-poison"} {
			bury(t, v.open(t, name), n, poison.ReasonAttempts, errors.New("no stock"), "")
			if r := v.withInput("orders\n").call(t, "poison", verb, name); r.status != exitFailure || !strings.Contains(r.errs, "that is not "+name+"-poison or "+name) {
				t.Errorf("%s with another name typed: got %+v, want that it is not the name", verb, r)
			}
			if got := v.withInput(typed+"\n").ok(t, "poison", verb, name); !strings.HasPrefix(got, "1 message of ") {
				t.Errorf("%s with %s typed: got %q, want one message", verb, typed, got)
			}
		}
		if r := v.withInput(name+"\n").call(t, "drop", name+"-poison"); r.status != exitFailure {
			t.Errorf("drop of the poison queue with the name of the queue typed: got %+v, want a failure", r)
		}
	}
}
