package shipping

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/blob"
)

// through is a transport into a handler, which may refuse connections.
type through struct {
	handler http.Handler
	dial    func() error
}

func (h *through) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body != nil {
		defer r.Body.Close()
	}
	if h.dial != nil {
		if err := h.dial(); err != nil {
			return nil, err
		}
	}
	w := httptest.NewRecorder()
	h.handler.ServeHTTP(w, r)
	return w.Result(), nil
}

// clientOf returns a client of a handler.
func clientOf(t *testing.T, h http.Handler, o ClientOptions) *Client {
	t.Helper()
	if o.HTTP == nil {
		o.HTTP = &http.Client{Transport: &through{handler: h}}
	}
	if o.Logger == nil {
		o.Logger = (&logLines{}).logger()
	}
	c, err := NewClient("http://initiator", &o)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

var errRefused = errors.New("connection refused")

// However long the Initiator is away, that is one line, and another one when it is back.
func TestAnInitiatorThatIsAwayIsOneLine(t *testing.T) {
	b := batchOf(t, 1, 1)
	synctest.Test(t, func(t *testing.T) {
		var log logLines
		i := newInitiator()
		back := time.Now().Add(time.Hour)
		tries := 0
		client := &http.Client{Transport: &through{i, func() error {
			tries++
			if time.Now().Before(back) {
				return errRefused
			}
			return nil
		}}}
		c := clientOf(t, nil, ClientOptions{HTTP: client, Logger: log.logger()})
		if state, err := c.Ship(t.Context(), b); state != Received || err != nil {
			t.Fatalf("got %v, %v, want received", state, err)
		}
		i.checkArrived(t, b)
		lines := log.lines()
		if len(lines) != 2 || !strings.Contains(lines[0], "the Initiator does not answer at http://initiator/: connection refused; trying again") ||
			!strings.Contains(lines[1], "the Initiator answers again") {
			t.Errorf("log: got %q, want a line that it is away and a line that it is back", lines)
		}
		if tries > 1000 {
			t.Errorf("requests in an hour: got %d, want fewer with longer and longer waits", tries)
		}
	})
}

func TestASingleFailureIsNoOutage(t *testing.T) {
	b := batchOf(t, 1, 1)
	synctest.Test(t, func(t *testing.T) {
		var log logLines
		i, n := newInitiator(), 0
		client := &http.Client{Transport: &through{i, func() error {
			if n++; n%3 == 1 {
				return errRefused
			}
			return nil
		}}}
		if _, err := clientOf(t, nil, ClientOptions{HTTP: client, Logger: log.logger()}).Ship(t.Context(), b); err != nil {
			t.Fatal(err)
		}
		if lines := log.lines(); len(lines) != 0 {
			t.Errorf("log: got %q, want nothing", lines)
		}
	})
}

func TestShippingEndsWithItsContextAndSaysWhatFailed(t *testing.T) {
	b := batchOf(t, 1)
	synctest.Test(t, func(t *testing.T) {
		enough := errors.New("enough")
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Minute, enough)
		defer cancel()
		client := &http.Client{Transport: &through{nil, func() error { return errRefused }}}
		began := time.Now()
		_, err := clientOf(t, nil, ClientOptions{HTTP: client}).Ship(ctx, b)
		if !errors.Is(err, enough) || !errors.Is(err, errRefused) || strings.Contains(err.Error(), "\n") {
			t.Errorf("got %v, want the cause and the last failure on one line", err)
		}
		if took := time.Since(began); took != time.Minute {
			t.Errorf("got the error after %v, want 1 min", took)
		}
	})
}

// A server that accepts and says nothing is away too.
func TestAServerThatNeverRespondsIsAway(t *testing.T) {
	b := batchOf(t, 1)
	synctest.Test(t, func(t *testing.T) {
		i := newInitiator()
		var once sync.Once
		w := newWire(nowhere, 0)
		var log logLines
		client := w.dial()
		c := clientOf(t, nil, ClientOptions{HTTP: client, RequestTimeout: time.Minute, Logger: log.logger()})
		s := i.server().HTTPServer("")
		s.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			once.Do(func() { <-r.Context().Done() })
			i.ServeHTTP(w, r)
		})
		w.serve(t, s, func() {
			if state, err := c.Ship(t.Context(), b); state != Received || err != nil {
				t.Errorf("got %v, %v, want received", state, err)
			}
		})
		client.CloseIdleConnections()
		if lines := log.lines(); len(lines) != 2 || !strings.Contains(lines[0], "no response within 1m0s") {
			t.Errorf("log: got %q, want that nothing came within a minute", lines)
		}
	})
}

func TestAnAddressThatIsNoneIsRefused(t *testing.T) {
	for _, address := range []string{"", "initiator", "initiator:8080", "ftp://initiator", "http://", "http://:80", "http://a b", "http://a?x=1", "http://a#x", "/x", "http://[::1"} {
		if c, err := NewClient(address, nil); err == nil || !strings.Contains(err.Error(), "http://host:port") {
			t.Errorf("%q: got %v, %v, want how an address looks", address, c, err)
		}
	}
	for address, want := range map[string]string{"http://a": "http://a/", "https://a:1/": "https://a:1/", "http://a/b": "http://a/b/"} {
		if c, err := NewClient(address, nil); err != nil || c.address != want {
			t.Errorf("%q: got %v, %v, want %s", address, c, err, want)
		}
	}
}

