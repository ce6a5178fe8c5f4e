package dispatcher_test

import (
	"context"
	"encoding/base64"
	"errors"
	"log/slog"
	"net/http"
	"sort"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/codec"
	"github.com/millrace/millrace/dispatcher"
	"github.com/millrace/millrace/emulator"
	"github.com/millrace/millrace/internal/poisonrecord"
	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/poison"
	"github.com/millrace/millrace/producer"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/azurequeue"
)

// countingTransport counts the updates that reach an in-process service.
type countingTransport struct {
	service *emulator.Server
	n       atomic.Int64
}

func (c *countingTransport) Do(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodPut {
		c.n.Add(1)
	}
	return c.service.RoundTrip(r)
}

// service opens a queue of an in-process service, which enforces both limits: of the text, and
// of the request with the text escaped.
func service(t *testing.T) (*azurequeue.Queue, *countingTransport) {
	t.Helper()
	s := &countingTransport{service: must(emulator.New(nil, nil))}
	q, err := azurequeue.Open(s.service.ConnectionString(), "orders", &azurequeue.Options{Transport: s})
	if err != nil {
		t.Fatal(err)
	}
	if err := q.Create(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	return q, s
}

// patterns are the contents of the largest texts, each with its own limit.
var patterns = map[string]string{
	"letters": "x", "quotes": `"`, "line ends": "x\r\n", "not XML text": "\x00",
}

// repeated returns a text of this many bytes.
func repeated(pattern string, n int) string {
	return strings.Repeat(pattern, n/len(pattern)+1)[:n]
}

// largest returns the largest size that is accepted.
func largest(t *testing.T, try func(n int) error) int {
	t.Helper()
	n := sort.Search(queue.MaxText+1, func(n int) bool {
		err := try(n)
		if err != nil && !errors.Is(err, queue.ErrTooLarge) {
			t.Fatal(err)
		}
		return err != nil
	}) - 1
	if n < 10_000 {
		t.Fatalf("largest size: got %d bytes, want at least 10,000", n)
	}
	return n
}

// resultOfDelivery snoozes a message more often than it could be lost, then fails it as often as
// is possible without making it poison, and then succeeds.
func resultOfDelivery(delivery int) error {
	switch {
	case delivery <= 7:
		return dispatcher.Snooze(time.Second)
	case delivery <= 11:
		return dispatcher.Retry(time.Second, errors.New("not yet"))
	}
	return nil
}

// work runs a listener until a message was handled or is poison, for at most a day.
func work(t *testing.T, q queue.Queue, o *listener.Options[string], handler listener.Handler[string]) {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), 24*time.Hour)
	defer stop()
	o.Codec, o.Logger = codec.Text(), slog.New(slog.DiscardHandler)
	o.OnError = func(err error) {
		var e *dispatcher.DeliveryError
		if !errors.As(err, &e) || e.Outcome != dispatcher.Retried {
			t.Error(err)
		}
	}
	err := listener.New(q, func(ctx context.Context, m *listener.Message[string]) error {
		err := handler(ctx, m)
		if err == nil {
			time.AfterFunc(time.Second, stop)
		}
		return err
	}, o).Run(ctx)
	if err != nil {
		t.Error(err)
	}
	if ctx.Err() != nil && errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
		t.Error("the message was not handled to success in a day")
	}
	if p, err := q.Sibling("-poison").Properties(t.Context()); err == nil && p.Depth > 0 {
		t.Errorf("poison messages: got %d, want 0", p.Depth)
	}
}

// The largest job that can be sent can be snoozed and can fail as often as any other: its text
// has room for every record.
func TestTheLargestSendHasRoomForRecords(t *testing.T) {
	for name, pattern := range patterns {
		synctest.Test(t, func(t *testing.T) {
			q, _ := service(t)
			scratch := q.Sibling("-scratch").(*azurequeue.Queue)
			if err := scratch.Create(t.Context(), nil); err != nil {
				t.Fatal(err)
			}
			probe := producer.New(scratch, &producer.Options[string]{Codec: codec.Text()})
			n := largest(t, func(n int) error {
				_, err := probe.Send(t.Context(), repeated(pattern, n), nil)
				return err
			})
			if _, err := producer.New(q, &producer.Options[string]{Codec: codec.Text()}).Send(t.Context(), repeated(pattern, n), nil); err != nil {
				t.Fatal(err)
			}
			deliveries := 0
			work(t, q, &listener.Options[string]{}, func(_ context.Context, m *listener.Message[string]) error {
				deliveries++
				if m.Body != repeated(pattern, n) || int(m.DequeueCount) != deliveries || m.Attempt != max(deliveries-7, 1) {
					t.Errorf("%s, delivery %d: got attempt %d, dequeue count %d, %d bytes; want attempt %d of the same body",
						name, deliveries, m.Attempt, m.DequeueCount, len(m.Body), max(deliveries-7, 1))
				}
				return resultOfDelivery(deliveries)
			})
			if deliveries != 12 {
				t.Errorf("%s: got %d deliveries, want 12", name, deliveries)
			}
		})
	}
}

