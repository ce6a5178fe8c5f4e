package producer_test

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/millrace/millrace/blob"
	"github.com/millrace/millrace/codec"
	"github.com/millrace/millrace/internal/envelope"
	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/poison"
	"github.com/millrace/millrace/producer"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/driver"
)

// bodies is a store of large bodies. A claim is an index in decimal.
type bodies struct {
	limit int
	err   error // of every Put

	mu     sync.Mutex
	stored []string // guarded by mu
}

func (b *bodies) Limit() int { return b.limit }

func (b *bodies) Put(_ context.Context, body []byte) (string, error) {
	if b.err != nil {
		return "", b.err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.stored = append(b.stored, string(body))
	return strconv.Itoa(len(b.stored) - 1), nil
}

// parcel is a message with the bodies of its jobs.
type parcel struct {
	head  envelope.Head
	text  string
	items []string
}

// parcels returns the messages of the queue in the order in which they were put, and empties it. Bodies that
// are not in their messages are those of the store.
func parcels(t testing.TB, q queue.Queue, store *bodies) []parcel {
	t.Helper()
	var all []parcel
	for {
		batch, err := q.Dequeue(context.Background(), queue.MaxBatch, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		if len(batch) == 0 {
			return all
		}
		for _, m := range batch {
			h, body, _, err := envelope.Open(m.Text, codec.Auto, envelope.Groups, envelope.Kinds, envelope.Claims)
			if err != nil {
				t.Fatal(err)
			}
			if h.Claim != "" {
				i, err := strconv.Atoi(h.Claim)
				if err != nil {
					t.Fatal(err)
				}
				body = []byte(store.stored[i])
			}
			g := envelope.Group{body}
			if h.Items > 0 {
				if g, err = envelope.DecodeGroup(body, h.Items); err != nil {
					t.Fatal(err)
				}
			}
			one := parcel{head: h, text: m.Text}
			for _, item := range g {
				one.items = append(one.items, string(item))
			}
			all = append(all, one)
		}
	}
}

// sizes returns how many jobs each message has.
func sizes(all []parcel) []int {
	var n []int
	for _, one := range all {
		n = append(n, len(one.items))
	}
	return n
}

// textCodec encodes an order as its ID. It refuses the order 13.
var textCodec = unluckyCodec{idCodec{codec.JSON[order]()}}

type idCodec struct{ codec.Codec[order] }

func (idCodec) Encode(o order) ([]byte, error) { return []byte(o.ID), nil }

// Every job is in exactly the place that its result says, or has an error and is nowhere; and every message is as full as
// PerMessage, the options and the limits allow.
func TestPackedJobsAreWhereTheirResultsSay(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		q := setup(t)
		lengths := rapid.SliceOfN(rapid.SampledFrom([]int{0, 1, 900, 5000, 20_000, 70_000}), 0, 60).Draw(r, "lengths")
		text := rapid.SampledFrom([]string{"x", "<&", "\x00", "any"}).Draw(r, "text")
		keys := rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b"}), len(lengths), len(lengths)).Draw(r, "keys")
		unlucky := rapid.IntRange(0, 80).Draw(r, "unlucky")
		most := rapid.SampledFrom([]int{2, 3, 50, 1 << 30}).Draw(r, "per message")
		var store *bodies
		tries := 0
		count := func(ctx context.Context, _ *producer.Sending, next func(context.Context) error) error {
			tries++
			return next(ctx)
		}
		o := &producer.Options[order]{Codec: textCodec, Interceptors: []producer.Interceptor{count}}
		if limit := rapid.SampledFrom([]int{-1, 0, 6000, 1 << 20}).Draw(r, "claims above"); limit >= 0 {
			store = &bodies{limit: limit}
			o.Claims = store
		}
		jobs := make([]order, len(lengths))
		for i, n := range lengths {
			own := text
			if text == "any" {
				own = rapid.SampledFrom([]string{"x", "<&", "\x00"}).Draw(r, "text of a job")
			}
			if jobs[i].ID = strings.Repeat(own, n/len(own)); i == unlucky {
				jobs[i].ID = "13"
			}
		}
		results, _ := producer.New(q, o).SendAll(t.Context(), jobs, &producer.SendAllOptions[order]{
			PerMessage: most, Concurrency: 1,
			Options: func(i int, _ order) producer.SendOptions { return producer.SendOptions{Key: keys[i]} },
		})
		if len(results) != len(jobs) {
			r.Fatalf("%d results of %d jobs", len(results), len(jobs))
		}
		all := parcels(t, q, store)
		next, before := 0, 0 // the index in all of the next message, and how many of its jobs had results
		var last []int       // the index of the last job of each message
		for i, res := range results {
			tooLarge := store == nil && len(jobs[i].ID) > 60_000
			if tooLarge {
				tries--
			}
			if (res.Err != nil) != (tooLarge || i == unlucky) || tooLarge && !errors.Is(res.Err, queue.ErrTooLarge) || res.Index != i {
				r.Fatalf("job %d: %+v", i, res)
			}
			if res.Err != nil {
				continue
			}
			m := all[next]
			items := len(m.items)
			if items == 1 {
				items = 0
			}
			if res.Items != items || res.Item != before || m.items[before] != jobs[i].ID || m.head.ID != res.Sent.JobID || m.head.Key != keys[i] {
				r.Fatalf("job %d, %d bytes: item %d of %d and the key %q, not item %d of message %d with %d and the key %q",
					i, len(jobs[i].ID), res.Item, res.Items, keys[i], before, next, len(m.items), m.head.Key)
			}
			if before++; before == len(m.items) {
				next, before, last = next+1, 0, append(last, i)
			}
		}
		if next != len(all) || before != 0 {
			r.Fatalf("%d messages, and the results are of %d", len(all), next)
		}
		for i, m := range all {
			if len(m.items) > most || len(m.items) > 1 && m.head.Claim != "" {
				r.Fatalf("a message of %d jobs, the limit is %d, with the claim %q", len(m.items), most, m.head.Claim)
			}
			if i == 0 || last[i-1]+len(m.items) != last[i] { // a job between them had an error
				continue
			}
			former := all[i-1]
			both := slices.Concat(former.items, m.items[:1])
			if fit(both, store) && former.head.Key == m.head.Key && len(former.items) < most {
				r.Fatalf("message %d has %d bytes and %d jobs, and the next job of %d bytes is not in it",
					i-1, len(former.text), len(former.items), len(m.items[0]))
			}
		}
		if tries != len(all) {
			r.Fatalf("%d tries for %d messages: some were too large", tries, len(all))
		}
	})
}

