package azureblob_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/millrace/millrace/blob"
	"github.com/millrace/millrace/blob/azureblob"
)

// count returns how many of the operations are this one.
func count(ops []string, op string) (n int) {
	for _, o := range ops {
		if o == op {
			n++
		}
	}
	return n
}

// nth is a fault of the nth request of an operation, from 1 on.
func nth(op string, n int, f fault) func(string) fault {
	return func(o string) fault {
		if o == op {
			if n--; n == 0 {
				return f
			}
		}
		return fault{}
	}
}

// TestAPutThatBrokeOffIsContinued settles B-03: what breaks off is the content, the caller's
// context, the process, or the service for longer than the store has patience. Of ten blocks six
// have arrived.
func TestAPutThatBrokeOffIsContinued(t *testing.T) {
	for name, first := range map[string]func(ctx context.Context, s *fakeService, store *azureblob.Store, data []byte) error{
		"content": func(ctx context.Context, _ *fakeService, store *azureblob.Store, data []byte) error {
			return store.Put(ctx, someRef, io.MultiReader(bytes.NewReader(data[:6<<10+100]), iotest.ErrReader(errCut)), nil)
		},
		"context": func(ctx context.Context, s *fakeService, store *azureblob.Store, data []byte) error {
			ctx, cancel := context.WithCancel(ctx)
			s.setFault(nth("PUT block", 7, fault{hangs: true, before: cancel}))
			return store.Put(ctx, someRef, bytes.NewReader(data), nil)
		},
		"service": func(ctx context.Context, s *fakeService, store *azureblob.Store, data []byte) error {
			n := 0
			s.setFault(func(op string) fault {
				if op == "PUT block" {
					n++
				}
				return fault{lost: n > 6}
			})
			return store.Put(ctx, someRef, bytes.NewReader(data), nil)
		},
		"commit": func(ctx context.Context, s *fakeService, store *azureblob.Store, data []byte) error {
			if err := store.Put(ctx, someRef, io.MultiReader(bytes.NewReader(data[:6<<10+1]), iotest.ErrReader(errCut)), nil); err == nil {
				return nil
			}
			s.setFault(func(op string) fault { return fault{lost: op == "PUT blocklist"} })
			err := store.Put(ctx, someRef, bytes.NewReader(data[:6<<10]), nil) // another content with the same start
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newService()
				data := content(10 << 10)
				if err := first(t.Context(), s, s.open(t, azureblob.Options{}), data); err == nil {
					t.Fatal("the first put did not break off")
				}
				s.setFault(nil)
				s.arrived()
				again := s.open(t, azureblob.Options{}) // as another process
				if _, err := again.Stat(t.Context(), someRef); !errors.Is(err, blob.ErrMissing) {
					t.Errorf("half a blob can be seen: %v", err)
				}
				if err := again.Put(t.Context(), someRef, bytes.NewReader(data), nil); err != nil {
					t.Fatal(err)
				}
				if n := count(s.arrived(), "PUT block"); n != 4 {
					t.Errorf("the second put sent %d blocks, want 4", n)
				}
				if got := get(t, again, someRef); got != string(data) {
					t.Errorf("got %d bytes", len(got))
				}
			})
		})
	}
}

// TestWhatDiffersIsSentAgain: the blocks that the service has are those of another content.
func TestWhatDiffersIsSentAgain(t *testing.T) {
	s := newService()
	store := s.open(t, azureblob.Options{})
	data := content(10 << 10)
	_ = store.Put(t.Context(), someRef, io.MultiReader(bytes.NewReader(data[:6<<10+1]), iotest.ErrReader(errCut)), nil)
	s.arrived()
	data[2<<10+500]++ // in the third block
	if err := store.Put(t.Context(), someRef, bytes.NewReader(data), nil); err != nil {
		t.Fatal(err)
	}
	if n := count(s.arrived(), "PUT block"); n != 5 {
		t.Errorf("sent %d blocks, want the third and the last four", n)
	}
	if got := get(t, store, someRef); got != string(data) {
		t.Error("the blob is a mixture")
	}
}

