package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/emulator"
	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/producer"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/azurequeue"
)

// work runs a listener until the returned function is called.
func work(t *testing.T, q queue.Queue, h listener.Handler[int], o *listener.Options[int]) (finish func()) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	done := make(chan error, 1)
	go func() { done <- listener.New(q, h, o).Run(ctx) }()
	return func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// pausedNow returns what stat -json says of a pause.
func pausedNow(t *testing.T, v invocation, name string) pauseFields {
	t.Helper()
	var s stat
	if err := json.Unmarshal([]byte(v.ok(t, "stat", "-json", name)), &s); err != nil {
		t.Fatal(err)
	}
	return s.pauseFields
}

// A queue is paused and resumed, twice is once, the first pause counts, and other metadata are kept.
// Creating a paused queue is no error and changes nothing.
func TestAQueueIsPausedAndResumed(t *testing.T) {
	t.Parallel()
	accounts(t, func(t *testing.T, v invocation) {
		name := createQueue(t, v)
		q := v.open(t, name)
		if err := q.SetMetadata(t.Context(), map[string]string{"owner": "ada"}); err != nil {
			t.Fatal(err)
		}
		if got := v.ok(t, "stat", name); strings.Contains(got, "paused") || pausedNow(t, v, name).Paused {
			t.Errorf("stat before: got\n%s", got)
		}
		began := time.Now().Truncate(time.Second)
		first := v.ok(t, "pause", name)
		at := pausedNow(t, v, name)
		if !at.Paused || at.PausedSince == nil || at.PausedSince.Before(began) || at.PausedSince.After(time.Now()) {
			t.Fatalf("stat -json: got %+v, want paused since %v", at, began)
		}
		since := at.PausedSince.UTC().Format(time.RFC3339)
		for _, out := range []string{first, v.ok(t, "pause", name)} {
			if !strings.HasPrefix(out, "Queue "+q.Name().String()+" is paused: since "+since+", ") || !strings.HasSuffix(out, " ago.\n") {
				t.Errorf("pause: got %q, want since %s", out, since)
			}
		}
		v.ok(t, "create", name)
		if got := v.ok(t, "stat", name); !strings.Contains(got, "paused       since "+since+", ") || !strings.Contains(got, "owner=ada\n") {
			t.Errorf("stat: got\n%s\nwant paused since %s, and the owner", got, since)
		}
		var listed struct {
			pauseFields
			Name     string
			Metadata map[string]string
		}
		if err := json.Unmarshal([]byte(v.ok(t, "queues", "-json", name)), &listed); err != nil || listed.Name != name || !listed.Paused || !listed.PausedSince.Equal(*at.PausedSince) {
			t.Errorf("queues -json: got %+v, error %v; want paused since %s", listed, err, since)
		}
		if got := v.ok(t, "queues", name); !strings.Contains(got, "\n"+name+"  0                 since "+since+", ") {
			t.Errorf("queues: got\n%s\nwant it paused since %s", got, since)
		}
		for range 2 {
			if got, want := v.ok(t, "resume", name), "Queue "+q.Name().String()+" is not paused.\n"; got != want {
				t.Errorf("resume: got %q, want %q", got, want)
			}
		}
		if p, err := q.Properties(t.Context()); err != nil || !maps.Equal(p.Metadata, map[string]string{"owner": "ada"}) {
			t.Errorf("after it: %v, %v; want the owner alone", p.Metadata, err)
		}
		for _, op := range []string{"pause", "resume"} {
			v.fails(t, exitFailure, []string{"does not exist", "millrace create " + name + "x"}, op, name+"x")
		}
	})
}

