package poison_test

import (
	"errors"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/millrace/millrace/codec"
	"github.com/millrace/millrace/internal/envelope"
	"github.com/millrace/millrace/internal/poisonrecord"
	"github.com/millrace/millrace/poison"
	"github.com/millrace/millrace/queue"
)

// explode panics, and returns the stack as a recovering caller gets it.
func explode(depth int, secret string) (stack []byte) {
	defer func() {
		_ = recover()
		stack = debug.Stack()
	}()
	var fall func(int)
	fall = func(left int) {
		if left == 0 {
			panic(secret)
		}
		fall(left - 1)
	}
	fall(depth)
	return nil
}

func TestAStackHasFunctionsAndLinesAndNoAddresses(t *testing.T) {
	got := poisonrecord.Stack(explode(3, "s3cret"))
	lines := strings.Split(got, "\n")
	if !strings.Contains(lines[0], "explode.func") || !strings.Contains(lines[1], "stack_test.go:") {
		t.Errorf("got %q, want what panicked first", got)
	}
	for _, no := range []string{"0x", "goroutine ", "debug.Stack", "s3cret"} {
		if strings.Contains(got, no) {
			t.Errorf("got %q in %q", no, got)
		}
	}
	other := make(chan string)
	go func() { other <- poisonrecord.Stack(explode(3, "another")) }()
	if first, _, _ := strings.Cut(got, "testing.tRunner"); !strings.HasPrefix(<-other, strings.Split(first, "poison_test.TestAStack")[0]) {
		t.Error("two stacks of one fault differ")
	}
}

func TestAStackEndsWhereHandlersAreCalled(t *testing.T) {
	const trace = "goroutine 7 [running]:\nruntime/debug.Stack()\n\t/go/debug/stack.go:26 +0x5e\npanic({0x5d3fe0?, 0x6a?})\n\t/go/panic.go:787 +0x132\n" +
		"main.ship({0xc000012345, 0x3})\n\t/src/ship.go:37 +0x1d\ngithub.com/millrace/millrace/dispatcher.(*delivery).call(0xc0)\n\t/x/delivery.go:1 +0x2\n" +
		"created by main.main in goroutine 1\n\t/src/main.go:9 +0x3\n"
	if got, want := poisonrecord.Stack([]byte(trace)), "main.ship()\n\t/src/ship.go:37"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	for _, odd := range []string{"", "\n", "goroutine 1 [running]:", "panic(", "\xff\xfe"} {
		_ = poisonrecord.Stack([]byte(odd)) // it does not fail
	}
	long := "main.f(...)\n\t/src/" + strings.Repeat("x", 5000) + ".go:1\n"
	if got := poisonrecord.Stack([]byte(strings.Repeat(long, 9))); len(got) > 9<<10 || !strings.HasSuffix(got, "…") {
		t.Errorf("got a stack of %d bytes", len(got))
	}
}

// P-05: a record says what a person needs; one of an earlier release says what follows from it.
func TestARecordExplainsItself(t *testing.T) {
	text := "millrace/1?id=job-7&at=1000&n=4\n{}"
	r := poisonrecord.New(from, message(text), 5, poison.ReasonAttempts, errors.New("no stock for order 17"))
	if r.Job != "job-7" || r.Fingerprint != "no stock for order #" || r.Host == "" || r.FirstSeen.Unix() != 1 || r.LastSeen.IsZero() {
		t.Errorf("got %+v", r)
	}
	if bare := poisonrecord.New(from, message("{}"), 5, poison.ReasonAttempts, nil); !bare.FirstSeen.Equal(bare.Inserted) || bare.Job != "" {
		t.Errorf("without an envelope: got %+v", bare)
	}
	old, err := poison.ParseRecord(`{"millracePoison":1,"reason":"attempts","error":"no stock for order 17","queue":"orders","id":"m-1",
		"inserted":"2026-11-21T08:00:00Z","poisoned":"2026-11-21T08:10:00Z","text":"millrace/1?id=job-7\n{}"}`)
	if err != nil || old.Job != "job-7" || old.Fingerprint != "no stock for order #" || old.Host != "" || old.FirstSeen != old.Inserted || old.LastSeen != old.Poisoned {
		t.Errorf("an old record: got %+v, %v", old, err)
	}
}

// A record that is too large loses its stack first, then the end of its error, then the error,
// then what can be derived; never the body.
func TestARecordThatIsTooLargeLosesTheLeast(t *testing.T) {
	if testing.Short() {
		t.Skip("a sweep over sizes")
	}
	type kept struct{ stack, whole, part, host, record bool }
	var found []kept
	for size := queue.MaxText - 8000; size <= queue.MaxText-20; size += 40 {
		q := setup(t)
		p := policy(t, poisonrecord.Policy{}, q)
		text := "millrace/1?id=job-7\n" + strings.Repeat("x", size)
		r := poisonrecord.New(from, message(text), 5, poison.ReasonRejected, errors.New(strings.Repeat("e", 2000)))
		r.Stack = strings.Repeat("s", 3000)
		if err := p.Copy(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		got := onlyMessage(t, q.Sibling("-poison"))
		var k kept
		if parsed, err := poison.ParseRecord(got.Text); err == nil {
			k = kept{parsed.Stack != "", len(parsed.Error) == 2000, parsed.Error != "", parsed.Host != "", true}
			if parsed.Text != text || parsed.Job != "job-7" {
				t.Fatalf("%d bytes: the body or the job is another", size)
			}
		} else if got.Text != text {
			t.Fatalf("%d bytes: the copy is neither a record nor the text", size)
		}
		if len(found) == 0 || found[len(found)-1] != k {
			found = append(found, k)
		}
	}
	want := []kept{{true, true, true, true, true}, {false, true, true, true, true}, {false, false, true, true, true}, {false, false, false, true, true}, {false, false, false, false, true}, {}}
	if len(found) != len(want) {
		t.Fatalf("got the steps %+v, want %+v", found, want)
	}
	for i := range want {
		if found[i] != want[i] {
			t.Errorf("step %d: got %+v, want %+v", i, found[i], want[i])
		}
	}
}

// Consumers that know no envelope get the body, as it is or in Base64.
func TestABareCopyIsTheDecodedBody(t *testing.T) {
	seal := func(h envelope.Head, body string) string {
		text, err := envelope.Seal(h, []byte(body), codec.Envelope)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	for text, want := range map[string]string{
		seal(envelope.Head{ID: "7", Attempts: 5}, `{"ID":"7"}`): `{"ID":"7"}`,
		seal(envelope.Head{}, "\x00\xff"):                       "AP8=",
		seal(envelope.Head{Claim: "blob"}, ""):                  seal(envelope.Head{Claim: "blob"}, ""),
		"millrace/99?x\nbody":                                   "millrace/99?x\nbody",
		"eyJJRCI6IjcifQ==":                                      "eyJJRCI6IjcifQ==",
		"words":                                                 "words",
	} {
		q := setup(t)
		if err := policy(t, poisonrecord.Policy{Bare: true}, q).Copy(t.Context(), poisonrecord.New(from, message(text), 5, poison.ReasonAttempts, nil)); err != nil {
			t.Fatal(err)
		}
		if got := onlyMessage(t, q.Sibling("-poison")).Text; got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}