// TestOneBrokenBlockIsSentAgainAlone: whichever it is, and wherever it breaks.
func TestOneBrokenBlockIsSentAgainAlone(t *testing.T) {
	data := content(5 << 10)
	for name, f := range map[string]fault{
		"lost": {lost: true}, "cut": {cutRequest: 500}, "no response": {unanswered: true}, "busy": {status: 503, code: "ServerBusy"},
		"time-out": {status: 500, code: "OperationTimedOut"}, "damaged": {damaged: true}, "hangs": {hangs: true}, "login page": {login: true}, "gateway": {status: 502},
	} {
		for i := range 5 {
			synctest.Test(t, func(t *testing.T) {
				s := newService()
				store := s.open(t, azureblob.Options{})
				s.setFault(nth("PUT block", i+1, f))
				if err := store.Put(t.Context(), someRef, bytes.NewReader(data), nil); err != nil {
					t.Fatalf("%s of block %d: %v", name, i, err)
				}
				s.setFault(nil)
				if n := count(s.arrived(), "PUT block"); n != 6 {
					t.Errorf("%s of block %d: %d blocks were sent, want 6", name, i, n)
				}
				if got := get(t, store, someRef); got != string(data) {
					t.Errorf("%s of block %d: got %d bytes", name, i, len(got))
				}
			})
		}
	}
}

// TestACreateWhoseResponseIsLostHasCreated: it recognizes its own blob, and no other.
func TestACreateWhoseResponseIsLostHasCreated(t *testing.T) {
	for commit, data := range map[string][]byte{"PUT": content(100), "PUT blocklist": content(3 << 10)} {
		synctest.Test(t, func(t *testing.T) {
			s := newService()
			store := s.open(t, azureblob.Options{})
			s.setFault(nth(commit, 1, fault{unanswered: true}))
			if err := store.Create(t.Context(), someRef, bytes.NewReader(data), nil); err != nil {
				t.Errorf("%s: %v", commit, err)
			}
			if err := store.Delete(t.Context(), someRef); err != nil {
				t.Fatal(err)
			}
			// The request is lost, and another creates the blob with the same content before it is repeated.
			other := s.open(t, azureblob.Options{})
			s.setFault(nth(commit, 1, fault{lost: true, before: func() {
				s.setFault(nil)
				if err := other.Create(t.Context(), someRef, bytes.NewReader(data), nil); err != nil {
					t.Error(err)
				}
			}}))
			if err := store.Create(t.Context(), someRef, bytes.NewReader(data), nil); !errors.Is(err, blob.ErrExists) {
				t.Errorf("%s: %v, though another has created it", commit, err)
			}
			if info, err := store.Stat(t.Context(), someRef); err != nil || info.Metadata != nil {
				t.Errorf("%s: the token shows in %v, %v", commit, info.Metadata, err)
			}
		})
	}
}

// TestAnUploadThatIsOvertaken: another call commits the same blob between the blocks and the
// commit, and the service drops the blocks.
func TestAnUploadThatIsOvertaken(t *testing.T) {
	mine, theirs := content(5<<10), "theirs"
	for name, c := range map[string]struct {
		before  bool                                                    // the blob exists before
		meant   func(ctx context.Context, other *azureblob.Store) error // between
		create  bool
		refused bool // the service looks at the blocks before it looks at the condition
		resumed bool // of the blocks some are of an earlier put
		want    error
		left    string
	}{
		"put by a put":            {meant: putTheirs, left: theirs},
		"put over one by a put":   {before: true, meant: putTheirs, left: theirs},
		"create by a put, blocks": {create: true, refused: true, meant: putTheirs, want: blob.ErrExists, left: theirs},
		"resumed put by a put":    {before: true, resumed: true, meant: putTheirs, left: theirs},
		"resumed put, deleted":    {before: true, resumed: true, meant: putAndDelete, want: blob.ErrUnavailable},
		"create by a put":         {create: true, meant: putTheirs, want: blob.ErrExists, left: theirs},
		"put by put and delete":   {meant: putAndDelete, want: blob.ErrUnavailable},
		"create by the same put":  {create: true, meant: putMine, want: blob.ErrExists, left: string(mine)},
		"put by the same put":     {meant: putMine, left: string(mine)},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newService()
			store, other := s.open(t, azureblob.Options{}), s.open(t, azureblob.Options{})
			if c.before {
				if err := store.Put(t.Context(), someRef, strings.NewReader("before"), nil); err != nil {
					t.Fatal(err)
				}
			}
			if c.resumed {
				_ = store.Put(t.Context(), someRef, io.MultiReader(bytes.NewReader(mine[:3<<10]), iotest.ErrReader(errCut)), nil)
			}
			f := fault{}
			if c.refused {
				f = fault{status: 400, code: "InvalidBlockList"}
			}
			f.before = func() {
				s.setFault(nil)
				if err := c.meant(t.Context(), other); err != nil {
					t.Error(err)
				}
			}
			s.setFault(nth("PUT blocklist", 1, f))
			put := store.Put
			if c.create {
				put = store.Create
			}
			if err := put(t.Context(), someRef, bytes.NewReader(mine), nil); !errors.Is(err, c.want) {
				t.Errorf("%s: %v, want %v", name, err, c.want)
			}
			if c.left != "" && get(t, store, someRef) != c.left {
				t.Errorf("%s: left is another blob", name)
			}
		})
	}
}

