package serverwakeup_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/internal/pipelistener"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/wakeup/serverwakeup"
)

func TestSubscribersOfAProcessShareOneStream(t *testing.T) {
	inBubble(t, func(b *bundle) {
		one, two := b.subscribe(b.source), b.subscribe(b.source)
		one.want(0, 1, 0)
		other := b.subscribe(b.open(b.server.ConnectionString()))
		other.want(0, 1, 0)
		b.put()
		b.take()
		one.want(1, 1, 0)
		two.want(1, 1, 0)
		other.want(0, 1, 0)
		b.put()
		other.want(1, 1, 0)
		if open, _ := b.requests(); open != 2 {
			b.Errorf("got %d streams, want one for each process", open)
		}
		if n := b.server.Counts().Requests(); n != 0 {
			b.Errorf("got %d transactions, want none", n)
		}
	})
}

func TestAnIdleStreamStaysOpenAndCostsNoTransaction(t *testing.T) {
	inBubble(t, func(b *bundle) {
		e := b.subscribe(b.source)
		e.want(0, 1, 0)
		time.Sleep(59 * time.Minute)
		e.want(0, 1, 0)
		time.Sleep(3 * time.Minute) // the server has asked for authorization
		e.want(0, 1, 0)
		b.put()
		e.want(1, 1, 0)
		if open, _ := b.requests(); open != 2 || b.server.Counts().Requests() != 0 {
			b.Errorf("got\n%v\nwant two streams and no transaction", b.server.Counts())
		}
		if log := b.log.String(); log != "" {
			b.Errorf("got the log %s, want nothing", log)
		}
	})
}

// TestReadinessThatChangesOftenIsNotSent shows that the server is told only if a process stays without room,
// or an event came that others must hear.
func TestReadinessThatChangesOftenIsNotSent(t *testing.T) {
	inBubble(t, func(b *bundle) {
		e := b.subscribe(b.source)
		e.want(0, 1, 0)
		for range 1000 {
			e.subscription.Ready(false)
			time.Sleep(time.Millisecond)
			e.subscription.Ready(true)
		}
		e.want(0, 1001, 0) // each is in force at once
		if _, ready := b.requests(); ready != 0 {
			b.Errorf("got %d requests, want none", ready)
		}
		e.subscription.Ready(false)
		time.Sleep(time.Second)
		synctest.Wait()
		if _, ready := b.requests(); ready != 1 {
			b.Errorf("got %d requests, want one", ready)
		}
		e.subscription.Ready(true)
		e.want(0, 1002, 0)
		other := b.subscribe(b.open(b.server.ConnectionString()))
		other.want(0, 1, 0)
		e.subscription.Ready(false)
		b.put() // before the server knows
		other.want(1, 1, 0)
		e.want(0, 1002, 0)
		b.take()
		b.put()
		other.want(2, 1, 0)
	})
}

// TestARenewalThatFailsIsNotHidden: the subscriber hears it within a second, and a message that came meanwhile
// wakes it when the stream is open.
func TestARenewalThatFailsIsNotHidden(t *testing.T) {
	for name, answer := range map[string]func(*http.Request) (*http.Response, error){
		"refused": canned{503, "", ""}.respond,
		"hangs": func(r *http.Request) (*http.Response, error) {
			<-r.Context().Done()
			return nil, r.Context().Err()
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(b *bundle) {
				e := b.subscribe(b.source)
				e.want(0, 1, 0)
				time.Sleep(59 * time.Minute)
				b.via.set(answer)
				time.Sleep(time.Minute + time.Second)
				e.want(0, 1, 1)
				b.put()
				b.via.set(nil)
				for end := time.Now().Add(4 * time.Second); e.listened() < 2 && time.Now().Before(end); {
					time.Sleep(100 * time.Millisecond)
				}
				e.want(0, 2, 1) // and dequeues
				b.take()
				time.Sleep(time.Minute)
				e.want(0, 2, 1)
			})
		})
	}
}

