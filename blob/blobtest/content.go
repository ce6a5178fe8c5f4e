package blobtest

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing/iotest"
	"time"

	"github.com/millrace/millrace/blob"
)

var contentTests = []test{
	{"ABlobIsPutReadReplacedAndDeleted", func(e *env) {
		if got := e.get("a"); got != missing {
			e.Errorf("before: %s", got)
		}
		e.put("a", "one")
		e.put("empty", "")
		if got := e.get("a"); got != "one" {
			e.Errorf("got %q", got)
		}
		if got := e.get("empty"); got != "" {
			e.Errorf("empty blob: got %q", got)
		}
		e.put("a", "a longer two")
		if got := e.get("a"); got != "a longer two" {
			e.Errorf("after replacing: got %q", got)
		}
		if info, err := e.s.Stat(e.Context(), e.ref("a")); err != nil || info.Size != 12 || info.Metadata != nil {
			e.Errorf("stat: %+v, %v", info, err)
		}
		for range 2 { // deleting can be repeated
			e.ok(e.s.Delete(e.Context(), e.ref("a")))
		}
		e.is(errorOf(e.s.Stat(e.Context(), e.ref("a"))), blob.ErrMissing, "stat of a deleted blob")
		e.is(errorOf(e.s.Open(e.Context(), e.ref("a"))), blob.ErrMissing, "open of a deleted blob")
		e.is(errorOf(e.s.Stat(e.Context(), blob.Ref{Container: e.another(), Name: "a"})), blob.ErrMissing, "stat in a container that does not exist")
		e.ok(e.s.Delete(e.Context(), blob.Ref{Container: e.another(), Name: "a"}))
		if exists, err := blob.Exists(e.Context(), e.s, e.ref("a")); exists || err != nil {
			e.Errorf("exists: %v, %v", exists, err)
		}
		if exists, err := blob.Exists(e.Context(), e.s, e.ref("empty")); !exists || err != nil {
			e.Errorf("exists: %v, %v", exists, err)
		}
	}},
	{"AFailedPutChangesNothing", func(e *env) {
		broken := errors.New("the line went dead")
		for name, size := range map[string]int{"small": 10, "large": e.h.Large * 3 / 4} {
			half := func() io.Reader {
				return io.MultiReader(bytes.NewReader(content(size)), iotest.ErrReader(broken))
			}
			e.put(name, "whole")
			e.is(e.s.Put(e.Context(), e.ref(name), half(), nil), broken, "put")
			e.is(e.s.Put(e.Context(), e.ref(name+"-new"), half(), nil), broken, "put")
			e.is(e.s.Create(e.Context(), e.ref(name+"-new"), half(), nil), broken, "create")
			if got := e.get(name); got != "whole" {
				e.Errorf("got %.20q", got)
			}
			if got := e.get(name + "-new"); got != missing {
				e.Errorf("a failed put stored %.20q", got)
			}
		}
		if got := e.list(e.container, ""); !slices.Equal(got, []string{"large", "small"}) {
			e.Errorf("listed %v", got)
		}
	}},
	{"LargeBlobsComeBackWhole", func(e *env) {
		want := content(e.h.Large)
		// Readers that return little, and data together with the end, are readers too.
		e.ok(e.s.Put(e.Context(), e.ref("large"), iotest.DataErrReader(iotest.HalfReader(bytes.NewReader(want))), nil))
		if got := e.get("large"); got != string(want) {
			e.Errorf("got %d bytes", len(got))
		}
		e.ok(e.s.Put(e.Context(), e.ref("large"), bytes.NewReader(want[1:]), nil)) // replaced by another large one
		if got := e.get("large"); got != string(want[1:]) {
			e.Errorf("after replacing: got %d bytes", len(got))
		}
		e.ok(e.s.Put(e.Context(), e.ref("zeros"), bytes.NewReader(make([]byte, e.h.Large)), nil)) // parts of it are alike
		if got := e.get("zeros"); got != string(make([]byte, e.h.Large)) {
			e.Errorf("zeros: got %d bytes", len(got))
		}
	}},
	{"EverySizeAroundTheLimitsComesBack", func(e *env) {
		for part := range 4 {
			for _, d := range []int{-1, 0, 1} {
				n := e.h.Large*part/4 + d
				if n < 0 {
					continue
				}
				e.ok(e.s.Put(e.Context(), e.ref("a"), bytes.NewReader(content(n)), nil))
				if got := e.get("a"); got != string(content(n)) {
					e.Errorf("of %d bytes came back %d", n, len(got))
				}
			}
		}
	}},
	// Allow for another machine's clock, unless there is only one.
	{"TheTimeOfThePutIsKept", func(e *env) {
		const skew = time.Hour
		before := time.Now()
		e.put("a", "one")
		first, err := e.s.Stat(e.Context(), e.ref("a"))
		e.ok(err)
		if e.h.Bubble {
			if !first.Modified.Equal(before) {
				e.Errorf("put at %v and modified at %v", before, first.Modified)
			}
			time.Sleep(time.Minute)
		}
		if d := first.Modified.Sub(before); d < -skew || d > skew {
			e.Errorf("put at %v and modified at %v", before, first.Modified)
		}
		e.get("a") // reading is no modification
		e.put("a", strings.Repeat("two", 3))
		second, err := e.s.Stat(e.Context(), e.ref("a"))
		e.ok(err)
		if second.Modified.Before(first.Modified) || e.h.Bubble && second.Modified.Sub(first.Modified) != time.Minute {
			e.Errorf("modified at %v, and then at %v", first.Modified, second.Modified)
		}
	}},
	{"StatAndListTellTheAge", func(e *env) {
		e.put("a", "one")
		want := time.Duration(0)
		if e.h.Bubble {
			want = time.Hour
			time.Sleep(want)
		}
		check := func(by string, info blob.Info, err error) {
			e.ok(err)
			if age, err := info.Age(); err != nil || age < want || age > want+time.Minute {
				e.Errorf("age by %s: got %v, %v; want %v", by, age, err, want)
			}
		}
		info, err := e.s.Stat(e.Context(), e.ref("a"))
		check("stat", info, err)
		for info, err := range e.s.List(e.Context(), e.container, "") {
			check("list", info, err)
		}
	}},
}