func putTheirs(ctx context.Context, other *azureblob.Store) error {
	return other.Put(ctx, someRef, strings.NewReader("theirs"), nil)
}

func putMine(ctx context.Context, other *azureblob.Store) error {
	return other.Put(ctx, someRef, bytes.NewReader(content(5<<10)), nil)
}

func putAndDelete(ctx context.Context, other *azureblob.Store) error {
	return errors.Join(putTheirs(ctx, other), other.Delete(ctx, someRef))
}

// TestADamagedSmallBlobIsSentAgain: the service compares the checksum.
func TestADamagedSmallBlobIsSentAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService()
		store := s.open(t, azureblob.Options{})
		s.setFault(nth("PUT", 1, fault{damaged: true}))
		if err := store.Put(t.Context(), someRef, strings.NewReader("text"), nil); err != nil {
			t.Fatal(err)
		}
		if got, n := get(t, store, someRef), count(s.arrived(), "PUT"); got != "text" || n != 2 {
			t.Errorf("got %q after %d requests, want \"text\" after 2", got, n)
		}
	})
}

// TestBlocksThatGrewTooOldAreNoSuccess: a put is resumed with blocks that the service drops just
// then, because their week is over. The blob is still the old one.
func TestBlocksThatGrewTooOldAreNoSuccess(t *testing.T) {
	s := newService()
	store := s.open(t, azureblob.Options{})
	if err := store.Put(t.Context(), someRef, strings.NewReader("old"), nil); err != nil {
		t.Fatal(err)
	}
	data := content(5 << 10)
	s.setFault(func(op string) fault {
		return fault{status: map[bool]int{true: 403}[op == "PUT blocklist"], code: "AuthorizationFailure"}
	})
	if err := store.Put(t.Context(), someRef, bytes.NewReader(data), nil); !errors.Is(err, blob.ErrUnauthorized) {
		t.Fatal(err)
	}
	s.setFault(nth("PUT blocklist", 1, fault{before: func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.containers["pictures"].blobs["a/b"].uncommitted = nil
	}}))
	if err := store.Put(t.Context(), someRef, bytes.NewReader(data), nil); !errors.Is(err, blob.ErrUnavailable) || !strings.Contains(err.Error(), "put the blob again") {
		t.Errorf("put: %v", err)
	}
	s.setFault(nil)
	if err := store.Put(t.Context(), someRef, bytes.NewReader(data), nil); err != nil || get(t, store, someRef) != string(data) {
		t.Errorf("put again: %v", err)
	}
}

// TestAReaderContinuesWhereItsConnectionBroke: at each byte, or when nothing comes any more.
func TestAReaderContinuesWhereItsConnectionBroke(t *testing.T) {
	data := content(300)
	for at := range 300 {
		for name, f := range map[string]fault{"cut": {cutResponse: at + 1}, "hangs": {hangsLater: at + 1}} {
			synctest.Test(t, func(t *testing.T) {
				s := newService()
				store := s.open(t, azureblob.Options{})
				if err := store.Put(t.Context(), someRef, bytes.NewReader(data), nil); err != nil {
					t.Fatal(err)
				}
				s.arrived()
				s.setFault(nth("GET", 1, f))
				if got := get(t, store, someRef); got != string(data) {
					t.Fatalf("%s at %d: got %d bytes", name, at+1, len(got))
				}
				if n, most := len(s.arrived()), 2; n > most || at+1 < len(data) && n != most {
					t.Errorf("%s at %d: %d requests", name, at+1, n)
				}
			})
		}
	}
}

// TestAReaderThatGetsNowhereGivesUp: each connection breaks before the first byte.
func TestAReaderThatGetsNowhereGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService()
		store := s.open(t, azureblob.Options{RetryFor: time.Minute})
		if err := store.Put(t.Context(), someRef, bytes.NewReader(content(300)), nil); err != nil {
			t.Fatal(err)
		}
		s.setFault(nth("GET", 1, fault{cutResponse: 100}))
		r, err := store.Open(t.Context(), someRef)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		s.setFault(func(string) fault { return fault{hangsLater: 0, lost: true} })
		before := time.Now()
		n, err := io.Copy(io.Discard, r)
		if n != 100 || !errors.Is(err, blob.ErrUnavailable) {
			t.Errorf("read %d bytes, %v", n, err)
		}
		if d := time.Since(before); d < 50*time.Second || d > 70*time.Second {
			t.Errorf("it gave up after %v", d)
		}
		if _, again := r.Read(make([]byte, 10)); !errors.Is(again, blob.ErrUnavailable) {
			t.Errorf("read again: %v", again)
		}
	})
}