func TestAMessageInTheMidstOfARenewalIsNotMissed(t *testing.T) {
	inBubble(t, func(b *bundle) {
		e := b.subscribe(b.source)
		e.want(0, 1, 0)
		time.Sleep(59 * time.Minute)
		b.via.set(func(r *http.Request) (*http.Response, error) {
			if r.Method == http.MethodGet {
				b.put()
			}
			return b.server.RoundTrip(r)
		})
		time.Sleep(time.Minute + 10*time.Second)
		e.want(2, 1, 0) // nobody dequeues, so it is woken again
	})
}

func TestAStreamThatBreaksIsOpenedAgain(t *testing.T) {
	inBubble(t, func(b *bundle) {
		e := b.subscribe(b.source)
		e.want(0, 1, 0)
		for i := range 5 {
			time.Sleep(time.Minute)
			b.via.breaks(io.ErrUnexpectedEOF)
			e.want(i, 1+i, 1+i) // at once
			time.Sleep(time.Second)
			e.want(i, 2+i, 1+i)
			b.put()
			b.take()
			e.want(1+i, 2+i, 1+i)
		}
		if got := b.log.lines("no wake-up stream"); got != 5 {
			b.Errorf("got %d lines about it, want 5:\n%s", got, b.log)
		}
	})
}

// TestAServerThatIsAwayIsAskedRarely shows that waits grow, and that the log has one line.
func TestAServerThatIsAwayIsAskedRarely(t *testing.T) {
	inBubble(t, func(b *bundle) {
		e := b.subscribe(b.source)
		e.want(0, 1, 0)
		tries := 0
		b.via.set(func(*http.Request) (*http.Response, error) {
			tries++
			return nil, &net.OpError{Op: "dial", Err: errors.New("connection refused")}
		})
		b.via.breaks(io.EOF)
		time.Sleep(time.Hour)
		e.want(0, 1, 1)
		if tries < 100 || tries > 180 {
			b.Errorf("got %d tries in an hour, want one every 30 s", tries)
		}
		b.via.set(nil)
		time.Sleep(40 * time.Second)
		e.want(0, 2, 1)
		if b.log.lines("") != 2 || b.log.lines("stream is open") != 1 {
			b.Errorf("got the log\n%s\nwant a line when it breaks and one when it is open again", b.log)
		}
	})
}

// TestAServerThatEndsEveryStreamIsNotAskedInALoop: each listening(true) costs the subscriber a dequeue.
func TestAServerThatEndsEveryStreamIsNotAskedInALoop(t *testing.T) {
	inBubble(t, func(b *bundle) {
		b.via.set(canned{200, "text/plain", "ready abc 15\nevent 1\n"}.respond)
		e := b.subscribe(b.source)
		time.Sleep(time.Hour)
		synctest.Wait()
		e.mu.Lock()
		defer e.mu.Unlock()
		if e.began > 180 || e.began != e.ended || e.events != e.began {
			b.Errorf("got %d × Listening(true), %d × Listening(false) and %d events in an hour", e.began, e.ended, e.events)
		}
	})
}

// canned is a response.
type canned struct {
	status     int
	kind, body string
}

func (c canned) respond(r *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: c.status, Header: http.Header{"Content-Type": {c.kind}}, Body: io.NopCloser(strings.NewReader(c.body)), Request: r}, nil
}