// fit reports whether jobs fit into a message of which 2,000 bytes are left free.
func fit(items []string, store *bodies) bool {
	group, isText := envelope.Group{}, true
	for _, one := range items {
		group = append(group, []byte(one))
		isText = isText && !strings.Contains(one, "\x00")
	}
	body := string(group.Encode())
	if store != nil && len(body) > store.limit {
		return false
	}
	if !isText {
		body = base64.StdEncoding.EncodeToString([]byte(body))
	}
	return len(body)+2000 <= queue.MaxText && driver.RequestSize(body)+2000 <= driver.MaxRequest
}

// Small jobs of JSON, most of whose request is escaped quotes, are sent by size alone with as few requests as possible.
func TestALargePerMessageFillsMessages(t *testing.T) {
	q := setup(t)
	tries := 0
	count := []producer.Interceptor{func(ctx context.Context, _ *producer.Sending, next func(context.Context) error) error {
		tries++
		return next(ctx)
	}}
	p := producer.New(q, &producer.Options[order]{Interceptors: count})
	jobs := slices.Collect(orders(20_000)) // up to 14 bytes each, of which 4 are quotes, and a length: 38 bytes in XML
	if _, err := p.SendAll(t.Context(), jobs, &producer.SendAllOptions[order]{PerMessage: 10_000, Concurrency: 1}); err != nil {
		t.Fatal(err)
	}
	all := parcels(t, q, nil)
	if len(all) != 6 || tries != 6 {
		t.Errorf("%d messages with %v jobs after %d tries, want 6", len(all), sizes(all), tries)
	}
	// One job that needs Base64 makes the others a third larger, and their characters need no escapes.
	for want, jobs := range map[int][]order{
		2: {{strings.Repeat("x", 20_000) + "\x00"}, {strings.Repeat("x", 20_000)}, {strings.Repeat("x", 20_000)}},
		1: {{"\x00"}, {strings.Repeat("&", 20_000)}, {strings.Repeat("&", 20_000)}},
	} {
		tries = 0
		p := producer.New(q, &producer.Options[order]{Codec: textCodec, Interceptors: count})
		if _, err := p.SendAll(t.Context(), jobs, &producer.SendAllOptions[order]{PerMessage: 10_000, Concurrency: 1}); err != nil {
			t.Fatal(err)
		}
		if all = parcels(t, q, nil); len(all) != want || tries != want {
			t.Errorf("messages with %v jobs after %d tries, want %d", sizes(all), tries, want)
		}
	}
}

