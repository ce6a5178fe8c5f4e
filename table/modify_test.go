package table_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/table"
)

var counter = table.Key{Partition: "counters", Row: "visits"}

// increment adds 1 to N.
func increment(e *table.Entity) error {
	e.Properties["N"] = e.Int("N") + 1
	return nil
}

// crowded is a store in which others come first: before is called before each get, insert and update.
type crowded struct {
	table.Store
	before func(op string)
}

func (s crowded) Get(ctx context.Context, k table.Key) (table.Entity, error) {
	s.before("get")
	return s.Store.Get(ctx, k)
}

func (s crowded) Insert(ctx context.Context, e table.Entity) (table.ETag, error) {
	s.before("insert")
	return s.Store.Insert(ctx, e)
}

func (s crowded) Update(ctx context.Context, e table.Entity) (table.ETag, error) {
	s.before("update")
	return s.Store.Update(ctx, e)
}

func TestModifyInsertsAndUpdates(t *testing.T) {
	s := table.Memory("counters")
	begin := time.Now()
	for want := range int64(3) {
		e, err := table.Modify(t.Context(), s, counter, func(e *table.Entity) error {
			if e.Key != counter || e.Properties == nil || (want == 0) != (e.ETag == "") || e.Int("N") != want {
				t.Errorf("change gets %+v", *e)
			}
			e.Key, e.ETag, e.Modified = table.Key{Partition: "elsewhere"}, "forged", begin.Add(-time.Hour)
			return increment(e)
		}, nil)
		stored, getErr := s.Get(t.Context(), counter)
		if err != nil || getErr != nil || e.Key != counter || e.ETag != stored.ETag || e.Int("N") != want+1 || stored.Int("N") != want+1 || !e.Modified.IsZero() {
			t.Errorf("Modify returns %+v, %v; stored is %+v, %v", e, err, stored, getErr)
		}
	}
}

// TestModifyReturnsWhatIsStored settles T-05: values have the form in which they are stored, and share nothing with it.
func TestModifyReturnsWhatIsStored(t *testing.T) {
	s, data := table.Memory("counters"), []byte{1}
	e, err := table.Modify(t.Context(), s, counter, func(e *table.Entity) error {
		e.Properties = map[string]any{"At": time.Unix(1, 123).In(time.FixedZone("", 3600)), "Data": data}
		return nil
	}, &table.ModifyOptions{})
	data[0]++
	if err != nil || e.Properties["At"] != time.Unix(1, 100).UTC() || e.Properties["Data"].([]byte)[0] != 1 {
		t.Errorf("got %v, %v", e.Properties, err)
	}
}

// TestModifyBeginsAgainWhenOthersComeFirst settles T-02, for each way in which a writer can lose.
func TestModifyBeginsAgainWhenOthersComeFirst(t *testing.T) {
	for name, c := range map[string]struct {
		exists bool // at the beginning
		other  func(s table.Store) error
		want   int64
	}{
		"updated": {true, func(s table.Store) error {
			_, err := s.Update(t.Context(), table.Entity{Key: counter, Properties: map[string]any{"N": int64(10)}, ETag: table.Any})
			return err
		}, 11},
		"deleted": {true, func(s table.Store) error { return s.Delete(t.Context(), counter, table.Any) }, 1},
		"inserted": {false, func(s table.Store) error {
			_, err := s.Insert(t.Context(), table.Entity{Key: counter, Properties: map[string]any{"N": int64(20)}})
			return err
		}, 21},
		"deleted and inserted": {true, func(s table.Store) error {
			return errors.Join(s.Delete(t.Context(), counter, table.Any), insert(t.Context(), s, 30))
		}, 31},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := table.Memory("counters")
			if c.exists {
				if err := insert(t.Context(), s, 5); err != nil {
					t.Fatal(err)
				}
			}
			writes := 0
			e, err := table.Modify(t.Context(), crowded{s, func(op string) {
				if op == "get" {
					return
				}
				if writes++; writes == 1 {
					if err := c.other(s); err != nil {
						t.Error(err)
					}
				}
			}}, counter, increment, nil)
			if err != nil || e.Int("N") != c.want || writes != 2 {
				t.Errorf("%s: got %v after %d writes: %v", name, e.Properties, writes, err)
			}
		})
	}
}

