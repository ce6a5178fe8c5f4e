package shipping

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/blob"
	"github.com/millrace/millrace/examples/billing/records"
)

func checkStatus(t *testing.T, w *httptest.ResponseRecorder, want int) {
	t.Helper()
	if w.Code != want {
		t.Errorf("got %d %s, want %d", w.Code, w.Body, want)
	}
	if w.Header().Get(versionHeader) != version {
		t.Errorf("got no %s", versionHeader)
	}
	if text := strings.TrimSpace(w.Body.String()); w.Code != http.StatusOK && (text == "" || strings.Contains(text, "\n")) {
		t.Errorf("got %q, want a sentence", text)
	}
}

// stored counts the blobs of a store.
func stored(t *testing.T, store blob.Store) int {
	t.Helper()
	n := 0
	for _, err := range store.List(t.Context(), Container, "") {
		if err != nil {
			t.Fatal(err)
		}
		n++
	}
	return n
}

// watched fails for references that are not those of a batch.
type watched struct {
	blob.Store
	t testing.TB
}

var goodName = regexp.MustCompile(`^\d{4}-\d\d-\d\d/(manifest\.json|pieces/|pieces/piece-\d{5}\.csv)$`)

func (w *watched) check(container, name string) {
	w.t.Helper()
	if container != Container || !goodName.MatchString(name) {
		w.t.Errorf("the store was asked for %q in %q", name, container)
	}
}

func (w *watched) Create(ctx context.Context, ref blob.Ref, r io.Reader, o *blob.PutOptions) error {
	w.check(ref.Container, ref.Name)
	return w.Store.Create(ctx, ref, r, o)
}

func (w *watched) Open(ctx context.Context, ref blob.Ref) (*blob.Reader, error) {
	w.check(ref.Container, ref.Name)
	return w.Store.Open(ctx, ref)
}