// Messages of one SendAll are on their way at the same time, however many jobs they have, and no job is taken whose
// message cannot be sent.
func TestPackedMessagesAreSentAtTheSameTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		onTheWay, taken := 0, 0
		var mu sync.Mutex
		q := &scripted{setup(t), func(context.Context, string) error {
			mu.Lock()
			onTheWay++
			mu.Unlock()
			<-gate
			return nil
		}}
		p := producer.New(q, &producer.Options[order]{Codec: textCodec})
		done := make(chan struct{})
		go func() {
			defer close(done)
			results, err := p.SendAllSeq(t.Context(), func(yield func(order) bool) {
				for range 20 {
					if taken++; !yield(order{strings.Repeat("x", 20_000)}) {
						return
					}
				}
			}, &producer.SendAllOptions[order]{PerMessage: 1 << 30, Concurrency: 3})
			if err != nil || len(results) != 20 {
				t.Errorf("got %d results, %v", len(results), err)
			}
		}()
		synctest.Wait()
		if onTheWay != 3 || taken != 10 { // the tenth did not fit into the third message
			t.Errorf("%d messages of three jobs are on their way, and %d jobs were taken; want 3 and 10", onTheWay, taken)
		}
		close(gate)
		<-done
		if onTheWay != 7 {
			t.Errorf("%d messages, want 7", onTheWay)
		}
	})
}

func TestJobsWithAnIDOfTheirOwnAreNotPacked(t *testing.T) {
	q := setup(t)
	all := []producer.SendOptions{{}, {}, {JobID: "2"}, {JobID: "2"}, {DedupeKey: "4"}, {DedupeKey: "4"}, {}, {}}
	results, err := producer.New[order](q, nil).SendAll(t.Context(), slices.Collect(orders(len(all))), &producer.SendAllOptions[order]{
		PerMessage: 4, Concurrency: 1,
		Options: func(i int, _ order) producer.SendOptions { return all[i] },
	})
	there := parcels(t, q, nil)
	if err != nil || !slices.Equal(sizes(there), []int{2, 1, 1, 1, 1, 2}) {
		t.Fatalf("messages of %v jobs, %v; want 2, 1, 1, 1, 1, 2", sizes(there), err)
	}
	if results[1].Items != 2 || results[2].Items != 0 || there[1].head.Items != 0 || there[1].head.ID != "2" || there[3].head.Dedupe != "4" {
		t.Errorf("got %+v and the heads %+v", results, there)
	}
}

