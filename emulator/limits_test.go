package emulator

import (
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/localqueue"
)

// limited is a server with limits, two queues and ten messages in the first.
func limited(t *testing.T, l Limits) *Server {
	t.Helper()
	engine := localqueue.New(nil)
	for _, name := range []string{"orders", "others"} {
		q := engine.Queue(queue.Name{Account: DevelopmentAccount, Queue: name})
		if err := q.Create(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		for range 10 {
			if _, err := q.Enqueue(t.Context(), "x", nil); err != nil {
				t.Fatal(err)
			}
		}
	}
	return New(engine, &Options{Limits: l})
}

// passed sends n requests and returns how many pass before one is refused; all
// after it must be refused too.
func passed(t *testing.T, s *Server, n int, request func() *http.Request) int {
	t.Helper()
	var count int
	for i := range n {
		switch got := outcome(t, s, request()); {
		case got == "503 ServerBusy":
		case count < i:
			t.Errorf("request %d: %s, after one was refused", i, got)
		default:
			count++
		}
	}
	return count
}

func getOf(queue string, n int) func() *http.Request {
	return func() *http.Request {
		return signed("GET", fmt.Sprintf("/%s/messages?numofmessages=%d", queue, n), "")
	}
}

func TestRequestLimit(t *testing.T) {
	for _, limit := range []int{1, 3, 7, 1000} {
		synctest.Test(t, func(t *testing.T) {
			s := limited(t, Limits{Requests: limit})
			// What is refused for other reasons counts too.
			every := func() *http.Request { return signed("GET", "/absent?comp=metadata", "") }
			for range 3 { // no more is saved than a second's worth
				if got := passed(t, s, limit+5, every); got != limit {
					t.Errorf("%d of %d passed", got, limit)
				}
				time.Sleep(time.Second)
			}
			time.Sleep(time.Hour)
			if got := passed(t, s, limit+5, every); got != limit {
				t.Errorf("after an hour: %d of %d passed", got, limit)
			}
			time.Sleep(time.Second/time.Duration(limit) + 1)
			if got := passed(t, s, 2, every); got != 1 {
				t.Errorf("after the time of one: %d passed", got)
			}
			if got := s.Counts(); got.Throttled != 5*4+1 || got.Statuses[5] != got.Throttled {
				t.Errorf("%+v", got)
			}
		})
	}
}

func TestMessageLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := limited(t, Limits{Messages: 5})
		if got := passed(t, s, 8, put); got != 5 {
			t.Errorf("%d puts passed", got)
		}
		if got := outcome(t, s, getOf("orders", 1)()); got != "503 ServerBusy" {
			t.Errorf("a get of the same queue: %s", got)
		}
		if got := outcome(t, s, getOf("others", 1)()); got != "200" {
			t.Errorf("a get of another queue: %s", got)
		}
		if got := outcome(t, s, signed("GET", "/orders/messages?peekonly=true", "")); got != "200" {
			t.Errorf("a peek: %s", got)
		}
	})
}

// TestMessageDebt holds that a get pays afterwards for what it brought: fifteen
// messages at five a second are two seconds of debt, and nothing costs nothing.
func TestMessageDebt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := limited(t, Limits{Messages: 5})
		if got := passed(t, s, 3, getOf("orders", 10)); got != 1 {
			t.Errorf("%d gets passed", got)
		}
		time.Sleep(time.Second)
		if got := passed(t, s, 1, put); got != 0 {
			t.Error("passed in debt")
		}
		time.Sleep(200 * time.Millisecond)
		if got := passed(t, s, 2, put); got != 1 {
			t.Errorf("%d passed when the debt was paid", got)
		}
		time.Sleep(10 * time.Second)
		if got := outcome(t, s, getOf("orders", 10)()); got != "200" { // the one that was put
			t.Error(got)
		}
		if got := passed(t, s, 50, getOf("orders", 10)); got != 50 {
			t.Errorf("%d empty gets passed", got)
		}
	})
}

// TestDuplicatesPayTwice holds that both halves of a duplicate are charged.
func TestDuplicatesPayTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := unruly(t, "put:duplicate", 0, Options{Limits: Limits{Messages: 4, Requests: 100}})
		if got := passed(t, s, 4, put); got != 2 {
			t.Errorf("%d duplicates passed", got)
		}
	})
}

// TestBucketsAreForgotten holds that names of queues do not fill the memory.
func TestBucketsAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := limited(t, Limits{Messages: 1000})
		for i := range 3 * manyBuckets {
			outcome(t, s, signed("POST", fmt.Sprintf("/absent-%d/messages", i), wrap("x")))
			time.Sleep(time.Millisecond)
		}
		if n := len(s.limits.buckets); n > manyBuckets {
			t.Errorf("%d buckets", n)
		}
	})
}
