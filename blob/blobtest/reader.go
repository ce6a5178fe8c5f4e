package blobtest

import (
	"errors"
	"io"
	"strings"
	"sync"

	"github.com/millrace/millrace/blob"
)

var readerTests = []test{
	{"AReaderNeverSeesAnotherVersion", readersSeeOneVersion},
	{"ReadersDoNotDisturbEachOther", readersAreIndependent},
	{"AReaderCanBeClosedEarly", readersCanBeClosedEarly},
}

func readersSeeOneVersion(e *env) {
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
		_, err = io.ReadFull(r, head)
		e.ok(err)
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
}

func readersAreIndependent(e *env) {
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
}

func readersCanBeClosedEarly(e *env) {
	e.put("a", string(content(e.h.Large)))
	for _, n := range []int64{0, 1, 1000} {
		r, err := e.s.Open(e.Context(), e.ref("a"))
		e.ok(err)
		_, err = io.CopyN(io.Discard, r, n)
		e.ok(err)
		e.ok(r.Close())
		if n, err := r.Read(make([]byte, 10)); n > 0 || err == nil || errors.Is(err, io.EOF) {
			e.Errorf("a closed reader returned %d bytes, %v", n, err)
		}
	}
}
