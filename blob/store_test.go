package blob_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/iotest"

	"go.uber.org/goleak"

	"github.com/millrace/millrace/blob"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// stores runs a test with every store. Each must pass every test of this file.
func stores(t *testing.T, test func(t *testing.T, s blob.Store)) {
	t.Run("memory", func(t *testing.T) { test(t, blob.Memory()) })
	t.Run("directory", func(t *testing.T) {
		d, err := blob.Dir(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := d.Close(); err != nil {
				t.Error(err)
			}
		})
		test(t, d)
	})
}

func ref(name string) blob.Ref { return blob.Ref{Container: "pictures", Name: name} }

func put(t *testing.T, s blob.Store, name, text string) {
	t.Helper()
	if err := s.Put(t.Context(), ref(name), strings.NewReader(text)); err != nil {
		t.Fatal(err)
	}
}

// get returns the content of a blob, or "(missing)".
func get(t *testing.T, s blob.Store, name string) string {
	t.Helper()
	r, err := s.Open(t.Context(), ref(name))
	if errors.Is(err, blob.ErrMissing) {
		return "(missing)"
	}
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(r)
	if err = errors.Join(err, r.Close()); err != nil {
		t.Fatal(err)
	}
	if r.Size != int64(len(data)) {
		t.Errorf("%s: Size: got %d, want %d", name, r.Size, len(data))
	}
	return string(data)
}

func list(t *testing.T, s blob.Store, container, prefix string) []string {
	t.Helper()
	var names []string
	for ref, err := range s.List(t.Context(), container, prefix) {
		if err != nil {
			t.Fatal(err)
		}
		if ref.Container != container {
			t.Errorf("List: got %v, want only blobs of container %s", ref, container)
		}
		names = append(names, ref.Name)
	}
	return names
}

func TestABlobIsPutReadReplacedAndDeleted(t *testing.T) {
	stores(t, func(t *testing.T, s blob.Store) {
		if got := get(t, s, "a"); got != "(missing)" {
			t.Errorf("before Put: got %s, want (missing)", got)
		}
		put(t, s, "a", "one")
		put(t, s, "empty", "")
		if got := get(t, s, "a"); got != "one" {
			t.Errorf("got %q; want \"one\"", got)
		}
		if got := get(t, s, "empty"); got != "" {
			t.Errorf("empty blob: got %q; want \"\"", got)
		}
		put(t, s, "a", "a longer two")
		if got := get(t, s, "a"); got != "a longer two" {
			t.Errorf("after replacing: got %q; want \"a longer two\"", got)
		}
		if n, err := s.Size(t.Context(), ref("a")); err != nil || n != 12 {
			t.Errorf("Size: got %d, %v; want 12", n, err)
		}
		for range 2 { // deleting can be repeated
			if err := s.Delete(t.Context(), ref("a")); err != nil {
				t.Error(err)
			}
		}
		if _, err := s.Size(t.Context(), ref("a")); !errors.Is(err, blob.ErrMissing) {
			t.Errorf("Size of a deleted blob: got error %v, want ErrMissing", err)
		}
		if there, err := blob.Exists(t.Context(), s, ref("a")); there || err != nil {
			t.Errorf("Exists of a deleted blob: got %v, %v; want false", there, err)
		}
		if there, err := blob.Exists(t.Context(), s, ref("empty")); !there || err != nil {
			t.Errorf("Exists of an empty blob: got %v, %v; want true", there, err)
		}
	})
}

func TestCreateOfAnExistingBlobFails(t *testing.T) {
	stores(t, func(t *testing.T, s blob.Store) {
		if err := s.Create(t.Context(), ref("a"), strings.NewReader("first")); err != nil {
			t.Fatal(err)
		}
		if err := s.Create(t.Context(), ref("a"), strings.NewReader("second")); !errors.Is(err, blob.ErrExists) {
			t.Errorf("second Create: got error %v, want ErrExists", err)
		}
		if got := get(t, s, "a"); got != "first" {
			t.Errorf("got %q; want \"first\"", got)
		}
	})
}