// What answers at a wrong address is named after a few tries, in case that it is a gateway whose server restarts.
func TestAWrongAddressIsNamed(t *testing.T) {
	b := batchOf(t, 1)
	for name, handler := range map[string]http.HandlerFunc{
		"404 Not Found": func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "<html>\nnot found", http.StatusNotFound) },
		"200 OK":        func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"state":"reported"}`) },
		"302 Found": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://elsewhere/login", http.StatusFound)
		},
		"403 Forbidden": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) },
		"400 Bad Request": func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "Client sent an HTTP request to an HTTPS server.", http.StatusBadRequest)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := 0
				_, err := clientOf(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { n++; handler(w, r) }), ClientOptions{}).Ship(t.Context(), b)
				if !errors.Is(err, ErrNoInitiator) || !strings.Contains(err.Error(), "http://initiator/") || !strings.Contains(err.Error(), name) || strings.Contains(err.Error(), "\n") {
					t.Errorf("got %v, want one line with the address and %s", err, name)
				}
				if n != doubtfulTries {
					t.Errorf("requests: got %d, want %d", n, doubtfulTries)
				}
			})
		})
	}
}

func TestAGatewayWhoseServerRestartsIsBorne(t *testing.T) {
	b := batchOf(t, 1, 1, 1, 1, 1, 1, 1, 1)
	for _, status := range []int{http.StatusNotFound, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusTooManyRequests, http.StatusGatewayTimeout} {
		synctest.Test(t, func(t *testing.T) {
			i, n := newInitiator(), 0
			h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if n++; n%3 == 0 { // in all more often than doubtful answers are borne in a row
					w.WriteHeader(status)
					return
				}
				i.ServeHTTP(w, r)
			})
			if state, err := clientOf(t, h, ClientOptions{}).Ship(t.Context(), b); state != Received || err != nil {
				t.Fatalf("%d: got %v, %v, want received", status, state, err)
			}
			i.checkArrived(t, b)
		})
	}
}

func TestAConflictSaysSoAtOnce(t *testing.T) {
	b, other := batchOf(t, 1), batchOf(t, 2)
	i := newInitiator()
	i.sendManifest(t, &other.Manifest)
	_, err := clientOf(t, i, ClientOptions{}).Ship(t.Context(), b)
	if want := "ship batch 2026-11-21: another batch of 2026-11-21 was sent before, and has not arrived whole: "; !errors.Is(err, ErrConflict) || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("got %v, want %s", err, want)
	}
	if len(i.requests) != 1 {
		t.Errorf("requests: got %v, want 1", i.requests)
	}
	i.report(today)
	_, err = clientOf(t, i, ClientOptions{}).Ship(t.Context(), b)
	if want := "was sent before, and that one is billed"; !errors.Is(err, ErrConflict) || !strings.HasSuffix(err.Error(), want) {
		t.Errorf("reported: got %v, want %s", err, want)
	}
}

func TestAReportedBatchIsNotSent(t *testing.T) {
	b := batchOf(t, 1)
	i := newInitiator()
	i.sendManifest(t, &b.Manifest)
	i.report(today)
	if state, err := clientOf(t, i, ClientOptions{}).Ship(t.Context(), b); state != Reported || err != nil {
		t.Errorf("got %v, %v, want that it is reported", state, err)
	}
	if len(i.requests) != 1 || len(i.completed) != 0 {
		t.Errorf("requests: got %v, want 1", i.requests)
	}
}

func TestProgressCountsWhatHasArrived(t *testing.T) {
	b := batchOf(t, 1, 2, 3)
	i := newInitiator()
	i.sendManifest(t, &b.Manifest)
	i.sendPiece(t, b, 1)
	var got []Progress
	c := clientOf(t, i, ClientOptions{Progress: func(p Progress) { got = append(got, p) }})
	if _, err := c.Ship(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	for n, want := range []int64{2, 3, 6} {
		if n >= len(got) || got[n].Records != want || got[n].AllRecords != 6 || got[n].Batch != today {
			t.Fatalf("progress: got %+v, want 2, 3 and 6 of 6 records", got)
		}
	}
	if last := got[len(got)-1]; len(got) != 3 || last.Bytes != last.AllBytes || last.AllBytes != b.Manifest.Bytes() {
		t.Errorf("progress: got %+v, want all %d bytes at last", got, b.Manifest.Bytes())
	}
}

func TestASpoolFileThatWasChangedIsNotSent(t *testing.T) {
	b := batchOf(t, 1)
	if err := os.WriteFile(b.path, make([]byte, b.Manifest.Bytes()), 0o600); err != nil {
		t.Fatal(err)
	}
	i := newInitiator()
	if _, err := clientOf(t, i, ClientOptions{}).Ship(t.Context(), b); err == nil || !strings.Contains(err.Error(), "was changed") {
		t.Errorf("got %v, want that it was changed", err)
	}
	if got := stored(t, i.store); got != 1 {
		t.Errorf("blobs: got %d, want the manifest alone", got)
	}
}

// A piece that arrives damaged is sent again, and not forever.
func TestAPieceThatIsRefusedIsSentAgain(t *testing.T) {
	b := batchOf(t, 1, 1)
	for _, refusals := range []int{doubtfulTries - 1, doubtfulTries} {
		synctest.Test(t, func(t *testing.T) {
			i, n := newInitiator(), 0
			h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if strings.HasSuffix(r.URL.Path, "/pieces/1") {
					if n++; n <= refusals {
						w.Header().Set(versionHeader, version)
						http.Error(w, "its checksum is not that of the manifest", http.StatusUnprocessableEntity)
						return
					}
				}
				i.ServeHTTP(w, r)
			})
			_, err := clientOf(t, h, ClientOptions{}).Ship(t.Context(), b)
			if (err == nil) != (refusals < doubtfulTries) || err != nil && !strings.Contains(err.Error(), "its checksum") {
				t.Errorf("refused %d times: got %v", refusals, err)
			}
		})
	}
}

// A status that cannot be true is not believed.
func TestAStatusThatLiesIsNotBelieved(t *testing.T) {
	b := batchOf(t, 1, 1)
	_, digest, err := b.Manifest.encode()
	if err != nil {
		t.Fatal(err)
	}
	for _, status := range []string{
		`{"state":"receiving","missing":[2]}`, `{"state":"receiving","missing":[-1]}`, `{"state":"receiving","missing":[1,0]}`, `{"state":"receiving","missing":[0,0]}`,
		`{"state":"receiving"}`, `{"state":"received","missing":[0]}`, `{"state":"lost"}`, `{"state":"receiving","missing":["0"]}`, `{`, ``, `[]`,
	} {
		synctest.Test(t, func(t *testing.T) {
			h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Method != http.MethodGet {
					t.Errorf("%s: got %s, want questions only", status, r.Method)
				}
				w.Header().Set(versionHeader, version)
				fmt.Fprint(w, strings.Replace(status, "{", `{"manifest":"`+digest+`",`, 1))
			})
			if state, err := clientOf(t, h, ClientOptions{}).Ship(t.Context(), b); err == nil {
				t.Errorf("%s: got %v, want an error", status, state)
			}
		})
	}
}

// Clients that ship at once share the work or double it, and store each piece once.
func TestTwoClientsShipTheSameBatchAtOnce(t *testing.T) {
	b := batchOf(t, 1, 2, 3, 4)
	synctest.Test(t, func(t *testing.T) {
		i := newInitiator()
		counted := &countedStore{Store: i.store, created: make(map[blob.Ref]int)}
		i.store = counted
		w := newWire(nowhere, 0)
		client := w.dial()
		w.serve(t, i.server().HTTPServer(""), func() {
			var both sync.WaitGroup
			for range 2 {
				both.Go(func() {
					if state, err := clientOf(t, nil, ClientOptions{HTTP: client}).Ship(t.Context(), b); state != Received || err != nil {
						t.Errorf("got %v, %v, want received", state, err)
					}
				})
			}
			both.Wait()
		})
		client.CloseIdleConnections()
		i.checkArrived(t, b)
		for ref, n := range counted.created {
			if n != 1 {
				t.Errorf("%v: created %d times, want 1", ref, n)
			}
		}
		if len(counted.created) != 5 {
			t.Errorf("blobs: got %d, want 5", len(counted.created))
		}
	})
}

// Of two batches of a day that are shipped at once, one is taken and the other one is told.
func TestOfTwoBatchesOfADayOneIsTaken(t *testing.T) {
	all := []*Batch{batchOf(t, 1, 2), batchOf(t, 3)}
	synctest.Test(t, func(t *testing.T) {
		i := newInitiator()
		w := newWire(nowhere, 0)
		client := w.dial()
		errs := make([]error, 2)
		w.serve(t, i.server().HTTPServer(""), func() {
			var both sync.WaitGroup
			for n, b := range all {
				both.Go(func() { _, errs[n] = clientOf(t, nil, ClientOptions{HTTP: client}).Ship(t.Context(), b) })
			}
			both.Wait()
		})
		client.CloseIdleConnections()
		won := 0
		if errs[0] != nil {
			won = 1
		}
		if errs[won] != nil || !errors.Is(errs[1-won], ErrConflict) {
			t.Fatalf("got %v and %v, want one conflict", errs[0], errs[1])
		}
		i.checkArrived(t, all[won])
	})
}

// countedStore counts the creates that succeed.
type countedStore struct {
	blob.Store
	mu      sync.Mutex
	created map[blob.Ref]int // guarded by mu
}

func (c *countedStore) Create(ctx context.Context, ref blob.Ref, r io.Reader, o *blob.PutOptions) error {
	err := c.Store.Create(ctx, ref, r, o)
	if err == nil {
		c.mu.Lock()
		c.created[ref]++
		c.mu.Unlock()
	}
	return err
}
