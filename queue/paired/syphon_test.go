package paired

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/request"
	"github.com/millrace/millrace/queue"
)

// messages are moved from the secondary to the primary.
func TestDivertedMessagesComeHome(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRegions(t, 10)
		r.divert(t, 1000)
		s := start(t, r.home, r.backlogs, nil)
		time.Sleep(time.Minute)
		sameTexts(t, texts(t, r.home), jobs(1000))
		if left := depths(t, r.backlogs...); left != 0 {
			t.Errorf("got %d messages left in the backlog queues, want 0", left)
		}
		if got := s.State(); got.Moved != 1000 || got.Doubtful != 0 || got.LastError != nil || !got.Running || got.InHand != 0 || !got.Failing.IsZero() {
			t.Errorf("got %+v, want 1,000 moved, and nothing else", got)
		}
	})
}

func TestAFailingPrimaryRestsTheSyphon(t *testing.T) {
	for name, err := range map[string]error{
		"unavailable":  fault(queue.ErrUnavailable, 500),
		"unauthorized": fault(queue.ErrUnauthorized, 403),
		"busy":         fault(queue.ErrThrottled, 503),
		"missing":      fault(queue.ErrQueueMissing, 404),
		"no response":  fault(queue.ErrOutcomeUnknown, 0),
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r := newRegions(t, 10)
				r.divert(t, 1000)
				var down outage
				home := &scripted{Queue: r.home, onEnqueue: func(context.Context, string) error { return down.answer() }}
				backlogs, wrapped := scriptAll(r.backlogs)
				down.begin(err)
				s := start(t, home, wrapped, nil)
				time.Sleep(time.Minute) // the waits have grown
				copies, taken := home.enqueues.Load(), dequeues(backlogs)
				if copies > 40 || taken > 40 {
					t.Errorf("in the first minute: got %d copies and %d polls, want at most 40 each", copies, taken)
				}
				time.Sleep(time.Hour)
				copies, taken = home.enqueues.Load()-copies, dequeues(backlogs)-taken
				if copies < 40 || copies > 90 || taken > 90 {
					t.Errorf("in an hour: got %d copies and %d polls, want about one a minute", copies, taken)
				}
				if got := s.State(); got.Moved != 0 || got.Failing.IsZero() || got.LastError == nil {
					t.Errorf("got %+v, want nothing moved, and why", got)
				}
				// What the syphon does not try with is visible, with no more than one dequeue wasted.
				storms := 0
				for _, q := range r.backlogs {
					for _, m := range take(t, q) {
						if m.DequeueCount > 2 {
							storms++
						}
					}
				}
				if storms > 100 {
					t.Errorf("got %d messages that were dequeued again and again, want at most 100", storms)
				}
				down.end()
				time.Sleep(2 * time.Hour) // take hid them
				sameTexts(t, texts(t, r.home), jobs(1000))
				if got := s.State(); !got.Failing.IsZero() || depths(t, r.backlogs...) != 0 {
					t.Errorf("got %+v, want all at home", got)
				}
			})
		})
	}
}

func dequeues(qs []*scripted) (n int64) {
	for _, q := range qs {
		n += q.dequeues.Load()
	}
	return n
}

// One copy that fails is given back, and the others go on.
func TestOneFailureDoesNotRestTheSyphon(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRegions(t, 1)
		r.divert(t, 320)
		var mu sync.Mutex
		n := 0
		home := &scripted{Queue: r.home, onEnqueue: func(context.Context, string) error {
			mu.Lock()
			defer mu.Unlock()
			if n++; n%20 == 0 {
				return fault(queue.ErrUnavailable, 500)
			}
			return nil
		}}
		start(t, home, r.backlogs, nil)
		time.Sleep(10 * time.Second)
		sameTexts(t, texts(t, r.home), jobs(320))
	})
}

