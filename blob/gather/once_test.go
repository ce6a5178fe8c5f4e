package gather_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/blob"
	"github.com/millrace/millrace/blob/gather"
)

func TestTheFirstEndCounts(t *testing.T) {
	b := setup(t, nil)
	if end := b.end(batch, "first"); string(end.Result) != "first" || !end.First {
		t.Errorf("got %+v, want the first end", end)
	}
	if end := b.end(batch, "second"); string(end.Result) != "first" || end.First {
		t.Errorf("got %+v, want the end that was recorded", end)
	}
	end, ended, err := b.End(t.Context(), batch)
	if string(end.Result) != "first" || end.First || !ended || err != nil {
		t.Errorf("End: got %+v, %v, %v", end, ended, err)
	}
	if _, ended, err := b.End(t.Context(), "another"); ended || err != nil {
		t.Errorf("End of another gather: got %v, %v; want none", ended, err)
	}
}

// Two processes run the function at the same time. Both get the end of the one that recorded it first.
func TestTwoProcessesThatEndAtOnceGetOneEnd(t *testing.T) {
	b := setup(t, nil)
	other := process(t, b.store, nil)
	end, err := b.Once(t.Context(), batch, func(ctx context.Context) ([]byte, error) {
		faster, err := other.Once(ctx, batch, func(context.Context) ([]byte, error) { return []byte("other"), nil })
		if err != nil || !faster.First {
			t.Errorf("the other process: got %+v, %v; want the first end", faster, err)
		}
		return []byte("mine"), nil
	})
	if err != nil || string(end.Result) != "other" || end.First {
		t.Errorf("got %+v, %v; want the end of the other process", end, err)
	}
}

func TestAFunctionThatFailsRecordsNoEnd(t *testing.T) {
	b := setup(t, nil)
	broken := errors.New("broken")
	if _, err := b.Once(t.Context(), batch, func(context.Context) ([]byte, error) { return []byte("x"), broken }); err != broken { //nolint:errorlint // unchanged
		t.Errorf("got %v, want the error unchanged", err)
	}
	b.wantLeft("")
	if end := b.end(batch, "again"); !end.First {
		t.Errorf("got %+v, want the end of the second try", end)
	}
}

// Another process ends the gather and sweeps it while the function reads the parts.
func TestAFunctionThatFailsBecauseTheGatherHasEndedIsNoError(t *testing.T) {
	b := setup(t, nil)
	b.putAll(batch, 3)
	other := &bundle{T: t, store: b.store, Gather: process(t, b.store, nil)}
	end, err := b.Once(t.Context(), batch, func(ctx context.Context) ([]byte, error) {
		other.end(batch, "other")
		if err := other.Sweep(ctx, batch); err != nil {
			return nil, err
		}
		for _, err := range b.Parts(ctx, batch, 3) {
			if err != nil {
				return nil, err
			}
		}
		return nil, errors.New("the parts are still there")
	})
	if err != nil || string(end.Result) != "other" || end.First {
		t.Errorf("got %+v, %v; want the end of the other process", end, err)
	}
}

// A function that panics, or ends its goroutine, must not keep others out.
func TestAFunctionThatDoesNotReturnLetsOthersIn(t *testing.T) {
	for name, leave := range map[string]func(){"panic": func() { panic("broken") }, "Goexit": runtime.Goexit} {
		b := setup(t, nil)
		done := make(chan struct{})
		go func() {
			defer close(done)
			defer func() { _ = recover() }()
			_, _ = b.Once(t.Context(), batch, func(context.Context) ([]byte, error) { leave(); return nil, nil })
		}()
		<-done
		if end := b.end(batch, "again"); !end.First {
			t.Errorf("%s: got %+v, want the end of the second try", name, end)
		}
	}
}

func TestOneFunctionAtATimeForEachGather(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, nil)
		var (
			all           sync.WaitGroup
			running, runs atomic.Int64
		)
		slow := func(context.Context) ([]byte, error) {
			runs.Add(1)
			if running.Add(1) > 1 {
				t.Error("got two runs at once")
			}
			time.Sleep(time.Second)
			running.Add(-1)
			return []byte("end"), nil
		}
		for range 16 {
			all.Go(func() {
				if end, err := b.Once(t.Context(), batch, slow); err != nil || string(end.Result) != "end" {
					t.Errorf("got %+v, %v", end, err)
				}
			})
		}
		synctest.Wait()
		begin := time.Now()
		b.end("another", "not kept waiting")
		if waited := time.Since(begin); waited != 0 {
			t.Errorf("another gather waited %v, want it not to wait", waited)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		_, err := b.Once(ctx, batch, slow)
		wantError(t, err, context.DeadlineExceeded)
		if waited := time.Since(begin); waited != time.Millisecond {
			t.Errorf("got the error after %v, want 1ms", waited)
		}
		all.Wait()
		if runs.Load() != 1 {
			t.Errorf("got %d runs, want 1", runs.Load())
		}
	})
}

// The answer to the record of the end is lost: the next call finds it.
func TestAnEndWhoseRecordHadNoAnswerCounts(t *testing.T) {
	b := setup(t, nil)
	lossy := &unansweredCreate{b.store}
	g := process(t, lossy, nil)
	_, err := g.Once(t.Context(), batch, func(context.Context) ([]byte, error) { return []byte("lost"), nil })
	wantError(t, err, blob.ErrUnavailable)
	if end := b.end(batch, "again"); string(end.Result) != "lost" || end.First {
		t.Errorf("got %+v, want the end whose record had no answer", end)
	}
}

// unansweredCreate is a store whose creates take effect, and have no answer.
type unansweredCreate struct{ *countingStore }

func (s *unansweredCreate) Create(ctx context.Context, ref blob.Ref, r io.Reader, o *blob.PutOptions) error {
	if err := s.countingStore.Create(ctx, ref, r, o); err != nil {
		return err
	}
	return blob.ErrUnavailable
}

func TestResultsHaveALimit(t *testing.T) {
	b := setup(t, nil)
	longest := bytes.Repeat([]byte("x"), gather.MaxResult)
	_, err := b.Once(t.Context(), batch, func(context.Context) ([]byte, error) { return append(longest, 'x'), nil })
	wantError(t, err, gather.ErrInvalid)
	b.wantLeft("")
	if end := b.end(batch, string(longest)); !end.First {
		t.Error("the longest result was not recorded")
	}
	end, _, err := b.End(t.Context(), batch)
	if len(end.Result) != gather.MaxResult || err != nil {
		t.Errorf("End: got %d bytes, %v", len(end.Result), err)
	}
	// What someone else has put there is not read whole.
	if err := b.store.Store.Put(t.Context(), b.EndRef("large"), bytes.NewReader(append(longest, 'x')), nil); err != nil {
		t.Fatal(err)
	}
	if _, _, err := b.End(t.Context(), "large"); err == nil || !strings.Contains(err.Error(), "large/end") {
		t.Errorf("End of a blob that is too large: got %v, want an error that names it", err)
	}
}