func TestOfManyCreatesOneSucceeds(t *testing.T) {
	stores(t, func(t *testing.T, s blob.Store) {
		const n = 16
		var created atomic.Int64
		var start, done sync.WaitGroup
		start.Add(n) // all have read their data before any creates
		for i := range n {
			done.Go(func() {
				text := strings.Repeat(string(rune('a'+i)), 1000)
				err := s.Create(t.Context(), ref("one"), io.MultiReader(strings.NewReader(text), barrier{&start}))
				switch {
				case err == nil:
					created.Add(1)
				case !errors.Is(err, blob.ErrExists):
					t.Error(err)
				}
			})
		}
		done.Wait()
		if created.Load() != 1 {
			t.Errorf("got %d successful creates, want 1", created.Load())
		}
		if got := get(t, s, "one"); len(got) != 1000 || strings.Trim(got, got[:1]) != "" {
			t.Errorf("got %d bytes, %.40q…; want 1000 of one writer", len(got), got)
		}
		if got := list(t, s, "pictures", ""); len(got) != 1 {
			t.Errorf("List: got %v, want one blob", got)
		}
	})
}

// barrier is an empty reader that ends when all readers have got here.
type barrier struct{ all *sync.WaitGroup }

func (b barrier) Read([]byte) (int, error) {
	b.all.Done()
	b.all.Wait()
	return 0, io.EOF
}

func TestAFailedPutChangesNothing(t *testing.T) {
	broken := errors.New("connection lost")
	stores(t, func(t *testing.T, s blob.Store) {
		half := func() io.Reader { return io.MultiReader(strings.NewReader("half"), iotest.ErrReader(broken)) }
		put(t, s, "there", "whole")
		if err := s.Put(t.Context(), ref("there"), half()); !errors.Is(err, broken) {
			t.Errorf("Put over a blob: got error %v, want %v", err, broken)
		}
		if err := s.Put(t.Context(), ref("new"), half()); !errors.Is(err, broken) {
			t.Errorf("Put of a new blob: got error %v, want %v", err, broken)
		}
		if err := s.Create(t.Context(), ref("new"), half()); !errors.Is(err, broken) {
			t.Errorf("Create: got error %v, want %v", err, broken)
		}
		if got := get(t, s, "there"); got != "whole" {
			t.Errorf("got %q; want \"whole\"", got)
		}
		if got := list(t, s, "pictures", ""); !slices.Equal(got, []string{"there"}) {
			t.Errorf("List: got %v, want [there]", got)
		}
	})
}

func TestAReaderNeverSeesAnotherVersion(t *testing.T) {
	stores(t, func(t *testing.T, s blob.Store) {
		old := strings.Repeat("old ", 10_000)
		put(t, s, "a", old)
		r, err := s.Open(t.Context(), ref("a"))
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		head := make([]byte, 4)
		if _, err := io.ReadFull(r, head); err != nil {
			t.Fatal(err)
		}
		put(t, s, "a", "new")
		rest, err := io.ReadAll(r)
		if err != nil || string(head)+string(rest) != old {
			t.Errorf("got %d bytes, %v; want the %d of the old version", len(head)+len(rest), err, len(old))
		}
		if got := get(t, s, "a"); got != "new" {
			t.Errorf("got %.20q; want \"new\"", got)
		}
	})
}

func TestListYieldsByPrefixInOrder(t *testing.T) {
	stores(t, func(t *testing.T, s blob.Store) {
		for _, name := range []string{"b/2", "b/10", "a", "b", "b-c", "b/1/x", "c.png"} {
			put(t, s, name, name)
		}
		if err := s.Put(t.Context(), blob.Ref{Container: "others", Name: "b/3"}, strings.NewReader("")); err != nil {
			t.Fatal(err)
		}
		for prefix, want := range map[string][]string{
			"":     {"a", "b", "b-c", "b/1/x", "b/10", "b/2", "c.png"},
			"b":    {"b", "b-c", "b/1/x", "b/10", "b/2"},
			"b/":   {"b/1/x", "b/10", "b/2"},
			"b/1":  {"b/1/x", "b/10"},
			"none": nil,
		} {
			if got := list(t, s, "pictures", prefix); !slices.Equal(got, want) {
				t.Errorf("prefix %q: got %v, want %v", prefix, got, want)
			}
		}
		if got := list(t, s, "never-made", ""); got != nil {
			t.Errorf("List of an empty container: got %v, want none", got)
		}
		for range s.List(t.Context(), "pictures", "") {
			break // the sequence may be left early
		}
	})
}