// a message that the service was too busy for is sent again after 10 s at the earliest, and if it is
// busy for several in a row it is left alone for as long.
func TestABusyPrimaryIsLeftAloneForTenSeconds(t *testing.T) {
	for _, n := range []int{1, 100} {
		bubble(t, func(t *testing.T) {
			r := newRegions(t, 3)
			r.divert(t, n)
			var mu sync.Mutex
			last := make(map[string]time.Time)
			tries := 0
			home := &scripted{Queue: r.home, onEnqueue: func(_ context.Context, text string) error {
				mu.Lock()
				defer mu.Unlock()
				if since := time.Since(last[text]); since < busyWait {
					t.Errorf("%s came again after %v, want at least %v", text, since, busyWait)
				}
				last[text] = time.Now()
				tries++
				return fault(queue.ErrThrottled, 503)
			}}
			start(t, home, r.backlogs, nil)
			time.Sleep(100 * time.Millisecond)
			mu.Lock()
			before := tries
			mu.Unlock()
			time.Sleep(9 * time.Second)
			mu.Lock()
			if tries > before {
				t.Errorf("got %d tries within 9 s, want none", tries-before)
			}
			mu.Unlock()
			time.Sleep(10 * time.Minute)
			mu.Lock()
			defer mu.Unlock()
			if tries < 8 {
				t.Errorf("got %d tries, want at least 8", tries)
			}
		})
	}
}

// the price while nothing is diverted: 96 polls a day for each backlog queue, 960 for ten.
func TestAnIdleSyphonIsCheap(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRegions(t, 10)
		s := start(t, r.home, r.backlogs, nil)
		time.Sleep(24 * time.Hour) // the first day has the polls of the start
		before := s.State().Requests.Total()
		time.Sleep(10 * 24 * time.Hour)
		got := s.State().Requests
		if day := (got.Total() - before) / 10; day < 850 || day > 960 {
			t.Errorf("got %d requests a day, want 960 or up to a tenth less", day)
		}
		if got.Copies+got.Deletes+got.GiveBacks != 0 || got.Polls != got.EmptyPolls {
			t.Errorf("got %+v, want polls alone", got)
		}
		if before > 960+120 {
			t.Errorf("got %d requests on the first day, want at most 12 more for each queue", before)
		}
	})
}

// Whichever queue is polled first finds the outage, and then all are polled.
func TestAnIdleSyphonFindsAnOutageOfOthers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRegions(t, 10)
		start(t, r.home, r.backlogs, nil)
		var all time.Duration
		const outages = 20
		for i := range outages {
			time.Sleep(3*time.Hour + time.Duration(i)*time.Minute)
			r.divert(t, 100)
			begun := time.Now()
			for depths(t, r.backlogs...) > 0 {
				if time.Since(begun) > 20*time.Minute {
					t.Fatal("nobody brings them home")
				}
				time.Sleep(time.Second)
			}
			all += time.Since(begun)
		}
		if mean := all / outages; mean > 4*time.Minute {
			t.Errorf("it took %v on average, want about 1m30s", mean)
		}
	})
}

// Within a process a failed delete does not double a message.
func TestAMessageWhoseDeleteFailsIsCopiedOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRegions(t, 2)
		r.divert(t, 100)
		var down outage
		down.begin(fault(queue.ErrUnavailable, 500))
		home := &scripted{Queue: r.home}
		backlogs, wrapped := scriptAll(r.backlogs)
		for _, q := range backlogs {
			q.onDelete = func(context.Context) error { return down.answer() }
		}
		s := start(t, home, wrapped, &SyphonOptions{Parallel: 32})
		time.Sleep(30 * time.Minute)
		down.end()
		time.Sleep(30 * time.Minute)
		if got := s.State(); home.enqueues.Load() != 100 || got.Moved != 100 || got.Doubtful != 100 || depths(t, r.backlogs...) != 0 {
			t.Errorf("got %d copies, %+v, and %d left; want 100 copies, all of which were in doubt, and nothing left", home.enqueues.Load(), got, depths(t, r.backlogs...))
		}
	})
}

