package azureblob_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/blob"
	"github.com/millrace/millrace/blob/azureblob"
)

var someRef = blob.Ref{Container: "pictures", Name: "a/b"}

// content returns n bytes in which no block is like another.
func content(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i + i>>8*31)
	}
	return b
}

// get returns the content of a blob.
func get(t *testing.T, s blob.Store, ref blob.Ref) string {
	t.Helper()
	r, err := s.Open(t.Context(), ref)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	data, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// TestRequestsPerCall counts what each call costs.
func TestRequestsPerCall(t *testing.T) {
	s := newService()
	store := s.open(t, azureblob.Options{})
	small, large := content(1<<10), content(3<<10+1)
	put := func(data []byte) func() error {
		return func() error { return store.Put(t.Context(), someRef, bytes.NewReader(data), nil) }
	}
	create := func(name string, data []byte) func() error {
		return func() error {
			return store.Create(t.Context(), blob.Ref{Container: "pictures", Name: name}, bytes.NewReader(data), nil)
		}
	}
	for _, c := range []struct {
		what string
		do   func() error
		want string
	}{
		{"put into a new container", func() error {
			return store.Put(t.Context(), blob.Ref{Container: "new", Name: "a"}, bytes.NewReader(small), nil)
		}, "PUT, PUT container, PUT"},
		{"put large into a new container", func() error {
			return store.Put(t.Context(), blob.Ref{Container: "large", Name: "a"}, bytes.NewReader(large[:2<<10]), nil)
		}, "GET blocklist, PUT block, PUT container, PUT block, PUT block, PUT blocklist"},
		{"put small", put(small), "PUT"},
		{"create small", create("small", small), "PUT"},
		{"put large over a small one", put(large), "GET blocklist, PUT block, PUT block, PUT block, PUT block, PUT blocklist"},
		{"put large again", put(large), "GET blocklist, HEAD, PUT blocklist"},
		{"create large", create("large", large), "GET blocklist, HEAD, PUT block, PUT block, PUT block, PUT block, PUT blocklist"},
		{"open and read", func() error { get(t, store, someRef); return nil }, "GET"},
		{"stat", func() error { _, err := store.Stat(t.Context(), someRef); return err }, "HEAD"},
		{"list", func() error {
			for _, err := range store.List(t.Context(), "pictures", "") {
				if err != nil {
					return err
				}
			}
			return nil
		}, "GET list container"},
		{"delete", func() error { return store.Delete(t.Context(), someRef) }, "DELETE"},
		{"access", func() error { _, err := store.Public(t.Context(), "pictures"); return err }, "GET acl container"},
		{"set access", func() error { return store.SetPublic(t.Context(), "pictures", true) }, "GET acl container, PUT acl container"},
		{"set access of a new container", func() error { return store.SetPublic(t.Context(), "others", true) }, "GET acl container, PUT container, PUT acl container"},
	} {
		s.arrived()
		if err := c.do(); err != nil {
			t.Errorf("%s: %v", c.what, err)
		}
		if got := strings.Join(s.arrived(), ", "); got != c.want {
			t.Errorf("%s:\nsent %s\nwant %s", c.what, got, c.want)
		}
	}
}

func TestACreateOfASmallBlobThatExistsIsOneRequest(t *testing.T) {
	s := newService()
	store := s.open(t, azureblob.Options{})
	for _, want := range []error{nil, blob.ErrExists} {
		if err := store.Create(t.Context(), someRef, strings.NewReader("small"), nil); !errors.Is(err, want) {
			t.Errorf("create: got %v, want %v", err, want)
		}
		if got := s.arrived(); len(got) != 1 {
			t.Errorf("sent %v", got)
		}
	}
}

// TestListsLeaveOutWhatIsNotOurs: names that no reference has, and metadata of other versions of
// this package.
func TestListsLeaveOutWhatIsNotOurs(t *testing.T) {
	s := newService()
	store := s.open(t, azureblob.Options{})
	if err := store.Create(t.Context(), someRef, strings.NewReader("x"), nil); err != nil {
		t.Fatal(err)
	}
	blobs := s.containers[someRef.Container].blobs
	blobs["Foreign"] = blobs[someRef.Name]
	blobs[someRef.Name].metadata["millrace_later"] = "x"
	n := 0
	for b, err := range store.List(t.Context(), someRef.Container, "") {
		if n++; err != nil || b.Ref != someRef || b.Metadata != nil {
			t.Errorf("listed %+v, %v", b, err)
		}
	}
	if n != 1 {
		t.Errorf("listed %d blobs, want 1", n)
	}
}

func TestACreateOfALargeBlobThatExistsUploadsNothing(t *testing.T) {
	s := newService()
	store := s.open(t, azureblob.Options{})
	if err := store.Put(t.Context(), someRef, strings.NewReader("small"), nil); err != nil {
		t.Fatal(err)
	}
	s.arrived()
	if err := store.Create(t.Context(), someRef, bytes.NewReader(content(5<<10)), nil); !errors.Is(err, blob.ErrExists) {
		t.Errorf("create: %v", err)
	}
	if got := s.arrived(); slices.Contains(got, "PUT block") {
		t.Errorf("sent %v", got)
	}
}

// TestTooManyBlocksAreRefused: by us, with what to do, and not by the service at the end.
func TestTooManyBlocksAreRefused(t *testing.T) {
	s := newService()
	store := s.open(t, azureblob.Options{})
	if n := store.SetMaxBlocks(5); n != 50_000 {
		t.Errorf("a blob may have %d blocks, and the service takes 50,000", n)
	}
	if err := store.Put(t.Context(), someRef, bytes.NewReader(content(5<<10)), nil); err != nil {
		t.Errorf("put of as many as may be: %v", err)
	}
	s.arrived()
	err := store.Put(t.Context(), blob.Ref{Container: "pictures", Name: "more"}, bytes.NewReader(content(5<<10+1)), nil)
	if !errors.Is(err, blob.ErrInvalid) || !strings.Contains(err.Error(), "larger BlockSize") {
		t.Errorf("put: %v", err)
	}
	if n := count(s.arrived(), "PUT block"); n != 5 {
		t.Errorf("%d blocks were sent", n)
	}
}

// TestAnEndedContextStopsReading: at the next read, not at the end of a block.
func TestAnEndedContextStopsReading(t *testing.T) {
	s := newService()
	ctx, cancel := context.WithCancel(t.Context())
	r := &slow{cancel: cancel}
	if err := s.open(t, azureblob.Options{BlockSize: 1 << 20}).Put(ctx, someRef, r, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("put: %v", err)
	}
	if r.reads != 3 {
		t.Errorf("it was read %d times, and the context ended in the third", r.reads)
	}
}

// slow returns a byte a read, and cancels a context in the third.
type slow struct {
	reads  int
	cancel func()
}

func (r *slow) Read(p []byte) (int, error) {
	if r.reads++; r.reads == 3 {
		r.cancel()
	}
	return copy(p, "x"), nil
}

func TestListsAreReadByPages(t *testing.T) {
	s := newService()
	s.pageSize = 3
	store := s.open(t, azureblob.Options{})
	var want, got []string
	for _, name := range strings.Split("abcdefghij", "") {
		if err := store.Put(t.Context(), blob.Ref{Container: "pictures", Name: name}, strings.NewReader(name), nil); err != nil {
			t.Fatal(err)
		}
		want = append(want, name)
	}
	s.arrived()
	for b, err := range store.List(t.Context(), "pictures", "") {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, b.Ref.Name)
	}
	if sent := s.arrived(); !slices.Equal(got, want) || len(sent) != 4 {
		t.Errorf("listed %v with %v", got, sent)
	}
	for range store.List(t.Context(), "pictures", "") {
		break
	}
	if sent := s.arrived(); len(sent) != 1 {
		t.Errorf("a list that was left early sent %v", sent)
	}
}