// So has the text of the largest body that can be saved, whatever the format of the message, and
// the body can be saved again in each later delivery.
func TestTheLargestSaveHasRoomForRecords(t *testing.T) {
	if testing.Short() {
		t.Skip("a sweep over sizes")
	}
	for form, c := range map[string]struct {
		format codec.Format // of the listener
		text   string       // as it was sent
		adopt  bool
	}{
		"envelope":        {codec.Auto, "millrace/1?id=7&at=1\nx", false},
		"bare envelope":   {codec.Auto, "millrace/1?\nx", false},
		"adopted":         {codec.Auto, "x", true},
		"adopted, Base64": {codec.Auto, base64.StdEncoding.EncodeToString([]byte(`"x"`)), true},
	} {
		for name, pattern := range patterns {
			if c.adopt && pattern == "\x00" {
				continue // without an envelope, XML cannot carry it
			}
			synctest.Test(t, func(t *testing.T) {
				q, s := service(t)
				if _, err := q.Enqueue(t.Context(), c.text, nil); err != nil {
					t.Fatal(err)
				}
				deliveries, n := 0, 0
				o := &listener.Options[string]{Wire: listener.WireOptions{Format: c.format, AcceptForeign: c.adopt}}
				work(t, q, o, func(ctx context.Context, m *listener.Message[string]) error {
					deliveries++
					if deliveries == 1 {
						n = largest(t, func(n int) error { return m.Save(ctx, repeated(pattern, n)) })
					}
					if deliveries == 2 || deliveries == 10 { // with short and with long records
						if err := m.Save(ctx, repeated(pattern, n)); err != nil {
							t.Errorf("%s, %s: Save in delivery %d: got error %v, want nil", form, name, deliveries, err)
						}
					}
					if deliveries > 1 {
						return resultOfDelivery(deliveries)
					}
					before := s.n.Load()
					if err := m.Save(ctx, repeated(pattern, n+1)); !errors.Is(err, queue.ErrTooLarge) || s.n.Load() != before {
						t.Errorf("%s, %s: Save of a byte more: got error %v after %d updates, want ErrTooLarge after none",
							form, name, err, s.n.Load()-before)
					}
					if m.Body != repeated(pattern, n) {
						t.Errorf("%s, %s: body: got %d bytes, want the %d saved before", form, name, len(m.Body), n)
					}
					return resultOfDelivery(deliveries)
				})
				if deliveries != 12 {
					t.Errorf("%s, %s: got %d deliveries, want 12", form, name, deliveries)
				}
			})
		}
	}
}

// A message without records can be as large as the service accepts.
func TestASaveInAFormatWithoutRecordsMayUseTheWholeText(t *testing.T) {
	for name, c := range map[string]struct {
		format codec.Format
		text   string
		want   int
	}{
		"plain":  {codec.Plain, "x", queue.MaxText},
		"Base64": {codec.Base64, "eA==", queue.MaxText / 4 * 3},
	} {
		synctest.Test(t, func(t *testing.T) {
			q, _ := service(t)
			if _, err := q.Enqueue(t.Context(), c.text, nil); err != nil {
				t.Fatal(err)
			}
			work(t, q, &listener.Options[string]{Wire: listener.WireOptions{Format: c.format}}, func(ctx context.Context, m *listener.Message[string]) error {
				if n := largest(t, func(n int) error { return m.Save(ctx, repeated("x", n)) }); n != c.want {
					t.Errorf("%s: largest body: got %d bytes, want %d", name, n, c.want)
				}
				return nil
			})
		})
	}
}

// The largest group that can be sent can be saved by its items: what is recorded of those that are
// done takes the room that was left for it.
func TestTheLargestGroupCanBeSaved(t *testing.T) {
	for name, pattern := range patterns {
		synctest.Test(t, func(t *testing.T) {
			q, _ := service(t)
			scratch := q.Sibling("-scratch").(*azurequeue.Queue)
			if err := scratch.Create(t.Context(), nil); err != nil {
				t.Fatal(err)
			}
			group := func(n int) []string { return []string{"a", repeated(pattern, n), "b"} }
			probe := producer.New(scratch, &producer.Options[string]{Codec: codec.Text()})
			n := largest(t, func(n int) error {
				_, err := probe.SendGroup(t.Context(), group(n), &producer.SendOptions{JobID: "7"})
				return err
			})
			if _, err := producer.New(q, &producer.Options[string]{Codec: codec.Text()}).SendGroup(t.Context(), group(n), &producer.SendOptions{JobID: "7"}); err != nil {
				t.Fatal(err)
			}
			saves := 0
			work(t, q, &listener.Options[string]{}, func(ctx context.Context, m *listener.Message[string]) error {
				if m.Item == 2 {
					for _, body := range []string{"c", "d"} {
						if err := m.Save(ctx, body); err != nil {
							t.Errorf("%s: save %d: got error %v, want nil", name, saves, err)
						}
						saves++
					}
				}
				return nil
			})
			if saves != 2 {
				t.Errorf("%s: got %d saves, want 2", name, saves)
			}
		})
	}
}