// A delete whose response is lost has succeeded.
func TestADeleteThatFindsTheMessageGoneIsNoDoubt(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRegions(t, 1)
		r.divert(t, 10)
		backlogs, wrapped := scriptAll(r.backlogs)
		n := 0
		var mu sync.Mutex
		backlogs[0].deleted = func() error {
			mu.Lock()
			defer mu.Unlock()
			if n++; n == 3 {
				return fault(queue.ErrOutcomeUnknown, 0)
			}
			return nil
		}
		s := start(t, r.home, wrapped, nil)
		time.Sleep(time.Minute)
		sameTexts(t, texts(t, r.home), jobs(10))
		if got := s.State(); got.Doubtful != 0 || got.LastError != nil || got.Requests.Deletes != 11 {
			t.Errorf("got %+v, want 11 deletes and no doubt", got)
		}
	})
}

func TestACopyOfUnknownOutcomeIsRepeatedAndCounted(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRegions(t, 1)
		r.divert(t, 10)
		var mu sync.Mutex
		n := 0
		home := &scripted{Queue: r.home, enqueued: func() error {
			mu.Lock()
			defer mu.Unlock()
			if n++; n == 3 {
				return fault(queue.ErrOutcomeUnknown, 0)
			}
			return nil
		}}
		s := start(t, home, r.backlogs, nil)
		time.Sleep(time.Minute)
		got := texts(t, r.home)
		doubled := 0
		for _, n := range got {
			doubled += n - 1
		}
		if len(got) != 10 || doubled != 1 || s.State().Doubtful != 1 {
			t.Errorf("got %v and %d in doubt, want one twice", got, s.State().Doubtful)
		}
	})
}

// However slow the primary is, no message is copied after its lease has ended.
func TestASlowPrimaryCausesNoDuplicates(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRegions(t, 2)
		r.divert(t, 64)
		slow := func(ctx context.Context, _ string) error { time.Sleep(9 * time.Second); return ctx.Err() }
		home := &scripted{Queue: r.home, onEnqueue: slow}
		options := func(seed uint64) *SyphonOptions {
			return &SyphonOptions{Parallel: 2, Lease: 20 * time.Second, Seed: seed}
		}
		one, two := start(t, home, r.backlogs, options(1)), start(t, home, r.backlogs, options(2))
		time.Sleep(time.Hour)
		sameTexts(t, texts(t, r.home), jobs(64))
		if one.State().Doubtful+two.State().Doubtful != 0 || depths(t, r.backlogs...) != 0 {
			t.Errorf("got %+v and %+v, want no doubt", one.State(), two.State())
		}
	})
}

// one instance or several.
func TestSeveralSyphonsShareTheWork(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRegions(t, 4)
		r.divert(t, 2000)
		_, wrapped := scriptAll(r.backlogs)
		home := &scripted{Queue: r.home, onEnqueue: func(context.Context, string) error { time.Sleep(10 * time.Millisecond); return nil }}
		var all []*running
		for i := range 3 {
			all = append(all, start(t, home, wrapped, &SyphonOptions{Seed: uint64(i + 1)}))
		}
		time.Sleep(time.Minute)
		sameTexts(t, texts(t, r.home), jobs(2000))
		moved := int64(0)
		for i, s := range all {
			got := s.State()
			if moved += got.Moved; got.Moved < 200 {
				t.Errorf("syphon %d: got %d moved, want at least 200", i, got.Moved)
			}
		}
		if moved != 2000 {
			t.Errorf("got %d moved, want 2,000", moved)
		}
	})
}

func TestAFailingBacklogQueueDoesNotHoldUpTheOthers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRegions(t, 4)
		r.divert(t, 400)
		var down outage
		down.begin(fault(queue.ErrUnavailable, 500))
		backlogs, wrapped := scriptAll(r.backlogs)
		backlogs[2].onDequeue = func(int) error { return down.answer() }
		s := start(t, r.home, wrapped, nil)
		time.Sleep(time.Hour)
		if got := s.State(); got.Moved != 300 || got.Backlogs[2].LastError == nil || got.Backlogs[1].LastError != nil || !got.Backlogs[1].Empty {
			t.Errorf("got %+v, want 300 moved", got)
		}
		if n := backlogs[2].dequeues.Load(); n > 80 {
			t.Errorf("got %d polls of it in an hour, want about one a minute", n)
		}
		down.end()
		time.Sleep(2 * time.Minute)
		sameTexts(t, texts(t, r.home), jobs(400))
	})
}