// content returns bytes that repeat nowhere, the same each time.
func content(n int) []byte {
	random := rand.NewChaCha8([32]byte{1})
	b := make([]byte, n)
	_, _ = random.Read(b) // it never fails
	return b
}

var createTests = []test{
	{"CreateTellsThatABlobExists", func(e *env) {
		for name, second := range map[string][]byte{"small": []byte("second"), "large": content(e.h.Large)} {
			e.ok(e.s.Create(e.Context(), e.ref(name), strings.NewReader("first"), nil))
			e.is(e.s.Create(e.Context(), e.ref(name), bytes.NewReader(second), nil), blob.ErrExists, "second create")
			if got := e.get(name); got != "first" {
				e.Errorf("got %.20q", got)
			}
			e.ok(e.s.Delete(e.Context(), e.ref(name)))
			e.ok(e.s.Create(e.Context(), e.ref(name), bytes.NewReader(second), nil))
			if got := e.get(name); got != string(second) {
				e.Errorf("after delete and create: got %.20q", got)
			}
		}
	}},
	{"OfManyCreatesOneSucceeds", func(e *env) { ofManyCreatesOneSucceeds(e, 16, 1000) }},
	{"OfManyLargeCreatesOneSucceeds", func(e *env) { ofManyCreatesOneSucceeds(e, 4, e.h.Large) }},
	// They all succeed, and what is stored is whole.
	{"ConcurrentPutsStoreOneOfThem", func(e *env) {
		const n = 4
		for _, size := range []int{1000, e.h.Large} {
			var start, done sync.WaitGroup
			start.Add(n)
			for i := range n {
				done.Go(func() {
					text := strings.Repeat(string(rune('a'+i)), size)
					if err := e.s.Put(e.Context(), e.ref("one"), io.MultiReader(strings.NewReader(text), meet{&start}), nil); err != nil {
						e.Error(err)
					}
				})
			}
			done.Wait()
			e.isOne(e.get("one"), size)
		}
	}},
}