func insert(ctx context.Context, s table.Store, n int64) error {
	_, err := s.Insert(ctx, table.Entity{Key: counter, Properties: map[string]any{"N": n}})
	return err
}

// TestModifyGivesUp settles T-02: the attempts are bounded, and the waits between them grow to half a second.
func TestModifyGivesUp(t *testing.T) {
	for _, c := range []struct {
		o        *table.ModifyOptions
		attempts int
		longest  time.Duration
	}{
		{nil, 10, (2 + 4 + 8 + 16 + 32 + 64 + 128 + 256 + 500) * time.Millisecond},
		{&table.ModifyOptions{}, 10, (2 + 4 + 8 + 16 + 32 + 64 + 128 + 256 + 500) * time.Millisecond},
		{&table.ModifyOptions{Attempts: 1}, 1, 0},
		{&table.ModifyOptions{Attempts: 3}, 3, 6 * time.Millisecond},
		{&table.ModifyOptions{Attempts: 200}, 200, 510*time.Millisecond + 191*500*time.Millisecond},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := table.Memory("counters")
			if err := insert(t.Context(), s, 0); err != nil {
				t.Fatal(err)
			}
			begin, writes := time.Now(), 0
			e, err := table.Modify(t.Context(), crowded{s, func(op string) {
				if op == "get" {
					return
				}
				writes++
				if _, err := s.Update(t.Context(), table.Entity{Key: counter, ETag: table.Any}); err != nil {
					t.Error(err)
				}
			}}, counter, increment, c.o)
			took := time.Since(begin)
			if !errors.Is(err, table.ErrPreconditionFailed) || writes != c.attempts || e.Properties != nil || took > c.longest || c.longest > 0 && took < c.longest/20 {
				t.Errorf("%d attempts in %v (up to %v): %v, %v", writes, took, c.longest, e, err)
			}
			if want := fmt.Sprintf("other writers came first %d times: update counters", writes); !strings.HasPrefix(err.Error(), want) {
				t.Errorf("the error is %v", err)
			}
		})
	}
	for _, attempts := range []int{-1, -100} {
		_, err := table.Modify(t.Context(), nil, counter, nil, &table.ModifyOptions{Attempts: attempts})
		if !errors.Is(err, table.ErrInvalid) || !strings.HasPrefix(err.Error(), `modify "counters/visits"`) {
			t.Errorf("%d attempts: %v", attempts, err)
		}
	}
}

// TestModifyOfWhatVanishes: an entity that comes back before each read and is deleted before each write.
func TestModifyOfWhatVanishes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := table.Memory("counters")
		writes := 0
		_, err := table.Modify(t.Context(), crowded{s, func(op string) {
			switch op {
			case "get":
				_ = insert(t.Context(), s, 0)
			case "update":
				writes++
				_ = s.Delete(t.Context(), counter, table.Any)
			}
		}}, counter, increment, &table.ModifyOptions{Attempts: 4})
		if !errors.Is(err, table.ErrMissing) || writes != 4 || !strings.HasPrefix(err.Error(), "other writers came first 4 times: update counters") {
			t.Errorf("after %d writes: %v", writes, err)
		}
	})
}

// TestModifyWaitsNoLongerThanItsContext: its end, and the cause, reach the caller.
func TestModifyWaitsNoLongerThanItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, why := table.Memory("counters"), errors.New("the worker stops")
		if err := insert(t.Context(), s, 0); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		writes := 0
		_, err := table.Modify(ctx, crowded{s, func(op string) {
			if op != "update" {
				return
			}
			if _, err := s.Update(t.Context(), table.Entity{Key: counter, ETag: table.Any}); err != nil {
				t.Error(err)
			}
			if writes++; writes == 9 { // in the wait that follows, of up to half a second
				time.AfterFunc(time.Nanosecond, func() { cancel(why) })
			}
		}}, counter, increment, nil)
		if !errors.Is(err, why) || writes != 9 {
			t.Errorf("after %d writes: %v", writes, err)
		}
		if known := (*table.Error)(nil); !errors.As(err, &known) || known.Key != counter || known.Op != "modify" {
			t.Errorf("the error %v does not say what ended", err)
		}
	})
}