// An error of a message is that of its jobs and of no other, wherever the message is, and also of the job that is too
// large or cannot be encoded, wherever it is.
func TestAnErrorHurtsExactlyItsJobs(t *testing.T) {
	const jobs, perMessage = 12, 3
	for bad := range jobs {
		for what, c := range map[string]struct {
			job  string // in place of the bad one
			want error
			from int // the first and the last job with the error
			to   int
		}{
			"a message":         {fmt.Sprint(bad), queue.ErrInvalid, bad - bad%perMessage, bad - bad%perMessage + perMessage - 1},
			"a large job":       {strings.Repeat("x", queue.MaxText), queue.ErrTooLarge, bad, bad},
			"not encoded":       {"13", errUnlucky, bad, bad},
			"large, and stored": {strings.Repeat("x", queue.MaxText), nil, bad, bad - 1},
			"large, not stored": {strings.Repeat("x", queue.MaxText), blob.ErrInvalid, bad, bad},
		} {
			q := setup(t)
			all := slices.Collect(orders(jobs))
			all[bad].ID = c.job
			o := &producer.Options[order]{Codec: textCodec}
			store := &bodies{limit: queue.MaxText}
			if strings.HasPrefix(what, "large, ") {
				if o.Claims = store; c.want != nil {
					store.err = c.want
				}
			}
			failing := &scripted{q, func(_ context.Context, text string) error {
				if what == "a message" && strings.Contains(text, fmt.Sprintf(":%d\n", bad)) {
					return queue.ErrInvalid
				}
				return nil
			}}
			results, err := producer.New(failing, o).SendAll(t.Context(), all, &producer.SendAllOptions[order]{PerMessage: perMessage})
			var accepted, there []string
			for i, r := range results {
				hurt := i >= c.from && i <= c.to
				if hurt != (r.Err != nil) || hurt && (!errors.Is(r.Err, c.want) || r.Items != 0 || r.Item != 0) {
					t.Errorf("%s, %d: job %d has the error %v, want %v for jobs %d to %d", what, bad, i, r.Err, c.want, c.from, c.to)
				}
				if r.Err == nil {
					accepted = append(accepted, all[i].ID)
				}
			}
			for _, m := range parcels(t, q, store) {
				there = append(there, m.items...)
			}
			slices.Sort(accepted)
			slices.Sort(there)
			if len(results) != jobs || !slices.Equal(accepted, there) || !errors.Is(err, c.want) {
				t.Errorf("%s, %d: %d results, %d accepted, %d on the queue, %v", what, bad, len(results), len(accepted), len(there), err)
			}
		}
	}
}

// What is not known of a message is not known of its jobs and of no other.
func TestAnUnknownOutcomeIsThatOfAMessage(t *testing.T) {
	for lost := range 4 { // of four messages with three jobs each
		for _, c := range []struct {
			what  string
			acts  bool // the request without a response takes effect
			tries int  // how many of them
			times int  // how often the jobs are on the queue
		}{{"repeated", true, 1, 2}, {"repeated, and lost before", false, 1, 1}, {"given up", true, 1 << 30, -1}} {
			synctest.Test(t, func(t *testing.T) {
				q := setup(t)
				tries, puts := 0, 0
				failing := &scripted{q, func(ctx context.Context, text string) error {
					if ordersIn(t, text)[0].ID != fmt.Sprint(lost*3) || tries >= c.tries {
						return nil
					}
					tries++
					if c.acts {
						puts++
						if _, err := q.Enqueue(ctx, text, nil); err != nil {
							return err
						}
					}
					return queue.ErrOutcomeUnknown
				}}
				results, err := producer.New[order](failing, nil).SendAll(t.Context(), slices.Collect(orders(12)),
					&producer.SendAllOptions[order]{PerMessage: 3})
				times := onQueue(t, q)
				for i, r := range results {
					affected, want := i/3 == lost, 1
					switch {
					case affected && c.times > 0:
						want = c.times
					case affected:
						want = puts
					}
					if times[fmt.Sprint(i)] != want || r.Sent.MaybeTwice != (affected && c.times > 0) || errors.Is(r.Err, queue.ErrOutcomeUnknown) != (affected && c.times < 0) || !affected && r.Err != nil {
						t.Errorf("%s, message %d: job %d is on the queue %d times, want %d, and its result is %+v", c.what, lost, i, times[fmt.Sprint(i)], want, r)
					}
				}
				if len(results) != 12 || (err != nil) != (c.times < 0) {
					t.Errorf("%s: %d results, %v", c.what, len(results), err)
				}
			})
		}
	}
}