func TestServersWithoutWakeUpsAreAskedRarelyAndOnce(t *testing.T) {
	for name, answer := range map[string]func(*http.Request) (*http.Response, error){
		"Azure":         canned{400, "application/xml", "<Error><Code>InvalidQueryParameterValue</Code></Error>"}.respond,
		"not found":     canned{404, "text/html", "<html>"}.respond,
		"verb":          canned{405, "", ""}.respond,
		"not supported": canned{501, "", ""}.respond,
		"redirect": func(r *http.Request) (*http.Response, error) {
			a, _ := canned{302, "", ""}.respond(r)
			a.Header.Set("Location", "https://evil.example/")
			return a, nil
		},
		"login page": canned{200, "text/html", "<html>Please log in"}.respond,
		"empty list": canned{200, "application/xml", "<QueueMessagesList/>"}.respond,
		"empty text": canned{200, "text/plain", ""}.respond,
		"text":       canned{200, "text/plain", "hello\nevent\n"}.respond,
		"long line":  canned{200, "text/plain", "ready " + strings.Repeat("x", 10_000) + " 15\n"}.respond,
		"no id":      canned{200, "text/plain", "ready  15\n"}.respond,
		"no seconds": canned{200, "text/plain", "ready abc 0\n"}.respond,
		"a proxy that holds back": func(r *http.Request) (*http.Response, error) {
			reader, writer := io.Pipe()
			go func() {
				<-r.Context().Done()
				_ = writer.CloseWithError(r.Context().Err())
			}()
			return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"text/plain"}}, Body: reader, Request: r}, nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(b *bundle) {
				tries := 0
				b.via.set(func(r *http.Request) (*http.Response, error) {
					tries++
					if r.URL.Host != "millrace.invalid" {
						b.Errorf("a request went to %s", r.URL.Host)
					}
					return answer(r)
				})
				e := b.subscribe(b.source)
				time.Sleep(24 * time.Hour)
				e.want(0, 0, 0)
				if tries < 100 || tries > 200 {
					b.Errorf("got %d tries in a day, want one every 10 minutes", tries)
				}
				if b.log.lines("") != 1 || b.log.lines("level=INFO") != 1 || b.log.lines("offers no wake-ups") != 1 {
					b.Errorf("got the log\n%s\nwant one line", b.log)
				}
				b.via.set(nil) // the server was updated
				time.Sleep(15 * time.Minute)
				e.want(0, 1, 0)
			})
		})
	}
}

func TestADeniedStreamIsLoggedOnceAndRetried(t *testing.T) {
	inBubble(t, func(b *bundle) {
		b.via.set(canned{403, "application/xml", ""}.respond)
		e := b.subscribe(b.source)
		time.Sleep(time.Hour)
		e.want(0, 0, 0)
		if b.log.lines("") != 1 || b.log.lines("level=WARN") != 1 {
			b.Errorf("got the log\n%s\nwant one warning", b.log)
		}
		b.via.set(nil)
		time.Sleep(2 * time.Minute)
		e.want(0, 1, 0)
	})
}

func TestAMissingQueueIsWaitedFor(t *testing.T) {
	inBubble(t, func(b *bundle) {
		if err := b.queue.Drop(b.Context()); err != nil {
			b.Fatal(err)
		}
		e := b.subscribe(b.source)
		time.Sleep(time.Hour)
		e.want(0, 0, 0)
		if err := b.queue.Create(b.Context(), nil); err != nil {
			b.Fatal(err)
		}
		time.Sleep(time.Minute)
		e.want(0, 1, 0)
		if log := b.log.String(); log != "" {
			b.Errorf("got the log %s, want nothing: listeners report a missing queue", log)
		}
	})
}

func TestASilentServerIsLeft(t *testing.T) {
	inBubble(t, func(b *bundle) {
		b.via.set(func(r *http.Request) (*http.Response, error) {
			reader, writer := io.Pipe()
			go func() {
				_, _ = io.WriteString(writer, "ready abc 15\nevent 1\n")
				<-r.Context().Done()
				_ = writer.CloseWithError(r.Context().Err())
			}()
			return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"text/plain"}}, Body: reader, Request: r}, nil
		})
		e := b.subscribe(b.source)
		time.Sleep(39 * time.Second)
		e.want(1, 1, 0)
		time.Sleep(time.Second)
		e.want(1, 1, 1)
		if b.log.lines("silent") != 1 {
			b.Errorf("got the log\n%s\nwant a line that says why", b.log)
		}
	})
}