// Values that a person has set by hand pause too, and are printed safely; others do not, and are
// replaced.
func TestAPauseByHand(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for real seconds")
	}
	t.Parallel()
	v := on(startServer(t))
	name := createQueue(t, v)
	q := v.open(t, name)
	for value, want := range map[string]string{"until Monday": "is paused: until Monday.\n", "false": "is paused: since 20", "0": "is paused: since 20"} {
		if err := q.SetMetadata(t.Context(), map[string]string{"Paused": value}); err != nil {
			t.Fatal(err)
		}
		by := !strings.Contains(want, "since")
		if got := pausedNow(t, v, name); got.Paused != by || got.PausedSince != nil {
			t.Errorf("%q: stat says %+v, want %v", value, got, by)
		}
		if got := v.ok(t, "stat", name); strings.Contains(got, "paused       "+value+"\n") != by {
			t.Errorf("%q: stat prints\n%s", value, got)
		}
		if got := v.ok(t, "pause", name); !strings.Contains(got, want) {
			t.Errorf("%q: pause prints %q, want %q", value, got, want)
		}
		v.ok(t, "resume", name)
	}
	var out strings.Builder
	s := &stat{Account: "a", Queue: "b", Metadata: map[string]string{"paused": "\x1b[1m"}}
	if err := s.print(&out, time.Now()); err != nil || strings.Contains(out.String(), "\x1b") || !strings.Contains(out.String(), "paused       \\x1b[1m\n") {
		t.Errorf("print: got %q, %v; want the value with control characters escaped", &out, err)
	}
}

// A busy service is asked again, and a write without a response is not guessed about. A signature
// without the permission is refused.
func TestAPauseSurvivesFaults(t *testing.T) {
	t.Parallel()
	e, err := must(emulator.New(nil, &emulator.Options{Faults: &emulator.Faults{Rules: []emulator.Fault{
		{Operation: emulator.GetQueueMetadata, Kind: emulator.FaultBusy, At: []int64{1}},
		{Operation: emulator.SetQueueMetadata, Kind: emulator.FaultReset, At: []int64{1}},
		{Operation: emulator.SetQueueMetadata, Kind: emulator.FaultDrop, At: []int64{2}},
	}}})).Start("")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() })
	v := on(e.ConnectionString())
	name := createQueue(t, v)
	v.ok(t, "pause", name)
	if !pausedNow(t, v, name).Paused {
		t.Error("it is not paused")
	}
}

// The service has no signature of one queue that may set its metadata. A worker whose signature may not
// read them works all the same, and says so once.
func TestAPauseNeedsPermissions(t *testing.T) {
	t.Parallel()
	accounts(t, func(t *testing.T, v invocation) {
		name := createQueue(t, v)
		_, endpoint, _ := strings.Cut(v.env[accountVariable], "QueueEndpoint=")
		endpoint, _, _ = strings.Cut(endpoint, ";")
		signed := endpoint + "/" + name + "?" + signature(t, name, "rp")
		invocation{}.fails(t, exitFailure, []string{"unauthorized"}, "pause", name, "-account", signed)
		v.ok(t, "put", name, "1", "2")
		v.ok(t, "pause", name)

		q, err := azurequeue.Open(endpoint+"/"+name+"?"+signature(t, name, "p"), name, nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = q.Close() })
		var log lockedLog
		handled := make(chan int, 2)
		finish := work(t, q, func(_ context.Context, m *listener.Message[int]) error { handled <- m.Body; return nil }, &listener.Options[int]{
			Concurrency: 8, Logger: slog.New(slog.NewTextHandler(&log, nil)),
		})
		if n := <-handled + <-handled; n != 3 {
			t.Errorf("handled messages with the sum %d, want 3", n)
		}
		log.await("not followed: millrace pause, for lack of the permission")
		finish()
		if n := strings.Count(log.String(), "millrace pause"); n != 1 || strings.Contains(log.String(), "WARN") {
			t.Errorf("the log is\n%s\nwant the line once, and no other", log.String())
		}
	})
}

// lockedLog is a log that several goroutines write.
type lockedLog struct {
	mu      sync.Mutex
	text    strings.Builder // guarded by mu
	changed chan struct{}   // closed and replaced with every line; nil if nobody waits; guarded by mu
}

func (l *lockedLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.changed != nil {
		close(l.changed)
		l.changed = nil
	}
	return l.text.Write(p)
}