func TestHostileNamesNeverReachTheStore(t *testing.T) {
	b := batchOf(t, 1, 1)
	i := newInitiator()
	i.store = &watched{i.store, t}
	checkStatus(t, i.sendManifest(t, &b.Manifest), http.StatusOK)
	before := stored(t, i.store)
	for _, batch := range []string{
		"..", "%2e%2e", "..%2f..%2fetc%2fpasswd", "2026-11-21%00", "2026-11-21%0a", "2026-02-30", "2026-1-1", "26-11-21", "-2026-11-21", "2026-11-21%2fx",
		"2026-11-21+", "２０２６-11-21", "2026-11-21T00:00:00Z", strings.Repeat("2", 5000), "%ff", "CON", "2026-11-21.", "10000-01-01",
	} {
		for _, request := range []string{"GET /batches/%s", "PUT /batches/%s", "PUT /batches/%s/pieces/0", "POST /batches/%s/complete"} {
			method, path, _ := strings.Cut(request, " ")
			w := i.send(httptest.NewRequest(method, fmt.Sprintf(path, batch), strings.NewReader("{}")))
			if w.Code < 300 || w.Code >= 500 {
				t.Errorf("%s of %.40q: got %d, want that it is refused", request, batch, w.Code)
			}
		}
	}
	piece, err := b.readPiece(0, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range []string{
		"-1", "+0", "00", "0x0", "1e0", "2", "99999999999999999999", "%20", "..%2fmanifest.json", "0%00", "0.", "٠", "-0", "0_0",
	} {
		w := i.send(httptest.NewRequest(http.MethodPut, "/batches/"+today+"/pieces/"+n, bytes.NewReader(piece)))
		if w.Code != http.StatusNotFound {
			t.Errorf("piece %q: got %d, want 404", n, w.Code)
		}
	}
	if got := stored(t, i.store); got != before {
		t.Errorf("blobs: got %d, want %d", got, before)
	}
}

func TestManifestsThatCannotBeRightAreRefused(t *testing.T) {
	good := batchOf(t, 1).Manifest
	for name, spoil := range map[string]func(*Manifest){
		"another day":            func(m *Manifest) { m.Batch = "2026-11-22" },
		"no day":                 func(m *Manifest) { m.Batch = "../x" },
		"no pieces":              func(m *Manifest) { m.Pieces = nil },
		"too many pieces":        func(m *Manifest) { m.Pieces = append(m.Pieces, make([]Piece, MaxPieces)...) },
		"too many records":       func(m *Manifest) { m.Pieces[0].Records, m.Pieces[0].Bytes = MaxPieceRecords+1, MaxPieceBytes },
		"no records":             func(m *Manifest) { m.Pieces[0].Records = 0 },
		"negative records":       func(m *Manifest) { m.Pieces[0].Records = -1 },
		"too many bytes":         func(m *Manifest) { m.Pieces[0].Bytes = MaxPieceBytes + 1 },
		"negative bytes":         func(m *Manifest) { m.Pieces[0].Bytes = -1 },
		"fewer bytes than lines": func(m *Manifest) { m.Pieces[0].Bytes = 0 },
		"a short checksum":       func(m *Manifest) { m.Pieces[0].SHA256 = m.Pieces[0].SHA256[:62] },
		"a checksum in capitals": func(m *Manifest) { m.Pieces[0].SHA256 = strings.Repeat("A", 64) },
		"no checksum":            func(m *Manifest) { m.Pieces[0].SHA256 = strings.Repeat("z", 64) },
		"a long file name":       func(m *Manifest) { m.File = strings.Repeat("f", MaxFile+1) },
		"a long file of a piece": func(m *Manifest) { m.Pieces[0].File = strings.Repeat("f", MaxFile+1) },
		"too many rejections":    func(m *Manifest) { m.Rejected = make([]records.Rejection, MaxRejected+1) },
		"negative rejections":    func(m *Manifest) { m.MoreRejected = -1 },
	} {
		t.Run(name, func(t *testing.T) {
			m := good
			m.Pieces = append([]Piece(nil), good.Pieces...)
			spoil(&m)
			text, err := json.Marshal(m)
			if err != nil {
				t.Fatal(err)
			}
			i := newInitiator()
			checkStatus(t, i.send(manifestRequest(today, text, digestOf(text))), http.StatusUnprocessableEntity)
			if got := stored(t, i.store); got != 0 {
				t.Errorf("blobs: got %d, want 0", got)
			}
		})
	}
	text, _, err := good.encode()
	if err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{"", "null", "[]", "{}", string(text) + "{}", string(text) + "x", string(text[:len(text)-1]), `{"unknown":1}`, "\x00"} {
		checkStatus(t, newInitiator().send(manifestRequest(today, []byte(bad), digestOf([]byte(bad)))), http.StatusUnprocessableEntity)
	}
}

// A manifest is stored once, so a damaged one would spoil its day.
func TestAManifestThatArrivesDamagedIsRefused(t *testing.T) {
	m := batchOf(t, 1).Manifest
	text, digest, err := m.encode()
	if err != nil {
		t.Fatal(err)
	}
	i := newInitiator()
	for n := range text {
		damaged := bytes.Clone(text)
		damaged[n] ^= 1
		checkStatus(t, i.send(manifestRequest(today, damaged, digest)), http.StatusUnprocessableEntity)
	}
	r := manifestRequest(today, text, digest)
	r.Header.Del(digestHeader)
	checkStatus(t, i.send(r), http.StatusUnprocessableEntity)
	if got := stored(t, i.store); got != 0 {
		t.Errorf("blobs: got %d, want 0", got)
	}
}

// chunked hides the size of a body.
type chunked struct{ io.Reader }

func TestOnlyThePieceOfTheManifestIsStored(t *testing.T) {
	b := batchOf(t, 3)
	piece, err := b.readPiece(0, nil)
	if err != nil {
		t.Fatal(err)
	}
	i := newInitiator()
	checkStatus(t, i.sendManifest(t, &b.Manifest), http.StatusOK)
	for n := range piece {
		damaged := bytes.Clone(piece)
		damaged[n] ^= 1
		checkStatus(t, i.send(pieceRequest(today, 0, damaged)), http.StatusUnprocessableEntity)
		checkStatus(t, i.send(pieceRequest(today, 0, piece[:n])), http.StatusUnprocessableEntity)
		r := httptest.NewRequest(http.MethodPut, "/batches/"+today+"/pieces/0", chunked{bytes.NewReader(piece[:n])})
		checkStatus(t, i.send(r), http.StatusUnprocessableEntity)
	}
	checkStatus(t, i.send(pieceRequest(today, 0, append(bytes.Clone(piece), '\n'))), http.StatusUnprocessableEntity)
	endless := httptest.NewRequest(http.MethodPut, "/batches/"+today+"/pieces/0", chunked{forever{}})
	checkStatus(t, i.send(endless), http.StatusRequestEntityTooLarge)
	if got := stored(t, i.store); got != 1 {
		t.Errorf("blobs: got %d, want the manifest alone", got)
	}
	checkStatus(t, i.send(pieceRequest(today, 0, piece)), http.StatusOK)
	checkStatus(t, i.send(pieceRequest(today, 0, piece)), http.StatusOK)
	if got := readAll(t, i.store, today, 0); !bytes.Equal(got, piece) {
		t.Errorf("got %q, want %q", got, piece)
	}
}

// forever is a body without an end.
type forever struct{}

func (forever) Read(p []byte) (int, error) { return len(p), nil }

// A manifest whose numbers of records are not those of the pieces would make items that nobody expects.
func TestAPieceHasTheRecordsThatItsManifestSays(t *testing.T) {
	b := batchOf(t, 3)
	m := b.Manifest
	m.Pieces = []Piece{m.Pieces[0]}
	m.Pieces[0].Records = 2
	i := newInitiator()
	checkStatus(t, i.sendManifest(t, &m), http.StatusOK)
	checkStatus(t, i.sendPiece(t, b, 0), http.StatusUnprocessableEntity)
}

func TestAManifestWithoutAnEndIsCutOff(t *testing.T) {
	i := newInitiator()
	checkStatus(t, i.send(httptest.NewRequest(http.MethodPut, "/batches/"+today, chunked{forever{}})), http.StatusRequestEntityTooLarge)
	r := httptest.NewRequest(http.MethodPut, "/batches/"+today, chunked{unread{t}})
	r.ContentLength = MaxManifest + 1
	checkStatus(t, i.send(r), http.StatusRequestEntityTooLarge)
}

// unread is a body that nobody may read.
type unread struct{ t *testing.T }

func (u unread) Read([]byte) (int, error) {
	u.t.Error("the body was read")
	return 0, io.EOF
}

func TestAnotherBatchOfTheDayIsRefused(t *testing.T) {
	b, other := batchOf(t, 1, 2), batchOf(t, 2, 1)
	synctest.Test(t, func(t *testing.T) {
		i := newInitiator()
		first := time.Now()
		checkStatus(t, i.sendManifest(t, &b.Manifest), http.StatusOK)
		time.Sleep(time.Hour)
		checkStatus(t, i.sendManifest(t, &b.Manifest), http.StatusOK)
		w := i.sendManifest(t, &other.Manifest)
		checkStatus(t, w, http.StatusConflict)
		if want := "another batch of 2026-11-21 was sent before\n"; w.Body.String() != want {
			t.Errorf("got %q, want %q", w.Body, want)
		}
		m, handedOver, err := ReadManifest(t.Context(), i.store, today)
		if err != nil || !handedOver.Equal(first) {
			t.Errorf("handed over: got %v, %v, want %v, when it was stored first", handedOver, err, first)
		}
		checkSame(t, &m, &b.Manifest)
	})
}

func TestABatchIsCompleteWithItsLastPieceOnly(t *testing.T) {
	b := batchOf(t, 1, 1)
	i := newInitiator()
	complete := func() *httptest.ResponseRecorder {
		return i.send(httptest.NewRequest(http.MethodPost, "/batches/"+today+"/complete", http.NoBody))
	}
	checkStatus(t, complete(), http.StatusNotFound)
	checkStatus(t, i.sendPiece(t, b, 0), http.StatusNotFound)
	checkStatus(t, i.sendManifest(t, &b.Manifest), http.StatusOK)
	checkStatus(t, i.sendPiece(t, b, 1), http.StatusOK)
	checkStatus(t, complete(), http.StatusPreconditionFailed)
	if len(i.completed) != 0 {
		t.Errorf("completed: got %v, want nothing", i.completed)
	}
	checkStatus(t, i.sendPiece(t, b, 0), http.StatusOK)
	i.refuse = errors.New("no queue")
	checkStatus(t, complete(), http.StatusServiceUnavailable)
	i.refuse = nil
	checkStatus(t, complete(), http.StatusOK)
	checkStatus(t, complete(), http.StatusOK) // the first response may be lost
	if len(i.completed) != 2 {
		t.Errorf("completed: got %d times, want 2", len(i.completed))
	}
}

// A batch that was reported is neither completed again nor stored again, also by a client that comes late.
func TestAReportedBatchIsNotTakenAgain(t *testing.T) {
	b, other := batchOf(t, 1, 1), batchOf(t, 2)
	i := newInitiator()
	checkStatus(t, i.sendManifest(t, &b.Manifest), http.StatusOK)
	for n := range b.Manifest.Pieces {
		checkStatus(t, i.sendPiece(t, b, n), http.StatusOK)
	}
	i.report(today)
	for range 2 {
		if err := Delete(t.Context(), i.store, today, len(b.Manifest.Pieces)); err != nil {
			t.Fatal(err)
		}
	}
	checkStatus(t, i.sendPiece(t, b, 1), http.StatusOK)
	for _, r := range []*http.Request{
		httptest.NewRequest(http.MethodGet, "/batches/"+today, http.NoBody),
		httptest.NewRequest(http.MethodPost, "/batches/"+today+"/complete", http.NoBody),
	} {
		var s Status
		if w := i.send(r); json.Unmarshal(w.Body.Bytes(), &s) != nil || s.State != Reported {
			t.Errorf("%s: got %s, want that it was reported", r.Method, w.Body)
		}
	}
	checkStatus(t, i.sendManifest(t, &other.Manifest), http.StatusConflict)
	if got := stored(t, i.store); got != 1 || len(i.completed) != 0 {
		t.Errorf("got %d blobs and %v, want the manifest alone and nothing completed", got, i.completed)
	}
	if _, err := OpenPiece(t.Context(), i.store, today, 0); !errors.Is(err, blob.ErrMissing) {
		t.Errorf("piece 0: got %v, want that it is missing", err)
	}
}

func TestAClientThatStopsInTheMiddleHoldsNothing(t *testing.T) {
	b := batchOf(t, 3)
	synctest.Test(t, func(t *testing.T) {
		i := newInitiator()
		i.sendManifest(t, &b.Manifest)
		w := newWire(nowhere, 0)
		client := w.dial()
		w.serve(t, i.server().HTTPServer(""), func() {
			half, end := io.Pipe()
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPut, "http://initiator/batches/"+today+"/pieces/0", half)
			if err != nil {
				t.Fatal(err)
			}
			r.ContentLength = b.Manifest.Pieces[0].Bytes
			go func() { _, _ = end.Write([]byte("2,")) }()
			began := time.Now()
			response, err := client.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			if response.Body.Close(); response.StatusCode != http.StatusRequestTimeout || time.Since(began) != 2*time.Minute {
				t.Errorf("got %s after %v, want 408 after 2 min", response.Status, time.Since(began))
			}
			end.Close()
		})
		client.CloseIdleConnections()
		if got := stored(t, i.store); got != 1 {
			t.Errorf("blobs: got %d, want the manifest alone", got)
		}
	})
}

