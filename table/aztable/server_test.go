package aztable_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/millrace/millrace/table"
	"github.com/millrace/millrace/table/aztable"
)

// serve runs the service behind a real HTTP server and returns its address. before sees every request first and reports
// whether it has responded.
func serve(t *testing.T, s *fakeService, before func(w http.ResponseWriter, r *http.Request) bool) (address string, requests *atomic.Int64) {
	t.Helper()
	requests = &atomic.Int64{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		if before != nil && before(w, r) {
			return
		}
		resp, err := s.Do(r)
		if err != nil {
			panic(http.ErrAbortHandler) // cuts the connection
		}
		for name, values := range resp.Header {
			w.Header()[name] = values
		}
		w.WriteHeader(resp.StatusCode)
		defer resp.Body.Close()
		io.Copy(w, resp.Body)
	}))
	t.Cleanup(server.Close)
	return server.URL, requests
}

// openAt opens the table Channels at an address.
func openAt(t *testing.T, location string, o *aztable.Options) *aztable.Table {
	t.Helper()
	channels, err := aztable.Open(location, "Channels", o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { channels.Close() })
	return channels
}

func keyLocation(address string) string {
	return "AccountName=devstoreaccount1;AccountKey=S3cretKey123;TableEndpoint=" + address + "/devstoreaccount1"
}

// TestAChangeWhoseConnectionBreaksIsSentOnce: neither we nor net/http send it again, on new and on kept connections.
func TestAChangeWhoseConnectionBreaksIsSentOnce(t *testing.T) {
	for _, op := range operations {
		if !op.change {
			continue
		}
		s := withEntity(t)
		var cut atomic.Bool
		address, requests := serve(t, s, func(http.ResponseWriter, *http.Request) bool {
			if cut.Load() {
				panic(http.ErrAbortHandler)
			}
			return false
		})
		channels := openAt(t, keyLocation(address), nil)
		for name, use := range map[string]bool{"new": false, "kept": true} {
			if use {
				cut.Store(false)
				if _, err := channels.Query(t.Context(), table.Query{}); err != nil {
					t.Fatal(err)
				}
			}
			requests.Store(0)
			cut.Store(true)
			if err := op.call(t.Context(), channels); !errors.Is(err, table.ErrUnavailable) || requests.Load() != 1 {
				t.Errorf("%s on a %s connection: %v after %d requests", op.name, name, err, requests.Load())
			}
		}
	}
}

// TestRedirectsAreNotFollowed: they would take our signature to another server.
func TestRedirectsAreNotFollowed(t *testing.T) {
	elsewhere, visits := serve(t, newService(), nil)
	address, _ := serve(t, withEntity(t), func(w http.ResponseWriter, r *http.Request) bool {
		http.Redirect(w, r, elsewhere+r.URL.String(), http.StatusTemporaryRedirect)
		return true
	})
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	for _, o := range []aztable.Options{{RetryFor: -1}, {RetryFor: -1, Transport: client}} {
		channels := openAt(t, address+"/devstoreaccount1?"+someSAS, &o)
		for _, op := range operations {
			if err := op.call(t.Context(), channels); !errors.Is(err, table.ErrUnavailable) || !strings.Contains(err.Error(), "127.0.0.1") || strings.Contains(err.Error(), "S3cret") {
				t.Errorf("%s: %v", op.name, err)
			}
		}
	}
	if visits.Load() > 0 {
		t.Errorf("%d redirects were followed", visits.Load())
	}
}