// The largest job and the largest group that can be sent become poison with a record that says why
// and where they came from, and a redrive sends them back.
func TestTheLargestPoisonIsRedriven(t *testing.T) {
	for name, pattern := range patterns {
		for _, group := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				q, _ := service(t)
				scratch := q.Sibling("-scratch").(*azurequeue.Queue)
				if err := scratch.Create(t.Context(), nil); err != nil {
					t.Fatal(err)
				}
				send := func(q queue.Queue, n int) (err error) {
					p := producer.New(q, &producer.Options[string]{Codec: codec.Text()})
					if group {
						_, err = p.SendGroup(t.Context(), []string{"a", repeated(pattern, n), "b"}, &producer.SendOptions{JobID: "7"})
					} else {
						_, err = p.Send(t.Context(), repeated(pattern, n), &producer.SendOptions{JobID: "7"})
					}
					return err
				}
				n := largest(t, func(n int) error { return send(scratch, n) })
				if err := send(q, n); err != nil {
					t.Fatal(err)
				}
				ctx, stop := context.WithTimeout(t.Context(), time.Hour)
				defer stop()
				fail := func(_ context.Context, m *listener.Message[string]) error {
					if m.Items > 0 && m.Item != 1 {
						return nil
					}
					return errors.New(strings.Repeat("broken", 100))
				}
				o := &listener.Options[string]{Codec: codec.Text(), Logger: slog.New(slog.DiscardHandler)}
				if err := listener.New(q, fail, o).Run(ctx); err != nil {
					t.Error(err)
				}
				for r, err := range poison.List(t.Context(), q, nil) {
					if err != nil || r.Reason != poison.ReasonAttempts || r.Queue != "orders" || r.Attempts != 5 || r.Job != "7" {
						t.Errorf("%s, group %v: got the record of a %q with %d attempts from %q, %v; want one of attempts, 5, and orders", name, group, r.Reason, r.Attempts, r.Queue, err)
					}
				}
				report, err := poison.Redrive(t.Context(), q, nil)
				if err != nil || report.Done != 1 || report.Skipped != 0 {
					t.Errorf("%s, group %v: %d redriven and %d skipped, %v; want 1 and 0", name, group, report.Done, report.Skipped, err)
				}
				work(t, q, &listener.Options[string]{}, func(_ context.Context, m *listener.Message[string]) error {
					if m.Body != repeated(pattern, n) || m.Attempt != 1 || group && m.Item != 1 {
						t.Errorf("%s, group %v: redriven, got item %d with %d bytes, attempt %d", name, group, m.Item, len(m.Body), m.Attempt)
					}
					return nil
				})
			})
		}
	}
}

// The text of a poison message that somebody puts back by hand runs as a new job, whether it is the
// record, the text in it, or a text that is marked because it could not be moved.
func TestPoisonThatIsPutBackByHandRuns(t *testing.T) {
	const body = "x"
	marked := "millrace/1?id=7&n=5&s=5&px=attempts\n" + body
	tooMany := "millrace/1?id=7&n=5&s=4\n" + body
	record := func(from, text string) string {
		r := poisonrecord.New(queue.Name{Account: "test", Queue: from}, queue.Message{Text: text, DequeueCount: 5}, 5, poison.ReasonAttempts, nil)
		encoded, err := r.Encode()
		if err != nil {
			t.Fatal(err)
		}
		return encoded
	}
	other := record("bills", marked)
	for name, c := range map[string]struct{ text, want string }{
		"a record":                       {record("orders", tooMany), body},
		"a record of marked poison":      {record("orders", marked), body},
		"a record without an envelope":   {record("orders", body), body},
		"the text of a record":           {tooMany, body},
		"marked poison":                  {marked, body},
		"a message without a record":     {"millrace/1?id=7&pq=attempts+5+0+orders\n" + body, body},
		"a record of another queue":      {other, other},
		"a record of a newer release":    {`{"millracePoison":2,"queue":"orders"}`, `{"millracePoison":2,"queue":"orders"}`},
		"a group of which one is undone": {record("orders", "millrace/2?id=7&n=5&s=5&gr=2&gd=AQ&gf=Ag&ge=rejected+item+1\n1:y\n1:x\n"), body},
	} {
		synctest.Test(t, func(t *testing.T) {
			q, _ := service(t)
			if _, err := q.Enqueue(t.Context(), c.text, nil); err != nil {
				t.Fatal(err)
			}
			var bodies []string
			work(t, q, &listener.Options[string]{}, func(_ context.Context, m *listener.Message[string]) error {
				bodies = append(bodies, m.Body)
				if head := m.EnvelopeHead(); head.Moved != "" || head.Poison != "" {
					t.Errorf("%s: got the head %+v, want that of a new job", name, head)
				}
				if len(bodies) == 1 && !m.Last() && m.AttemptsRecorded() {
					return errors.New("again") // its attempts are counted anew
				}
				return nil
			})
			if len(bodies) == 0 || bodies[len(bodies)-1] != c.want {
				t.Errorf("%s: the handler saw %q, want %q", name, bodies, c.want)
			}
		})
	}
}

// must returns the value of a constructor that must not fail.
func must[T any](made T, err error) T {
	if err != nil {
		panic(err)
	}
	return made
}