// A backlog queue that works again starts over: its next failure rests it for a second, not for the minute to
// which its rests had grown.
func TestTheRestsOfABacklogQueueStartOver(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRegions(t, 1)
		var down outage
		down.begin(fault(queue.ErrUnavailable, 500))
		backlogs, wrapped := scriptAll(r.backlogs)
		backlogs[0].onDequeue = func(int) error { return down.answer() }
		start(t, r.home, wrapped, &SyphonOptions{MaxPoll: time.Second})
		time.Sleep(time.Hour)
		down.end()
		time.Sleep(2 * time.Minute)
		down.begin(fault(queue.ErrUnavailable, 500))
		before := backlogs[0].dequeues.Load()
		time.Sleep(10 * time.Second)
		if n := backlogs[0].dequeues.Load() - before; n < 3 {
			t.Errorf("got %d polls in 10 s, want at least three: after 1, 2 and 4 s", n)
		}
	})
}

// A limit of the program is waited for: it is neither a failure nor a request.
func TestALimitIsWaitedFor(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRegions(t, 1)
		r.divert(t, 100)
		var until time.Time // written before the syphon runs
		limit := func() error {
			if left := time.Until(until); left > 0 {
				return &queue.Error{Kind: queue.ErrLimited, RetryAfter: left}
			}
			return nil
		}
		until = time.Now().Add(time.Hour)
		backlogs, wrapped := scriptAll(r.backlogs)
		backlogs[0].onDequeue = func(int) error { return limit() }
		home := &scripted{Queue: r.home, onEnqueue: func(_ context.Context, text string) error {
			if text == "job-7" && time.Now().Before(until.Add(time.Minute)) {
				return &queue.Error{Kind: queue.ErrLimited}
			}
			return nil
		}}
		s := start(t, home, wrapped, nil)
		time.Sleep(time.Hour - time.Second)
		if got := s.State(); got.Requests.Total() != 0 || got.LastError != nil || backlogs[0].dequeues.Load() != 1 {
			t.Errorf("got %+v and %d dequeues, want nothing but one that was held back", got, backlogs[0].dequeues.Load())
		}
		time.Sleep(10 * time.Minute)
		sameTexts(t, texts(t, r.home), jobs(100))
		if got := s.State(); got.Requests.Copies != 100 || got.LastError != nil || got.Doubtful != 0 {
			t.Errorf("got %+v, want 100 copies and no error", got)
		}
	})
}

func TestInvalidSyphonOptionsAreRefused(t *testing.T) {
	for want, o := range map[string]SyphonOptions{
		"MinPoll":  {MinPoll: 5},
		"MaxPoll":  {MinPoll: time.Minute, MaxPoll: time.Second},
		"Parallel": {Parallel: -1},
		"Lease":    {Lease: 5 * time.Second},
		"seconds":  {Lease: 20*time.Second + time.Millisecond},
	} {
		if s, err := newSyphon([]queue.Queue{nil}, nil, &o); s != nil || err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want an error about %s", err, want)
		}
	}
}

// The requests of a syphon can be told from others.
func TestRequestsOfTheSyphonSayWhy(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRegions(t, 1)
		r.divert(t, 10)
		home := &scripted{Queue: r.home, onEnqueue: func(ctx context.Context, _ string) error {
			if c := request.CauseOf(ctx); c != request.CauseSyphon {
				t.Errorf("got the cause %v, want syphon", c)
			}
			return nil
		}}
		backlogs, wrapped := scriptAll(r.backlogs)
		backlogs[0].onDelete = func(ctx context.Context) error {
			if c := request.CauseOf(ctx); c != request.CauseSyphon {
				t.Errorf("got the cause %v, want syphon", c)
			}
			return nil
		}
		start(t, home, wrapped, nil)
		time.Sleep(time.Minute)
		sameTexts(t, texts(t, r.home), jobs(10))
	})
}