// TestAStreamThatIsCutAtAnyByte shows that only complete lines count.
func TestAStreamThatIsCutAtAnyByte(t *testing.T) {
	const text = "ready abc 15 more words\r\nevent 12\r\n\r\nevent\nnews of a later version\nevent 7 more\n"
	whole := []int{strings.Index(text, "event 12") + 10, strings.Index(text, "event\n") + 6, len(text)}
	hello := strings.Index(text, "\n") + 1
	for n := range len(text) + 1 {
		inBubble(t, func(b *bundle) {
			b.via.set(canned{200, "text/plain; charset=utf-8", text[:n]}.respond)
			e := b.subscribe(b.source)
			synctest.Wait()
			want, begun := 0, 0
			for _, end := range whole {
				if n >= end {
					want++
				}
			}
			if n >= hello {
				begun = 1
			}
			e.want(want, begun, begun)
		})
	}
}

func TestARequestForReadinessThatFailsOpensTheStreamAgain(t *testing.T) {
	for _, status := range []int{404, 500, 200, 302} {
		inBubble(t, func(b *bundle) {
			e := b.subscribe(b.source)
			e.want(0, 1, 0)
			b.via.set(func(r *http.Request) (*http.Response, error) {
				if r.Method == http.MethodPut {
					return canned{status, "", ""}.respond(r)
				}
				return b.server.RoundTrip(r)
			})
			e.subscription.Ready(false)
			time.Sleep(time.Minute)
			e.want(0, 1, 0)
			e.subscription.Ready(true)
			time.Sleep(time.Minute)
			e.want(0, 2, 0)
			b.put()
			e.want(1, 2, 0)
		})
	}
}

// TestASlowRequestForReadinessIsNotListening shows that nobody is told to listen before it is in force.
func TestASlowRequestForReadinessIsNotListening(t *testing.T) {
	inBubble(t, func(b *bundle) {
		e := b.subscribe(b.source)
		e.want(0, 1, 0)
		b.via.set(func(r *http.Request) (*http.Response, error) {
			if r.Method == http.MethodPut {
				time.Sleep(3 * time.Second)
			}
			return b.server.RoundTrip(r)
		})
		e.subscription.Ready(false)
		time.Sleep(time.Second) // the request is under way
		e.subscription.Ready(true)
		time.Sleep(4 * time.Second)
		e.want(0, 1, 0)
		e.subscription.Ready(false)
		e.subscription.Ready(true)
		time.Sleep(time.Minute)
		e.want(0, 2, 0)
		b.put()
		e.want(1, 2, 0)
	})
}

func TestNothingIsCalledAfterTheSourceIsClosed(t *testing.T) {
	inBubble(t, func(b *bundle) {
		e := b.subscribe(b.source)
		e.want(0, 1, 0)
		for range 2 {
			if err := b.source.Close(); err != nil {
				b.Fatal(err)
			}
		}
		b.put()
		e.subscription.Ready(false)
		e.subscription.Ready(true)
		e.subscription.More()
		e.subscription.Close()
		e.want(0, 1, 0)
		if _, err := b.source.Subscribe(b.queue.Name(), nil, nil); !errors.Is(err, serverwakeup.ErrClosed) {
			b.Errorf("subscribe: got %v, want %v", err, serverwakeup.ErrClosed)
		}
	})
}

func TestTheLastSubscriptionClosesTheStream(t *testing.T) {
	inBubble(t, func(b *bundle) {
		other := b.subscribe(b.open(b.server.ConnectionString()))
		other.want(0, 1, 0)
		e, f := b.subscribe(b.source), b.subscribe(b.source)
		e.want(0, 1, 0)
		e.subscription.Close()
		f.subscription.Close()
		synctest.Wait()
		for i := range 3 {
			b.put()
			b.take()
			other.want(1+i, 1, 0)
		}
		again := b.subscribe(b.source)
		again.want(0, 1, 0)
	})
}

