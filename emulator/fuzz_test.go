package emulator

import (
	"context"
	"encoding/xml"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/localqueue"
)

// FuzzServe sends arbitrary requests, most of them signed so that they come
// past the door. None may panic, and each must be answered as the protocol
// says: by a status, the common headers and a well-formed document.
func FuzzServe(f *testing.F) {
	for x := range all {
		path, query, _ := strings.Cut(x.path, "?")
		name, value := "", ""
		for name, value = range x.header {
			break
		}
		f.Add(x.verb, DevelopmentAccount+path, query, name, value, x.body, x.code == "")
	}
	f.Add("PUT", "devstoreaccount1/q%2e/messages/%ff", "popreceipt=%00&visibilitytimeout=1", "x-ms-meta-\x00", "\r\n", "<", true)
	f.Fuzz(func(t *testing.T, method, path, rawQuery, name, value, body string, trusted bool) {
		engine := localqueue.New(&localqueue.Options{Seed: 1})
		q := engine.Queue(queue.Name{Account: DevelopmentAccount, Queue: "orders"})
		if err := q.Create(context.Background(), nil); err != nil {
			t.Fatal(err)
		}
		m, err := q.Enqueue(context.Background(), "x", nil)
		if err != nil {
			t.Fatal(err)
		}
		names := strings.NewReplacer("{id}", string(m.ID), "{receipt}", url.QueryEscape(string(m.Receipt)))
		u := &url.URL{Scheme: "http", Host: inProcess}
		if unescaped, err := url.PathUnescape(names.Replace("/" + path)); err == nil {
			u.Path, u.RawPath = unescaped, names.Replace("/"+path)
		} else {
			u.Path = "/" + path
		}
		u.RawQuery = names.Replace(rawQuery)
		r := &http.Request{Method: method, URL: u, Header: http.Header{name: {value}}, ContentLength: int64(len(body)),
			Body: io.NopCloser(strings.NewReader(body))}
		if trusted {
			sign(r)
		}
		s := New(engine, nil)
		response, err := s.RoundTrip(r)
		if err != nil {
			return // what cannot be sent is not for the server
		}
		defer response.Body.Close()
		document, err := io.ReadAll(response.Body)
		if err != nil {
			t.Fatal(err)
		}
		if response.StatusCode < 200 || response.StatusCode > 599 || response.StatusCode == http.StatusInternalServerError {
			t.Fatalf("status %d: %s", response.StatusCode, document)
		}
		if (response.StatusCode >= 400) != (response.Header.Get("x-ms-error-code") != "") || response.Header.Get("x-ms-request-id") == "" {
			t.Fatalf("status %d with the headers %v", response.StatusCode, response.Header)
		}
		for name, values := range response.Header {
			if strings.ContainsAny(name+strings.Join(values, ""), "\r\n\x00") {
				t.Fatalf("header %q: %q", name, values)
			}
		}
		if len(document) > 0 {
			if err := xml.Unmarshal(document, new(struct{ XMLName xml.Name })); err != nil {
				t.Fatalf("%v: %s", err, document)
			}
		}
		if c := s.Counts(); c.Requests() != 1 || c.Statuses[response.StatusCode/100] != 1 {
			t.Fatalf("counted %+v", c)
		}
	})
}