// TestErrorsHaveNoSecrets: neither from the wire nor from a server that repeats our request.
func TestErrorsHaveNoSecrets(t *testing.T) {
	for name, answer := range map[string]func(w http.ResponseWriter, echo string){
		"a refusal in JSON": func(w http.ResponseWriter, echo string) {
			w.WriteHeader(http.StatusBadRequest)
			io.WriteString(w, `{"odata.error":{"code":"InvalidInput","message":{"value":"you sent `+echo+`"}}}`)
		},
		"a refusal in XML": func(w http.ResponseWriter, echo string) {
			w.WriteHeader(http.StatusForbidden)
			io.WriteString(w, "<Error><Code>X</Code><Message>you sent "+strings.ReplaceAll(echo, "&", "&amp;")+"</Message></Error>")
		},
		"a page": func(w http.ResponseWriter, echo string) { io.WriteString(w, "<html>"+echo) },
		"a part of a group": func(w http.ResponseWriter, echo string) {
			w.WriteHeader(http.StatusAccepted)
			io.WriteString(w, groupDocument("HTTP/1.1 400 Bad Request\r\n\r\n{\"odata.error\":{\"code\":\"InvalidInput\",\"message\":{\"value\":\"0:you sent "+echo+"\"}}}"))
		},
	} {
		address, _ := serve(t, newService(), func(w http.ResponseWriter, r *http.Request) bool {
			echo := r.URL.String() + " " + r.Header.Get("Authorization")
			w.Header().Set("X-Ms-Request-Id", "x?"+r.URL.RawQuery)
			answer(w, echo)
			return true
		})
		for _, location := range []string{address + "/devstoreaccount1?" + someSAS, keyLocation(address)} {
			channels := openAt(t, location, &aztable.Options{RetryFor: -1})
			for _, op := range operations {
				err := op.call(t.Context(), channels)
				if err == nil || strings.Contains(err.Error(), "S3cret") || strings.Contains(err.Error(), "SharedKeyLite devstore") || strings.ContainsAny(err.Error(), "\r\n") {
					t.Errorf("%s: %s: %v", name, op.name, err)
				}
			}
		}
	}
	nobody := "http://127.0.0.1:1"
	for _, location := range []string{nobody + "/devstoreaccount1?" + someSAS, keyLocation(nobody)} {
		channels := openAt(t, location, &aztable.Options{RetryFor: -1})
		for _, op := range operations {
			if err := op.call(t.Context(), channels); !errors.Is(err, table.ErrUnavailable) || strings.Contains(err.Error(), "S3cret") || !strings.Contains(err.Error(), "azurite-table") {
				t.Errorf("%s: %v", op.name, err)
			}
		}
	}
}

// TestConnectionsAreKept: calls one after the other use one connection.
func TestConnectionsAreKept(t *testing.T) {
	addresses := map[string]bool{}
	address, requests := serve(t, withEntity(t), func(_ http.ResponseWriter, r *http.Request) bool {
		addresses[r.RemoteAddr] = true // one request at a time
		return false
	})
	channels := openAt(t, keyLocation(address), nil)
	for _, op := range operations {
		if err := op.call(t.Context(), channels); err != nil && !errors.Is(err, table.ErrExists) && !errors.Is(err, table.ErrMissing) {
			t.Errorf("%s: %v", op.name, err)
		}
	}
	if len(addresses) != 1 || requests.Load() != int64(len(operations)) {
		t.Errorf("%d requests on %d connections", requests.Load(), len(addresses))
	}
}

// TestAChangeThatCouldNotBeSentIsSentLater: a server that does not listen yet.
func TestAChangeThatCouldNotBeSentIsSentLater(t *testing.T) {
	address, requests := serve(t, newService(), nil)
	dials := 0
	client := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, network, to string) (net.Conn, error) {
		if dials++; dials == 1 {
			to = "127.0.0.1:1"
		}
		return (&net.Dialer{}).DialContext(ctx, network, to)
	}}}
	defer client.CloseIdleConnections()
	if _, err := openAt(t, keyLocation(address), &aztable.Options{Transport: client}).Insert(t.Context(), someEntity()); err != nil {
		t.Error(err)
	}
	if n := requests.Load(); n != 3 || dials != 2 { // insert, create, insert
		t.Errorf("%d requests after %d dials", n, dials)
	}
}