// When the context ends, the jobs of messages that were accepted have no error and are on the queue; the others have one
// that says that nothing was sent, and are not. Every job that was taken has a result.
func TestAContextThatEndsBetweenPackedJobs(t *testing.T) {
	for at := 1; at <= 13; at++ { // the job before which the context ends, from 1
		for _, endless := range []bool{true, false} {
			synctest.Test(t, func(t *testing.T) {
				q := setup(t)
				ctx, cancel := context.WithCancelCause(t.Context())
				closing := errors.New("closing time")
				jobs := func(yield func(order) bool) {
					for i := 0; endless || i < at; i++ {
						if i == at-1 {
							synctest.Wait() // all full messages are accepted
							cancel(closing)
						}
						if !yield(order{fmt.Sprint(i)}) {
							return
						}
					}
				}
				results, err := producer.New[order](q, nil).SendAllSeq(ctx, jobs, &producer.SendAllOptions[order]{PerMessage: 4})
				times, accepted := onQueue(t, q), (at-1)/4*4
				if len(results) != at || len(times) != accepted || !errors.Is(err, closing) {
					t.Fatalf("at job %d: %d results, %d on the queue, %v; want %d, %d, %v", at, len(results), len(times), err, at, accepted, closing)
				}
				for i, r := range results {
					unsent := errors.Is(r.Err, closing) && strings.Contains(r.Err.Error(), "nothing was sent")
					if unsent != (i >= accepted) || times[fmt.Sprint(i)] > 0 == unsent || !unsent && r.Err != nil {
						t.Errorf("at job %d: job %d is on the queue %d times, and its result is %+v", at, i, times[fmt.Sprint(i)], r)
					}
				}
			})
		}
	}
}

// Nor are the last jobs sent when the context ends after them and before the sequence does.
func TestAContextThatEndsBehindTheLastPackedJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := setup(t)
		ctx, cancel := context.WithCancel(t.Context())
		results, err := producer.New[order](q, nil).SendAllSeq(ctx, func(yield func(order) bool) {
			for one := range orders(5) {
				if !yield(one) {
					t.Error("the sequence was ended before the context")
				}
			}
			synctest.Wait()
			cancel()
		}, &producer.SendAllOptions[order]{PerMessage: 4})
		if len(results) != 5 || len(onQueue(t, q)) != 4 || results[3].Err != nil || !errors.Is(err, context.Canceled) {
			t.Fatalf("got %+v, %v", results, err)
		}
		if last := results[4].Err; !errors.Is(last, context.Canceled) || !strings.Contains(last.Error(), "nothing was sent") {
			t.Errorf("the last job: %v", last)
		}
	})
}

// A job that waits for its message is not sent when the context ends during the request of another, nor when an error
// would meet every message.
func TestJobsThatWaitForTheirMessageAreNotSent(t *testing.T) {
	for _, failure := range []error{nil, queue.ErrUnauthorized} {
		synctest.Test(t, func(t *testing.T) {
			q := setup(t)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			failing := &scripted{q, func(context.Context, string) error {
				if failure == nil {
					cancel()
					return queue.ErrOutcomeUnknown
				}
				return failure
			}}
			results, err := producer.New[order](failing, nil).SendAllSeq(ctx, func(yield func(order) bool) {
				for one := range orders(5) {
					if one.ID == "4" {
						synctest.Wait()
					}
					if !yield(one) {
						return
					}
				}
			}, &producer.SendAllOptions[order]{PerMessage: 3})
			if err == nil || len(results) != 5 || len(onQueue(t, q)) != 0 {
				t.Fatalf("%d results, %v", len(results), err)
			}
			for i, r := range results {
				want := failure
				if failure == nil && i < 3 {
					want = queue.ErrOutcomeUnknown
				} else if failure == nil {
					want = context.Canceled
				}
				waited := r.Err != nil && strings.Contains(r.Err.Error(), "nothing was sent")
				if waited != (i >= 3) || i < 3 && !errors.Is(r.Err, want) {
					t.Errorf("job %d: %v", i, r.Err)
				}
			}
		})
	}
}