func (l *lockedLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// await waits for a text.
func (l *lockedLog) await(text string) {
	for {
		l.mu.Lock()
		if strings.Contains(l.text.String(), text) {
			l.mu.Unlock()
			return
		}
		if l.changed == nil {
			l.changed = make(chan struct{})
		}
		changed := l.changed
		l.mu.Unlock()
		<-changed
	}
}

// A worker that creates its queue, and a producer that does, accept a paused one.
func TestAPausedQueueIsNotCreatedAnew(t *testing.T) {
	t.Parallel()
	accounts(t, func(t *testing.T, v invocation) {
		name := createQueue(t, v)
		v.ok(t, "pause", name)
		q := v.open(t, name)
		if _, err := producer.New(q, &producer.Options[int]{Create: true}).Send(t.Context(), 1, nil); err != nil {
			t.Fatal(err)
		}
		if err := q.Create(t.Context(), nil); !errors.Is(err, queue.ErrQueueExists) {
			t.Errorf("create without metadata: got %v, want that it exists", err)
		}
		handled, paused := make(chan int, 1), make(chan listener.PausedBy, 1)
		finish := work(t, q, func(_ context.Context, m *listener.Message[int]) error { handled <- m.Body; return nil }, &listener.Options[int]{
			Create: true, Observer: listener.Observer{Paused: func(_ queue.Name, by listener.PausedBy) { paused <- by }},
		})
		if by := <-paused; by != listener.ByQueue {
			t.Errorf("paused by %v, want the queue", by)
		}
		finish()
		if len(handled) > 0 {
			t.Error("a job was handled in the pause")
		}
		if !pausedNow(t, v, name).Paused {
			t.Error("it is not paused any more")
		}
	})
}

// TestSeveralQueuesArePaused: by name and by prefix, each once. One that fails does not keep the
// others from being paused.
func TestSeveralQueuesArePaused(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for real seconds")
	}
	t.Parallel()
	v := on(startServer(t))
	for _, name := range []string{"orders-1", "orders-2", "orders-3", "mail"} {
		v.ok(t, "create", name)
	}
	line := func(format string, names ...string) string {
		var b strings.Builder
		for _, name := range names {
			fmt.Fprintf(&b, "Queue devstoreaccount1/%s "+format+"\n", name)
		}
		return b.String()
	}
	ago := regexp.MustCompile(`paused: since .* ago`)
	r := v.call(t, "pause", "orders-2", "no-such", "mail", "mail", "-prefix", "orders-")
	if got, want := ago.ReplaceAllString(r.out, "paused"), line("is paused.", "orders-2", "mail", "orders-1", "orders-3"); r.status != exitFailure || got != want {
		t.Errorf("pause: got status %d and\n%s\nwant\n%s", r.status, got, want)
	}
	if want := "no-such: queue devstoreaccount1/no-such does not exist; create it with millrace create no-such, or list the queues with millrace queues\n" +
		"millrace: pause: 1 of 5 queues could not be paused, see above\n"; r.errs != want {
		t.Errorf("pause: got the errors\n%s\nwant\n%s", r.errs, want)
	}
	if got, want := v.ok(t, "resume", "-prefix", "orders-"), line("is not paused.", "orders-1", "orders-2", "orders-3"); got != want {
		t.Errorf("resume: got\n%s\nwant\n%s", got, want)
	}
	if !pausedNow(t, v, "mail").Paused || pausedNow(t, v, "orders-3").Paused {
		t.Error("after resume -prefix orders-: want mail paused, and orders-3 not")
	}
	v.fails(t, exitFailure, []string{`no queue of account devstoreaccount1 has a name that begins with "nothing"`}, "pause", "-prefix", "nothing")
	v.fails(t, exitUsage, []string{"must not be empty"}, "pause", "-prefix", "")
	v.fails(t, exitUsage, []string{`no queue name begins with "Orders"`}, "pause", "-prefix", "Orders")
}
