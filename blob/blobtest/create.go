package blobtest

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/millrace/millrace/blob"
)

var createTests = []test{
	{"CreateTellsThatABlobExists", createTellsThatABlobExists},
	{"OfManyCreatesOneSucceeds", func(e *env) { ofManyCreatesOneSucceeds(e, 16, 1000) }},
	{"OfManyLargeCreatesOneSucceeds", func(e *env) { ofManyCreatesOneSucceeds(e, 4, e.h.Large) }},
	{"ConcurrentPutsStoreOneOfThem", concurrentPutsStoreOneOfThem},
}

func createTellsThatABlobExists(e *env) {
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

// concurrentPutsStoreOneOfThem: they all succeed, and what is stored is whole.
func concurrentPutsStoreOneOfThem(e *env) {
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