// Interceptors see a message once, whatever it has of jobs, because what they change is of the message: its id, its
// options, its trace context. An error of theirs is that of its jobs.
func TestInterceptorsSeeEachPackedMessage(t *testing.T) {
	q := setup(t)
	refused := errors.New("refused")
	var seen []int
	p := producer.New(q, &producer.Options[order]{Interceptors: []producer.Interceptor{
		func(ctx context.Context, s *producer.Sending, next func(context.Context) error) error {
			seen = append(seen, s.Items)
			switch len(seen) {
			case 1:
				s.Key = "first"
			case 2:
				return refused
			case 3:
				return errors.Join(next(ctx), next(ctx)) // MaybeTwice
			}
			return next(ctx)
		},
	}})
	results, err := p.SendAll(t.Context(), slices.Collect(orders(10)), &producer.SendAllOptions[order]{PerMessage: 3, Concurrency: 1})
	if !errors.Is(err, refused) || !slices.Equal(seen, []int{3, 3, 3, 0}) {
		t.Errorf("%v, and the interceptor saw %v; want 3, 3, 3 and 0", err, seen)
	}
	for i, r := range results {
		if errors.Is(r.Err, refused) != (i/3 == 1) || r.Sent.MaybeTwice != (i/3 == 2) || (r.Sent.ID == "") != (i/3 == 1) {
			t.Errorf("job %d: %+v", i, r)
		}
	}
	there := parcels(t, q, nil)
	if !slices.Equal(sizes(there), []int{3, 3, 3, 1}) || there[0].head.Key != "first" || there[1].head.Key != "" || there[1].items[0] != `{"ID":"6"}` {
		t.Errorf("on the queue are %+v", there)
	}
}

// An interceptor may make a message too large. Its jobs are then sent in halves, until they fit; a job that does not fit
// alone fails alone. A message that was accepted is not sent again.
func TestAMessageThatAnInterceptorMakesTooLargeIsDivided(t *testing.T) {
	for _, large := range []int{7000, 64_000} { // the last of eight jobs
		q := setup(t)
		long := strings.Repeat("&", 256)
		var seen []int
		p := producer.New(q, &producer.Options[order]{Codec: textCodec, Interceptors: []producer.Interceptor{
			func(ctx context.Context, s *producer.Sending, next func(context.Context) error) error {
				seen = append(seen, s.Items)
				s.Key, s.DedupeKey, s.Kind = long, long, long
				return next(ctx)
			},
		}})
		var jobs []order
		for i := range 8 {
			jobs = append(jobs, order{strings.Repeat(fmt.Sprint(i), 8060)})
		}
		jobs[7].ID = strings.Repeat("7", large)
		results, err := p.SendAll(t.Context(), jobs, &producer.SendAllOptions[order]{PerMessage: 8, Concurrency: 1})
		wantSeen, wantSizes := []int{8, 4, 4}, []int{4, 4}
		if large > 60_000 {
			wantSeen, wantSizes = []int{7, 0}, []int{7}
		}
		there := parcels(t, q, nil)
		if !slices.Equal(seen, wantSeen) || !slices.Equal(sizes(there), wantSizes) || (err != nil) != (large > 60_000) {
			t.Errorf("the interceptor saw %v, and there are messages of %v jobs, %v; want %v and %v", seen, sizes(there), err, wantSeen, wantSizes)
		}
		place := 0
		for i, r := range results {
			if i == 7 && large > 60_000 {
				if !errors.Is(r.Err, queue.ErrTooLarge) {
					t.Errorf("the job that does not fit: %v", r.Err)
				}
				continue
			}
			m := there[place]
			if r.Err != nil || m.items[r.Item] != jobs[i].ID || r.Items != len(m.items) || r.Sent.JobID != m.head.ID {
				t.Errorf("job %d of %d bytes: %+v", i, len(jobs[i].ID), r.Err)
			}
			if r.Item == len(m.items)-1 {
				place++
			}
		}
	}
}