func TestQueuesThatAreNotAtTheLocationAreRefused(t *testing.T) {
	inBubble(t, func(b *bundle) {
		for _, name := range []queue.Name{{Account: "other", Queue: "orders"}, {Account: "devstoreaccount1", Queue: "Bad"}, {}} {
			if _, err := b.source.Subscribe(name, nil, nil); !errors.Is(err, queue.ErrInvalid) {
				b.Errorf("%v: got %v, want %v", name, err, queue.ErrInvalid)
			}
		}
		one := b.open(b.server.URL() + "/orders?sv=2020-08-04&sig=c2VjcmV0")
		if _, err := one.Subscribe(queue.Name{Account: "devstoreaccount1", Queue: "letters"}, nil, nil); !errors.Is(err, queue.ErrInvalid) {
			b.Errorf("another queue than that of the address: got %v, want %v", err, queue.ErrInvalid)
		}
	})
}

func TestNoSecretIsLoggedOrInAnError(t *testing.T) {
	for _, location := range []string{"", "nonsense c2VjcmV0", "http://127.0.0.1/devstoreaccount1?sv=1", "AccountName=x;AccountKey=c2VjcmV0!"} {
		if _, err := serverwakeup.Open(location, nil); !errors.Is(err, queue.ErrInvalid) || strings.Contains(err.Error(), "c2VjcmV0") {
			t.Errorf("%q: got %v, want %v without the location", location, err, queue.ErrInvalid)
		}
	}
	inBubble(t, func(b *bundle) {
		s := b.open(b.server.URL() + "?sv=2020-08-04&ss=q&srt=sco&sp=p&se=2099-01-01&sig=c2VjcmV0c2VjcmV0")
		e := b.subscribe(s)
		b.via.set(func(r *http.Request) (*http.Response, error) {
			if !strings.Contains(r.URL.RawQuery, "sig=c2VjcmV0") {
				b.Errorf("got the query %s, want the signature", r.URL.RawQuery)
			}
			return nil, errors.New("Get " + r.URL.String() + ": broken")
		})
		time.Sleep(time.Hour)
		e.want(0, 0, 0)
		if log := b.log.String(); log == "" || strings.Contains(log, "c2VjcmV0") {
			b.Errorf("got the log\n%s\nwant one without the signature", log)
		}
	})
}

// TestAnIdleStreamStaysOpen listens over a connection for most of an hour. The server would end the
// stream within 30 s if the source gave no sign of life, also while no subscriber is ready.
func TestAnIdleStreamStaysOpen(t *testing.T) {
	inBubble(t, func(b *bundle) {
		l := pipelistener.New()
		web := &http.Server{Handler: b.server}
		served := make(chan error, 1)
		go func() { served <- web.Serve(l) }()
		transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return l.Dial(ctx) }}
		defer func() {
			transport.CloseIdleConnections()
			_ = web.Close()
			<-served
		}()
		s, err := serverwakeup.Open(b.server.ConnectionString(), &serverwakeup.Options{Transport: &http.Client{Transport: transport}})
		if err != nil {
			b.Fatal(err)
		}
		defer s.Close()
		e := b.subscribe(s)
		time.Sleep(25 * time.Minute)
		e.want(0, 1, 0)
		e.subscription.Ready(false)
		time.Sleep(25 * time.Minute)
		e.subscription.Ready(true)
		e.want(0, 2, 0)
		b.put()
		e.want(1, 2, 0)
		if open, ready := b.requests(); open != 1 || ready < 290 || ready > 310 {
			b.Errorf("got %d streams and %d requests for readiness, want 1 and one every 10 s", open, ready)
		}
	})
}

// TestASignOfLifeMayFail loses one of two signs of life, which the stream survives.
func TestASignOfLifeMayFail(t *testing.T) {
	inBubble(t, func(b *bundle) {
		e := b.subscribe(b.source)
		e.want(0, 1, 0)
		n := 0
		b.via.set(func(r *http.Request) (*http.Response, error) {
			if n++; n%2 == 0 {
				return canned{503, "", ""}.respond(r)
			}
			return b.server.RoundTrip(r)
		})
		time.Sleep(10 * time.Minute)
		e.want(0, 1, 0)
		if n < 50 {
			b.Errorf("got %d signs of life, want about 60", n)
		}
	})
}
