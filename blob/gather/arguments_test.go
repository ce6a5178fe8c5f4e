package gather_test

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/millrace/millrace/blob"
	"github.com/millrace/millrace/blob/gather"
)

func TestOptionsAreChecked(t *testing.T) {
	for name, build := range map[string]func() (*gather.Gather, error){
		"no store":      func() (*gather.Gather, error) { return gather.New(nil, "batches", nil) },
		"bad container": func() (*gather.Gather, error) { return gather.New(blob.Memory(), "Batches", nil) },
		"negative Remember": func() (*gather.Gather, error) {
			return gather.New(blob.Memory(), "batches", &gather.Options{Remember: -1})
		},
	} {
		g, err := build()
		if g != nil {
			t.Errorf("%s: got a Gather, want none", name)
		}
		wantError(t, err, gather.ErrInvalid)
	}
	_, err := gather.New(nil, "x", &gather.Options{Remember: -1})
	for _, want := range []string{"store", "container", "Remember"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("got error %v, want it to name %s", err, want)
		}
	}
}

// Nothing that is invalid reaches the store.
func TestArgumentsAreChecked(t *testing.T) {
	b := setup(t, nil)
	ctx := t.Context()
	ran := func(context.Context) ([]byte, error) { t.Error("the function ran"); return nil, nil }
	first := func(seq func(func(*gather.Part, error) bool)) (err error) {
		for _, e := range seq {
			err = e
		}
		return err
	}
	for _, id := range []string{"", "a/b", "A", ".a", "a.", "a b", "ä", strings.Repeat("x", gather.MaxID+1), "../x"} {
		_, complete := b.Complete(ctx, id, 1)
		_, once := b.Once(ctx, id, ran)
		_, _, end := b.End(ctx, id)
		_, stored := b.Stored(ctx, id)
		for _, err := range []error{
			b.Put(ctx, id, 0, strings.NewReader("")), complete, once, end, stored,
			first(b.Parts(ctx, id, 1)), b.Sweep(ctx, id), b.Forget(ctx, id),
		} {
			wantError(t, err, gather.ErrInvalid)
		}
	}
	for _, n := range []int{-1, gather.MaxParts} {
		wantError(t, b.Put(ctx, batch, n, strings.NewReader("")), gather.ErrInvalid)
		_, err := b.Complete(ctx, batch, n+1)
		wantError(t, err, gather.ErrInvalid)
		wantError(t, first(b.Parts(ctx, batch, n+1)), gather.ErrInvalid)
	}
	if got := b.store.count(""); got != 0 {
		t.Errorf("got %d calls of the store, want none", got)
	}
}

// The longest id and the last part have names that every store takes.
func TestTheLongestNames(t *testing.T) {
	b := setup(t, nil)
	id := strings.Repeat("x", gather.MaxID)
	b.put(id, gather.MaxParts-1)
	if stored, err := b.Stored(t.Context(), id); !slices.Equal(stored, []int{gather.MaxParts - 1}) || err != nil {
		t.Errorf("Stored: got %v, %v", stored, err)
	}
	b.wantComplete(b.Gather, id, gather.MaxParts, false)
	b.end(id, "")
	b.wantComplete(b.Gather, id, gather.MaxParts, true)
	if err := b.Forget(t.Context(), id); err != nil {
		t.Error(err)
	}
	b.wantLeft("")
}

func TestThePartThatCameFirstStays(t *testing.T) {
	b := setup(t, nil)
	for _, content := range []string{"first", "second"} {
		if err := b.Put(t.Context(), batch, 0, strings.NewReader(content)); err != nil {
			t.Fatal(err)
		}
	}
	for part, err := range b.Parts(t.Context(), batch, 1) {
		if err != nil {
			t.Fatal(err)
		}
		if text, err := io.ReadAll(part); string(text) != "first" || err != nil {
			t.Errorf("got %q, %v; want the first content", text, err)
		}
	}
}

func TestAPartWhoseContentFailsIsNotStored(t *testing.T) {
	b := setup(t, nil)
	broken := errors.New("broken")
	wantError(t, b.Put(t.Context(), batch, 0, io.MultiReader(strings.NewReader("half"), iotest.ErrReader(broken))), broken)
	b.wantLeft("")
}

// Parts closes each part when the loop goes on, ends or breaks, and names one that is missing.
func TestPartsAreOpenOneAtATime(t *testing.T) {
	b := setup(t, nil)
	b.putAll(batch, 3)
	closed := func(r io.Reader) bool { _, err := r.Read(make([]byte, 1)); return err != nil && err != io.EOF }
	var last *gather.Part
	for part, err := range b.Parts(t.Context(), batch, 4) {
		if last != nil && !closed(last) {
			t.Errorf("part %d is open when the loop has gone on", last.Number)
		}
		if err != nil {
			wantError(t, err, blob.ErrMissing)
			if part != nil || last.Number != 2 || !strings.Contains(err.Error(), "part 3 of 4") {
				t.Errorf("got part %v after part %d and error %v; want the error of part 3 alone", part, last.Number, err)
			}
			break
		}
		if text, err := io.ReadAll(part); err != nil || !strings.HasPrefix(string(text), "part ") {
			t.Errorf("got %q, %v", text, err)
		}
		last = part
	}
	for part := range b.Parts(t.Context(), batch, 3) {
		last = part
		break
	}
	if last.Number != 0 || !closed(last) {
		t.Errorf("part %d is open after a break", last.Number)
	}
}