// A message that may be on the queue is not divided: its jobs would be there twice, and nothing would say so.
func TestAMessageThatWasAcceptedIsNotDivided(t *testing.T) {
	q := setup(t)
	p := producer.New(q, &producer.Options[order]{Codec: textCodec, Interceptors: []producer.Interceptor{
		func(ctx context.Context, s *producer.Sending, next func(context.Context) error) error {
			if err := next(ctx); err != nil {
				return err
			}
			s.Key, s.DedupeKey, s.Kind = strings.Repeat("&", 256), strings.Repeat("&", 256), strings.Repeat("&", 256)
			return next(ctx)
		},
	}})
	jobs := []order{{strings.Repeat("0", 32_000)}, {strings.Repeat("1", 32_000)}}
	results, err := p.SendAll(t.Context(), jobs, &producer.SendAllOptions[order]{PerMessage: 2})
	if there := parcels(t, q, nil); !errors.Is(err, queue.ErrTooLarge) || len(there) != 1 {
		t.Errorf("%v, and %d messages", err, len(there))
	}
	for i, r := range results {
		if !errors.Is(r.Err, queue.ErrOutcomeUnknown) {
			t.Errorf("job %d: %v, want an unknown outcome", i, r.Err)
		}
	}
}

// A listener gets packed jobs as groups, and settles each of them: one is tried again alone, and one is poison.
func TestAListenerSettlesEveryPackedJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const jobs = 100
		q := setup(t)
		results, err := producer.New[order](q, nil).SendAll(t.Context(), slices.Collect(orders(jobs)), &producer.SendAllOptions[order]{PerMessage: 7})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		var mu sync.Mutex
		attempts, settled := map[string]int{}, map[listener.Outcome]int{}
		o := &listener.Options[order]{Logger: slog.New(slog.DiscardHandler)}
		o.Observer.Settled = func(_ listener.Delivery, outcome listener.Outcome, _ time.Duration) {
			mu.Lock()
			defer mu.Unlock()
			if settled[outcome]++; settled[listener.Deleted]+settled[listener.Poisoned] == 15 {
				stop()
			}
		}
		handle := func(_ context.Context, m *listener.Message[order]) error {
			i, err := strconv.Atoi(m.Body.ID)
			if err != nil {
				return err
			}
			if r := results[i]; m.Job != r.Sent.JobID || m.Item != r.Item || m.Items != r.Items || m.ID != r.Sent.ID {
				t.Errorf("job %d is item %d of %d of %s, and its result %+v", i, m.Item, m.Items, m.Job, r)
			}
			mu.Lock()
			defer mu.Unlock()
			attempts[m.Body.ID]++
			switch {
			case i == 30:
				return listener.Poison(errors.New("no use"))
			case i == 60 && attempts[m.Body.ID] == 1:
				return errors.New("not yet")
			}
			return nil
		}
		if err := listener.New(q, listener.EachItem(handle, 3), o).Run(ctx); err != nil {
			t.Fatal(err)
		}
		for i := range jobs {
			want := 1
			if i == 60 {
				want = 2
			}
			if attempts[fmt.Sprint(i)] != want {
				t.Errorf("job %d was handled %d times, want %d", i, attempts[fmt.Sprint(i)], want)
			}
		}
		if settled[listener.Deleted] != 14 || settled[listener.Poisoned] != 1 {
			t.Errorf("settled %v, want 14 messages deleted and 1 poisoned", settled)
		}
		if p, err := q.Properties(t.Context()); err != nil || p.Depth != 0 {
			t.Errorf("%d messages are left, %v", p.Depth, err)
		}
		for r, err := range poison.List(t.Context(), q, nil) {
			if err != nil || r.Job != results[30].Sent.JobID || !strings.Contains(r.Error, "item 2") {
				t.Errorf("in the poison queue is %+v, %v", r, err)
			}
		}
	})
}

// A packed message is worth one event like any other.
func TestPackedMessagesWakeWorkers(t *testing.T) {
	q := setup(t)
	h := &heard{}
	p := telling(q, h, nil)
	results, err := p.SendAll(t.Context(), slices.Collect(orders(10)), &producer.SendAllOptions[order]{PerMessage: 5})
	if err != nil || results[0].Items != 5 {
		t.Fatalf("got %+v, %v", results, err)
	}
	bytes := int64(0)
	for _, m := range parcels(t, q, nil) {
		bytes += int64(len(m.text))
	}
	if got := h.take(); len(got) != 1 || got[0].Bytes != bytes {
		t.Errorf("told of %+v, want one event for %d bytes", got, bytes)
	}
}