func TestBadReferencesAreRefused(t *testing.T) {
	bad := []blob.Ref{
		{}, {"pictures", ""}, {"", "a"}, {"ab", "a"}, {strings.Repeat("c", 64), "a"}, {"Pictures", "a"}, {"pic--tures", "a"},
		{"-pictures", "a"}, {"pictures-", "a"}, {"pictures/sub", "a"}, {"..", "a"}, {"pic.tures", "a"},
		{"pictures", ".."}, {"pictures", "../others/a"}, {"pictures", "a/../b"}, {"pictures", "."}, {"pictures", "a/./b"},
		{"pictures", "/a"}, {"pictures", "a/"}, {"pictures", "a//b"}, {"pictures", ".hidden"}, {"pictures", "a/.b"}, {"pictures", "a."},
		{"pictures", `a\b`}, {"pictures", "a+b"}, {"pictures", "A"}, {"pictures", "ä"}, {"pictures", "a b"}, {"pictures", "a\x00"},
		{"pictures", "a\n"}, {"pictures", "c:a"}, {"pictures", "a%2fb"}, {"pictures", strings.Repeat("n", blob.MaxName+1)},
	}
	stores(t, func(t *testing.T, s blob.Store) {
		for _, r := range bad {
			_, open := s.Open(t.Context(), r)
			_, size := s.Size(t.Context(), r)
			for op, err := range map[string]error{
				"put":    s.Put(t.Context(), r, unread{t}),
				"create": s.Create(t.Context(), r, unread{t}),
				"delete": s.Delete(t.Context(), r),
				"open":   open,
				"size":   size,
			} {
				if !errors.Is(err, blob.ErrBadRef) {
					t.Errorf("%s of %q: got error %v, want ErrBadRef", op, r, err)
				}
			}
		}
		for _, l := range [][2]string{{"..", ""}, {"Pictures", ""}, {"pictures", "A"}} {
			var last error
			for _, err := range s.List(t.Context(), l[0], l[1]) {
				last = err
			}
			if !errors.Is(last, blob.ErrBadRef) {
				t.Errorf("list of %q: got error %v, want ErrBadRef", l, last)
			}
		}
		long := strings.Repeat("n", blob.MaxName)
		put(t, s, long, "long")
		put(t, s, strings.Repeat("a/", 99)+"a", "deep")
		if got := get(t, s, long); got != "long" {
			t.Errorf("blob with the longest name: got %q, want \"long\"", got)
		}
	})
}

// unread fails the test if it is read.
type unread struct{ t *testing.T }

func (u unread) Read([]byte) (int, error) {
	u.t.Error("the data was read before the arguments were checked")
	return 0, io.EOF
}

func TestAnEndedContextEndsEveryCall(t *testing.T) {
	cause := errors.New("the worker stops")
	stores(t, func(t *testing.T, s blob.Store) {
		put(t, s, "there", "text")
		ctx, cancel := context.WithCancelCause(t.Context())
		data := &cancelling{cancel: func() { cancel(cause) }}
		if err := s.Put(ctx, ref("there"), data); !errors.Is(err, cause) {
			t.Errorf("interrupted Put: got error %v, want %v", err, cause)
		}
		_, open := s.Open(ctx, ref("there"))
		_, size := s.Size(ctx, ref("there"))
		var listed error
		for _, err := range s.List(ctx, "pictures", "") {
			listed = err
		}
		for op, err := range map[string]error{
			"put": s.Put(ctx, ref("there"), unread{t}), "create": s.Create(ctx, ref("a"), unread{t}),
			"delete": s.Delete(ctx, ref("there")), "open": open, "size": size, "list": listed,
		} {
			if !errors.Is(err, cause) {
				t.Errorf("%s: got error %v, want %v", op, err, cause)
			}
		}
		if got := get(t, s, "there"); got != "text" {
			t.Errorf("got %q; want \"text\"", got)
		}
	})
}

// cancelling is an endless reader that cancels a context.
type cancelling struct{ cancel func() }

func (c *cancelling) Read(p []byte) (int, error) {
	c.cancel()
	return copy(p, "endless "), nil
}

func TestLargeBlobsAreKeptWhole(t *testing.T) {
	stores(t, func(t *testing.T, s blob.Store) {
		want := bytes.Repeat([]byte("0123456789abcdef"), 1<<17) // 2 MiB
		// The reader returns half of what is asked for, and data together with io.EOF.
		if err := s.Put(t.Context(), ref("large"), iotest.DataErrReader(iotest.HalfReader(bytes.NewReader(want)))); err != nil {
			t.Fatal(err)
		}
		if got := get(t, s, "large"); got != string(want) {
			t.Errorf("got %d bytes, want the %d that were put", len(got), len(want))
		}
	})
}