func ofManyCreatesOneSucceeds(e *env, n, size int) {
	var created atomic.Int64
	var start, done sync.WaitGroup
	start.Add(n) // all have read their data before any creates
	for i := range n {
		done.Go(func() {
			text := strings.Repeat(string(rune('a'+i)), size)
			err := e.s.Create(e.Context(), e.ref("one"), io.MultiReader(strings.NewReader(text), meet{&start}), nil)
			switch {
			case err == nil:
				created.Add(1)
			case !errors.Is(err, blob.ErrExists):
				e.Error(err)
			}
		})
	}
	done.Wait()
	if created.Load() != 1 {
		e.Errorf("%d creates succeeded", created.Load())
	}
	e.isOne(e.get("one"), size)
	if got := e.list(e.container, ""); len(got) != 1 {
		e.Errorf("listed %v", got)
	}
}

// isOne checks that the content is one letter throughout.
func (e *env) isOne(got string, size int) {
	e.Helper()
	if len(got) != size || strings.Trim(got, got[:1]) != "" {
		e.Errorf("the blob is a mixture of %d bytes: %.40q…", len(got), got)
	}
}

// meet ends a reader when all others have come so far.
type meet struct{ all *sync.WaitGroup }

func (m meet) Read([]byte) (int, error) {
	m.all.Done()
	m.all.Wait()
	return 0, io.EOF
}

var readerTests = []test{
	{"AReaderNeverSeesAnotherVersion", func(e *env) {
		for name, change := range map[string]func() error{
			"replaced": func() error {
				return e.s.Put(e.Context(), e.ref("a"), strings.NewReader(strings.Repeat("new ", e.h.Large/4)), nil)
			},
			"deleted": func() error { return e.s.Delete(e.Context(), e.ref("a")) },
		} {
			old := strings.Repeat("old ", e.h.Large/4)
			e.put("a", old)
			r, err := e.s.Open(e.Context(), e.ref("a"))
			e.ok(err)
			head := make([]byte, 4)
			e.ok(errorOf(io.ReadFull(r, head)))
			e.ok(change())
			rest, err := io.ReadAll(r)
			got := string(head) + string(rest)
			switch {
			case errors.Is(err, blob.ErrChanged) && e.h.Quirks.ReadersChange != "":
				e.Logf("%s: %v after %d bytes: %s", name, err, len(got), e.h.Quirks.ReadersChange)
				e.is(err, blob.ErrChanged, "read")
				if !strings.HasPrefix(old, got) {
					e.Errorf("%s: what was read before the error is a mixture", name)
				}
			case err != nil || got != old:
				e.Errorf("%s: read %d bytes, %v", name, len(got), err)
			}
			e.ok(r.Close())
		}
	}},
	{"ReadersDoNotDisturbEachOther", func(e *env) {
		want := string(content(e.h.Large / 2))
		e.put("a", want)
		var done sync.WaitGroup
		for range 4 {
			done.Go(func() {
				r, err := e.s.Open(e.Context(), e.ref("a"))
				if err != nil {
					e.Error(err)
					return
				}
				data, err := io.ReadAll(r)
				if err = errors.Join(err, r.Close()); err != nil || string(data) != want {
					e.Errorf("read %d bytes, %v", len(data), err)
				}
			})
		}
		done.Wait()
	}},
	{"AReaderCanBeClosedEarly", func(e *env) {
		e.put("a", string(content(e.h.Large)))
		for _, n := range []int64{0, 1, 1000} {
			r, err := e.s.Open(e.Context(), e.ref("a"))
			e.ok(err)
			e.ok(errorOf(io.CopyN(io.Discard, r, n)))
			e.ok(r.Close())
			if n, err := r.Read(make([]byte, 10)); n > 0 || err == nil || errors.Is(err, io.EOF) {
				e.Errorf("a closed reader returned %d bytes, %v", n, err)
			}
		}
	}},
}