func TestReportGetsTheResultsOfPackedJobs(t *testing.T) {
	var all []producer.Result
	results, err := producer.New(setup(t), &producer.Options[order]{Codec: textCodec}).SendAllSeq(t.Context(), orders(20), &producer.SendAllOptions[order]{
		PerMessage: 3,
		Report:     func(r producer.Result) { all = append(all, r) },
	})
	slices.SortFunc(all, func(a, b producer.Result) int { return a.Index - b.Index })
	if err == nil || results != nil || len(all) != 20 {
		t.Fatalf("%d results, %v reported, %v", len(results), len(all), err)
	}
	for i, r := range all {
		if r.Index != i || (r.Err != nil) != (i == 13) {
			t.Errorf("result %d is %+v", i, r)
		}
	}
}

func TestInvalidPackingIsRefused(t *testing.T) {
	for per, o := range map[int]*producer.Options[order]{-1: nil, 2: {Format: codec.Plain}, 3: {Format: codec.Base64}} {
		q := setup(t)
		_, err := producer.New(q, o).SendAll(t.Context(), make([]order, 3), &producer.SendAllOptions[order]{PerMessage: per})
		if err == nil || !strings.Contains(err.Error(), fmt.Sprint("PerMessage ", per)) || len(parcels(t, q, nil)) != 0 {
			t.Errorf("PerMessage %d: got %v", per, err)
		}
	}
	if _, err := producer.New(setup(t), &producer.Options[order]{Format: codec.Plain}).SendAll(t.Context(), make([]order, 3),
		&producer.SendAllOptions[order]{PerMessage: 1}); err != nil {
		t.Errorf("one in a message needs no envelope: got %v", err)
	}
}

// A packed job costs the encoding of its body, which is one allocation here, and its part of a message. A job in a message
// of its own costs what a Send costs.
func TestSendAllAllocatesLittle(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	jobs := slices.Collect(orders(4000))
	p := producer.New(acceptingQueue{}, &producer.Options[order]{Codec: idCodec{codec.JSON[order]()}})
	perJob := func(o *producer.SendAllOptions[order]) float64 {
		return testing.AllocsPerRun(5, func() {
			if _, err := p.SendAll(t.Context(), jobs, o); err != nil {
				t.Fatal(err)
			}
		}) / float64(len(jobs))
	}
	send := testing.AllocsPerRun(1000, func() {
		if _, err := p.Send(t.Context(), order{"7"}, nil); err != nil {
			t.Fatal(err)
		}
	})
	alone, packed := perJob(nil), perJob(&producer.SendAllOptions[order]{PerMessage: 40})
	t.Logf("%.2f allocations a job in a message of its own, %.0f for a Send, %.2f packed", alone, send, packed)
	if alone > send+1.1 || packed > 2 {
		t.Errorf("%.2f allocations a job in a message of its own, %.2f packed; want at most %.0f and 2", alone, packed, send+1)
	}
}

// A sequence of which no job can be encoded ends with the context too.
func TestPackingEndsWithItsContextAlthoughNothingCanBeEncoded(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	jobs := func(yield func(order) bool) {
		for n := 1; yield(order{"13"}); n++ {
			switch n {
			case 10:
				cancel(errors.New("closing time"))
			case 20:
				t.Error("jobs are taken after the end of the context")
				return
			}
		}
	}
	p := producer.New(setup(t), &producer.Options[order]{Codec: unluckyCodec{codec.JSON[order]()}})
	results, err := p.SendAllSeq(ctx, jobs, &producer.SendAllOptions[order]{PerMessage: 5})
	if len(results) != 11 || err == nil || !strings.Contains(err.Error(), "closing time") {
		t.Errorf("got %d results, %v; want those of the jobs before the end and the one that was taken meanwhile", len(results), err)
	}
}