func TestRequestsBeyondTheLimitAreToldToComeBack(t *testing.T) {
	i := newInitiator()
	i.sendManifest(t, &batchOf(t, 1).Manifest)
	entered, leave := make(chan bool), make(chan bool)
	s := NewServer(i.store, i.complete, &ServerOptions{Requests: 1, Reported: func(context.Context, string) (bool, error) {
		entered <- true
		<-leave
		return false, nil
	}})
	get := func() *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		s.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/batches/"+today, http.NoBody))
		return w
	}
	var first sync.WaitGroup
	first.Go(func() { checkStatus(t, get(), http.StatusOK) })
	<-entered
	checkStatus(t, get(), http.StatusTooManyRequests)
	leave <- true
	first.Wait()
	first.Go(func() { checkStatus(t, get(), http.StatusOK) })
	<-entered
	leave <- true
	first.Wait()
}

// broken is a store that fails.
type broken struct{ blob.Store }

var errDiskFull = errors.New("no space left in /secret/place")

func (broken) Create(context.Context, blob.Ref, io.Reader, *blob.PutOptions) error {
	return errDiskFull
}

// A full disk is no fault of the client, which comes back; what the store says is for the log.
func TestAStoreThatFailsIsLoggedAndTriedAgain(t *testing.T) {
	m := batchOf(t, 1).Manifest
	i := newInitiator()
	i.store = broken{i.store}
	var log logLines
	i.options.Logger = log.logger()
	w := i.sendManifest(t, &m)
	checkStatus(t, w, http.StatusServiceUnavailable)
	if lines := log.lines(); strings.Contains(w.Body.String(), "secret") || len(lines) != 1 || !strings.Contains(lines[0], errDiskFull.Error()) {
		t.Errorf("got %q, and the log %q, want the error in the log only", w.Body, lines)
	}
}

// The cache forgets the oldest manifests, and what it forgot is read again.
func TestTheServerRemembersABoundedNumberOfManifests(t *testing.T) {
	m := newManifests()
	for n := range 3 * maxKnown {
		m.put(fmt.Sprint(n), &description{})
		m.put(fmt.Sprint(n), &description{})
	}
	if len(m.byBatch) != maxKnown || len(m.oldest) != maxKnown || m.get("0") != nil || m.get(fmt.Sprint(3*maxKnown-1)) == nil {
		t.Errorf("got %d and %d, want the newest %d", len(m.byBatch), len(m.oldest), maxKnown)
	}
}