// TestAPutKeepsOneBlockInMemory: it reads no further ahead of what the service has.
func TestAPutKeepsOneBlockInMemory(t *testing.T) {
	const size = 64 << 10
	s := newService()
	store := s.open(t, azureblob.Options{BlockSize: size})
	r := &ahead{service: s, left: 32 * size}
	if err := store.Put(t.Context(), someRef, r, nil); err != nil {
		t.Fatal(err)
	}
	const buffer = 4 << 10 // of bufio
	if r.most > size+buffer {
		t.Errorf("%d bytes were read ahead, with blocks of %d", r.most, size)
	}
}

// ahead is a stream that notes how far it was read ahead of what the service has stored.
type ahead struct {
	service          *fakeService
	left, read, most int
}

func (a *ahead) Read(p []byte) (int, error) {
	if a.left == 0 {
		return 0, io.EOF
	}
	n := min(len(p), a.left)
	clear(p[:n])
	a.left -= n
	a.read += n
	a.service.mu.Lock()
	defer a.service.mu.Unlock()
	a.most = max(a.most, a.read-a.service.stored)
	return n, nil
}

// TestAnAgeIsByTheClockOfTheService, whose responses have its time.
func TestAnAgeIsByTheClockOfTheService(t *testing.T) {
	for _, ahead := range []time.Duration{-time.Hour, time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			s := newService()
			s.ahead = ahead
			store := s.open(t, azureblob.Options{})
			if err := store.Put(t.Context(), someRef, strings.NewReader("text"), nil); err != nil {
				t.Fatal(err)
			}
			time.Sleep(10 * time.Minute)
			infos := func() []blob.Info {
				info, err := store.Stat(t.Context(), someRef)
				if err != nil {
					t.Fatal(err)
				}
				infos := []blob.Info{info}
				for info, err := range store.List(t.Context(), someRef.Container, "") {
					if err != nil {
						t.Fatal(err)
					}
					infos = append(infos, info)
				}
				return infos
			}
			for _, info := range infos() {
				if age, err := info.Age(); err != nil || age != 10*time.Minute {
					t.Errorf("ahead by %v: got %v, %v; want 10m", ahead, age, err)
				}
			}
			s.setFault(func(string) fault {
				return fault{changed: func(h http.Header) int { h.Del("Date"); return http.StatusOK }}
			})
			for _, info := range infos() {
				if age, err := info.Age(); err == nil || !strings.Contains(err.Error(), "tell the age of "+someRef.String()) {
					t.Errorf("without Date: got %v, %v; want an error", age, err)
				}
			}
		})
	}
}
