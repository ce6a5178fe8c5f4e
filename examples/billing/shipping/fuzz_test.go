package shipping

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/millrace/millrace/blob"
	"github.com/millrace/millrace/examples/billing/records"
)

// A manifest that is accepted keeps the limits, and is the same batch after any number of encodings.
func FuzzParseManifest(f *testing.F) {
	f.Add([]byte(`{"batch":"2026-11-21","file":"f","pieces":[{"bytes":9,"sha256":"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855","records":1}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		m, err := ParseManifest(bytes.NewReader(text))
		if err != nil {
			if !errors.Is(err, ErrBadManifest) {
				t.Fatalf("got %v, want ErrBadManifest", err)
			}
			return
		}
		if err := (blob.Ref{Container: Container, Name: manifestRef(m.Batch).Name}).Check(); err != nil {
			t.Fatal(err)
		}
		once, digest, err := m.encode()
		if err != nil {
			t.Fatal(err)
		}
		again, err := parseManifest(once)
		if err != nil {
			t.Fatalf("got %v for what it wrote: %s", err, once)
		}
		if _, d, err := again.encode(); err != nil || d != digest {
			t.Fatalf("got digest %s, %v, want %s", d, err, digest)
		}
	})
}

// A status that a client accepts names only pieces that the batch has.
func FuzzStatus(f *testing.F) {
	f.Add([]byte(`{"state":"receiving","manifest":"x","missing":[0,2]}`), 3)
	f.Fuzz(func(t *testing.T, text []byte, pieces int) {
		var s Status
		if json.Unmarshal(text, &s) != nil || s.check(pieces) != nil {
			return
		}
		seen := make(map[int]bool)
		for _, n := range s.Missing {
			if n < 0 || n >= pieces || seen[n] {
				t.Fatalf("missing: got %v of %d pieces", s.Missing, pieces)
			}
			seen[n] = true
		}
	})
}

// No request reaches a blob that is not part of a batch, and none makes the server panic.
func FuzzRequest(f *testing.F) {
	f.Add("PUT", "/batches/2026-11-21/pieces/0", "2,a,2026-11-21T00:00:00Z,x,power,1\n")
	f.Fuzz(func(t *testing.T, method, path, body string) {
		r, err := http.NewRequest(method, "http://initiator"+path, bytes.NewReader([]byte(body)))
		if err != nil || r.URL.Host != "initiator" {
			return
		}
		i := newInitiator()
		i.store = &watched{i.store, t}
		w := httptest.NewRecorder()
		r.Header.Set(digestHeader, contentDigest(digestOf([]byte(body))))
		i.server().ServeHTTP(w, r)
		if w.Code >= http.StatusInternalServerError {
			t.Fatalf("got %d %s, want what is wrong with the request", w.Code, w.Body)
		}
	})
}

// Whatever is in a spool file, a line of it is an error or part of a batch, and never a panic.
func FuzzSpoolLine(f *testing.F) {
	f.Add([]byte("R00112233445566778899aabbccddeeff2 2,a,2026-11-21T00:00:00Z,x,power,1\n"))
	f.Fuzz(func(t *testing.T, line []byte) {
		if len(line) == 0 {
			return
		}
		c := newCutter(&Spool{files: []string{"f"}, options: SpoolOptions{Rejected: func(records.Rejection) {}}}, &bytes.Buffer{})
		for range 2 { // the second one is a duplicate
			if c.line(line[0], line[1:]) != nil {
				return
			}
		}
		_ = c.endPiece() // or an error
	})
}