// TestModifyReturnsTheErrorOfItsFunction, also one that means something else when a store returns it.
func TestModifyReturnsTheErrorOfItsFunction(t *testing.T) {
	for _, why := range []error{
		errors.New("no"), table.ErrExists, table.ErrPreconditionFailed, table.ErrMissing, fmt.Errorf("elsewhere: %w", table.ErrExists), context.Canceled,
	} {
		s := table.Memory("counters")
		for range 2 { // without the entity, and with it
			calls := 0
			e, err := table.Modify(t.Context(), s, counter, func(e *table.Entity) error {
				calls++
				return why
			}, nil)
			if err != why || calls != 1 || e.Properties != nil { //nolint:errorlint // the error itself
				t.Errorf("%v: got %v, %v after %d calls", why, e, err, calls)
			}
			_ = insert(t.Context(), s, 1) // fails the second time
		}
	}
}

func TestModifyLeavesAnEntityAsItIs(t *testing.T) {
	s := table.Memory("counters")
	for range 2 {
		before, _ := s.Get(t.Context(), counter)
		e, err := table.Modify(t.Context(), s, counter, func(e *table.Entity) error {
			e.Key, e.ETag = table.Key{Partition: "elsewhere"}, "forged"
			return fmt.Errorf("nothing to do: %w", table.ErrUnchanged)
		}, nil)
		after, _ := s.Get(t.Context(), counter)
		if err != nil || e.Key != counter || e.ETag != before.ETag || after.ETag != before.ETag || e.Int("N") != before.Int("N") {
			t.Errorf("%v became %v, and Modify returns %v, %v", before, after, e, err)
		}
		_ = insert(t.Context(), s, 7)
	}
}

// unanswered is a store whose changes are made without an answer.
type unanswered struct{ table.Store }

func (s unanswered) Update(ctx context.Context, e table.Entity) (table.ETag, error) {
	_, err := s.Store.Update(ctx, e)
	return "", errors.Join(err, table.Explain("update", "counters", e.Key, table.ErrUnavailable))
}

// TestModifyDoesNotRepeatAWriteWithoutAnAnswer: it may have been made, and would be made twice.
func TestModifyDoesNotRepeatAWriteWithoutAnAnswer(t *testing.T) {
	s := table.Memory("counters")
	if err := insert(t.Context(), s, 1); err != nil {
		t.Fatal(err)
	}
	_, err := table.Modify(t.Context(), unanswered{s}, counter, increment, nil)
	e, getErr := s.Get(t.Context(), counter)
	if !table.Transient(err) || getErr != nil || e.Int("N") != 2 {
		t.Errorf("the counter is %d: %v, %v", e.Int("N"), err, getErr)
	}
}

// TestModifyPassesPanicsOn: nothing is written, and the store can be used.
func TestModifyPassesPanicsOn(t *testing.T) {
	s := table.Memory("counters")
	func() {
		defer func() {
			if r := recover(); r != "no" {
				t.Errorf("recovered %v", r)
			}
		}()
		_, _ = table.Modify(t.Context(), s, counter, func(*table.Entity) error { panic("no") }, nil)
	}()
	if err := insert(t.Context(), s, 1); err != nil {
		t.Error(err)
	}
}

func TestModifyOfWhatIsRefused(t *testing.T) {
	_, err := table.Modify(t.Context(), table.Memory("counters"), table.Key{Partition: "a/b"}, increment, nil)
	if !errors.Is(err, table.ErrInvalid) {
		t.Errorf("a bad key: %v", err)
	}
	_, err = table.Modify(t.Context(), table.Memory("counters"), counter, func(e *table.Entity) error {
		e.Properties["N"] = 1
		return nil
	}, nil)
	if !errors.Is(err, table.ErrInvalid) || !strings.Contains(err.Error(), "the property N is a int") {
		t.Errorf("a bad value: %v", err)
	}
}

// TestWaitsDiffer: writers that lose at once do not wait equally long, or they would meet again.
func TestWaitsDiffer(t *testing.T) {
	var waits []time.Duration
	for range 20 {
		synctest.Test(t, func(t *testing.T) {
			s := table.Memory("counters")
			begin := time.Now()
			_, err := table.Modify(t.Context(), crowded{s, func(op string) {
				if op == "insert" {
					_ = insert(t.Context(), s, 1)
				}
			}}, counter, increment, nil)
			if err != nil {
				t.Error(err)
			}
			waits = append(waits, time.Since(begin))
		})
	}
	slices.Sort(waits)
	if len(slices.Compact(waits)) < 10 {
		t.Errorf("the waits are %v", waits)
	}
}