// TestAReaderNeverMixesVersions: the connection breaks and the blob is another by then.
func TestAReaderNeverMixesVersions(t *testing.T) {
	for name, change := range map[string]func(ctx context.Context, s *azureblob.Store) error{
		"replaced": putTheirs,
		"replaced alike": func(ctx context.Context, s *azureblob.Store) error {
			return s.Put(ctx, someRef, bytes.NewReader(content(300)), nil)
		},
		"deleted": func(ctx context.Context, s *azureblob.Store) error { return s.Delete(ctx, someRef) },
	} {
		s := newService()
		store := s.open(t, azureblob.Options{})
		if err := store.Put(t.Context(), someRef, bytes.NewReader(content(300)), nil); err != nil {
			t.Fatal(err)
		}
		s.setFault(nth("GET", 1, fault{cutResponse: 100}))
		r, err := store.Open(t.Context(), someRef)
		if err != nil {
			t.Fatal(err)
		}
		if err := change(t.Context(), store); err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(r)
		if !bytes.Equal(got, content(100)) || !errors.Is(err, blob.ErrChanged) || errors.Is(err, blob.ErrMissing) {
			t.Errorf("%s: read %d bytes, %v", name, len(got), err)
		}
		r.Close()
	}
}

// noDeadline hides the Deadline method, which rapid calls and a bubble does not support.
type noDeadline struct{ rapid.TB }

// TestAnyFaultsLoseNothing: whatever breaks, calls succeed in the end with what they should, and
// no upload starts over.
func TestAnyFaultsLoseNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { rapid.Check(noDeadline{t}, anyFaultsLoseNothing) })
}

func anyFaultsLoseNothing(t *rapid.T) {
	faults := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) fault {
		n := rapid.IntRange(1, 1100).Draw(t, "after bytes")
		return rapid.SampledFrom([]fault{
			{}, {lost: true}, {unanswered: true}, {cutRequest: n}, {cutResponse: n}, {hangs: true}, {hangsLater: n}, {damaged: true},
			{login: true}, {status: 503, code: "ServerBusy"}, {status: 500, code: "InternalError"}, {status: 504},
		}).Draw(t, "fault")
	}), 0, 8).Draw(t, "faults")
	size := rapid.SampledFrom([]int{0, 1, 1 << 10, 1<<10 + 1, 4 << 10, 5<<10 - 1}).Draw(t, "size")
	s, ctx := newService(), context.Background()
	store := s.open(t, azureblob.Options{RetryFor: time.Hour})
	var left []fault
	s.setFault(func(string) (f fault) {
		if len(left) > 0 {
			f, left = left[0], left[1:]
		}
		return f
	})
	put := store.Put
	if rapid.Bool().Draw(t, "create") {
		put = store.Create
	}
	data := content(size)
	left = faults
	if err := put(ctx, someRef, bytes.NewReader(data), &blob.PutOptions{Metadata: map[string]string{"a": "1"}}); err != nil {
		t.Fatalf("put: %v", err)
	}
	if n, blocks := count(s.arrived(), "PUT block"), (size+1023)/1024; n > blocks+len(faults) {
		t.Fatalf("%d blocks were sent of %d, with %d faults", n, blocks, len(faults))
	}
	left = faults
	b, err := store.Open(ctx, someRef)
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	got, err := io.ReadAll(b)
	if err = errors.Join(err, b.Close()); err != nil || !bytes.Equal(got, data) || b.Metadata["a"] != "1" {
		t.Fatalf("read %d bytes of %d with %v, %v", len(got), size, b.Metadata, err)
	}
	left = faults
	n := 0
	for info, err := range store.List(ctx, someRef.Container, "") {
		if n++; err != nil || info.Ref != someRef || info.Size != int64(size) {
			t.Fatalf("listed %+v, %v", info, err)
		}
	}
	left = faults
	if err := store.Delete(ctx, someRef); err != nil || n != 1 {
		t.Fatalf("delete: %v, after %d blobs", err, n)
	}
}
