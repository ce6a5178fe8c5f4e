package aztable_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/table"
	"github.com/millrace/millrace/table/aztable"
)

var someKey = table.Key{Partition: "owners", Row: "ann"}

func someEntity() table.Entity {
	return table.Entity{Key: someKey, Properties: map[string]any{"Name": "Ann"}, ETag: table.Any}
}

// operation is one call of a store.
type operation struct {
	name   string
	call   func(context.Context, table.Store) error
	change bool
}

var operations = []operation{
	{"insert", func(ctx context.Context, s table.Store) error { _, err := s.Insert(ctx, someEntity()); return err }, true},
	{"get", func(ctx context.Context, s table.Store) error { _, err := s.Get(ctx, someKey); return err }, false},
	{"update", func(ctx context.Context, s table.Store) error { _, err := s.Update(ctx, someEntity()); return err }, true},
	{"delete", func(ctx context.Context, s table.Store) error { return s.Delete(ctx, someKey, table.Any) }, true},
	{"apply", func(ctx context.Context, s table.Store) error {
		_, err := s.Apply(ctx, []table.Change{table.Updating(someEntity())})
		return err
	}, true},
	{"query", func(ctx context.Context, s table.Store) error { _, err := s.Query(ctx, table.Query{}); return err }, false},
}

// withEntity returns a service with someEntity in the table Channels.
func withEntity(t *testing.T) *fakeService {
	t.Helper()
	s := newService()
	if _, err := s.open(t, "Channels", aztable.Options{}).Insert(t.Context(), someEntity()); err != nil {
		t.Fatal(err)
	}
	s.arrived()
	return s
}

// TestRequestsPerCall counts what each call costs.
func TestRequestsPerCall(t *testing.T) {
	s := newService()
	channels := s.open(t, "Channels", aztable.Options{})
	blogs := s.open(t, "Blogs", aztable.Options{})
	group := func(n int) (changes []table.Change) {
		for i := range n {
			changes = append(changes, table.Inserting(table.Entity{Key: table.Key{Partition: "p", Row: string(rune('a' + i))}}))
		}
		return changes
	}
	ctx := t.Context()
	for _, c := range []struct {
		what string
		do   func() error
		want string
		err  error
	}{
		{"get from no table", func() error { _, err := channels.Get(ctx, someKey); return err }, "get", table.ErrMissing},
		{"query no table", func() error { _, err := channels.Query(ctx, table.Query{}); return err }, "query", nil},
		{"update in no table", func() error { _, err := channels.Update(ctx, someEntity()); return err }, "update", table.ErrMissing},
		{"delete from no table", func() error { return channels.Delete(ctx, someKey, table.Any) }, "delete", table.ErrMissing},
		{"delete a group from no table", func() error {
			_, err := channels.Apply(ctx, []table.Change{table.Deleting(someKey, table.Any)})
			return err
		}, "group", table.ErrMissing},
		{"insert into no table", func() error { _, err := channels.Insert(ctx, someEntity()); return err }, "insert, create, insert", nil},
		{"insert a group into no table", func() error { _, err := blogs.Apply(ctx, group(3)); return err }, "group, create, group", nil},
		{"insert", func() error {
			_, err := channels.Insert(ctx, table.Entity{Key: table.Key{Partition: "owners", Row: "bob"}})
			return err
		}, "insert", nil},
		{"insert again", func() error { _, err := channels.Insert(ctx, someEntity()); return err }, "insert", table.ErrExists},
		{"get", func() error { _, err := channels.Get(ctx, someKey); return err }, "get", nil},
		{"update", func() error { _, err := channels.Update(ctx, someEntity()); return err }, "update", nil},
		{"query", func() error { _, err := channels.Query(ctx, table.Query{}); return err }, "query", nil},
		{"query two pages", func() error {
			for _, err := range table.All(ctx, channels, table.Query{Top: 1}) {
				if err != nil {
					return err
				}
			}
			return nil
		}, "query, query", nil},
		{"modify", func() error {
			_, err := table.Modify(ctx, channels, someKey, func(e *table.Entity) error { e.Properties["New"] = true; return nil }, nil)
			return err
		}, "get, update", nil},
		{"delete", func() error { return channels.Delete(ctx, someKey, table.Any) }, "delete", nil},
		{"apply", func() error { _, err := channels.Apply(ctx, group(20)); return err }, "group", nil},
		{"a bad key", func() error { return channels.Delete(ctx, table.Key{Partition: "a/b"}, table.Any) }, "", table.ErrInvalid},
		{"a bad token", func() error { _, err := channels.Query(ctx, table.Query{Token: "x"}); return err }, "", table.ErrInvalid},
	} {
		if err := c.do(); !errors.Is(err, c.err) {
			t.Errorf("%s: %v", c.what, err)
		}
		if got := s.arrived(); got != c.want {
			t.Errorf("%s sent %q, want %q", c.what, got, c.want)
		}
	}
}

// TestKeysAreEscapedInAddresses, so that no server reads anything else: some take a plus sign for a space.
func TestKeysAreEscapedInAddresses(t *testing.T) {
	s := withEntity(t)
	sent := ""
	channels, err := aztable.Open("UseDevelopmentStorage=true", "Channels", &aztable.Options{Transport: transport(func(r *http.Request) (*http.Response, error) {
		sent = r.URL.EscapedPath()
		if strings.HasSuffix(sent, "/$batch") {
			text, err := io.ReadAll(r.Body)
			if err != nil {
				t.Error(err)
			}
			_, line, _ := strings.Cut(string(text), "\r\n\r\nDELETE http://127.0.0.1:10002")
			sent, _, _ = strings.Cut(line, "?")
			r.Body = body(string(text))
		}
		return s.Do(r)
	})})
	if err != nil {
		t.Fatal(err)
	}
	k := table.Key{Partition: "1+1 = 2%", Row: "it's"}
	want := "/devstoreaccount1/Channels(PartitionKey='1%2B1%20=%202%25',RowKey='it%27%27s')"
	if err := channels.Delete(t.Context(), k, table.Any); !errors.Is(err, table.ErrMissing) || sent != want {
		t.Errorf("%v: sent %s", err, sent)
	}
	if _, err := channels.Apply(t.Context(), []table.Change{table.Deleting(k, table.Any)}); !errors.Is(err, table.ErrMissing) || sent != want {
		t.Errorf("%v: sent %s", err, sent)
	}
}

// TestTheTableMayBeCreatedMeanwhile by another program, between our two requests.
func TestTheTableMayBeCreatedMeanwhile(t *testing.T) {
	s := newService()
	ours, theirs := s.open(t, "Channels", aztable.Options{}), s.open(t, "channels", aztable.Options{})
	s.setFault(func(op string) fault {
		if op != opCreate {
			return fault{}
		}
		s.fault = nil // setFault holds the lock of the one that called us
		return fault{before: func() {
			if _, err := theirs.Insert(t.Context(), table.Entity{Key: table.Key{Partition: "theirs"}}); err != nil {
				t.Error(err)
			}
		}}
	})
	if _, err := ours.Insert(t.Context(), someEntity()); err != nil {
		t.Fatal(err)
	}
	if got := s.arrived(); got != "insert, create, insert, create, insert, insert" {
		t.Errorf("sent %q", got)
	}
}

// fails returns a fault for the first n requests.
func fails(n int, f fault) func(string) fault {
	return func(string) fault {
		if n--; n < 0 {
			return fault{}
		}
		return f
	}
}

var errDial = &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connection refused")}

// TestReadsAreRepeated, and changes only if they had no effect.
func TestReadsAreRepeated(t *testing.T) {
	for _, c := range []struct {
		name     string
		f        fault
		harmless bool // a change that fails so certainly had no effect
	}{
		{"ServerBusy", fault{status: 503, code: "ServerBusy"}, true},
		{"429", fault{status: 429, code: "TooManyRequests"}, true},
		{"being deleted", fault{status: 409, code: "TableBeingDeleted"}, true},
		{"not sent", fault{err: errDial}, true},
		{"503 of a proxy", fault{status: 503}, false},
		{"OperationTimedOut", fault{status: 500, code: "OperationTimedOut"}, false},
		{"500", fault{status: 500, code: "InternalError"}, false},
		{"502", fault{status: 502}, false},
		{"504", fault{status: 504}, false},
		{"cut connection", fault{err: errCut}, false},
		{"no answer", fault{unanswered: true}, false},
		{"time-out", fault{hangs: true}, false},
		{"login page", fault{login: true}, false},
		{"redirect", fault{status: 302}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, op := range operations {
				synctest.Test(t, func(t *testing.T) {
					s := withEntity(t)
					if op.name == "insert" {
						operations[3].call(t.Context(), s.open(t, "Channels", aztable.Options{}))
						s.arrived()
					}
					s.setFault(fails(2, c.f))
					err := op.call(t.Context(), s.open(t, "Channels", aztable.Options{}))
					sent := strings.Count(s.arrived(), ",") + 1
					if !op.change || c.harmless {
						if err != nil || sent != 3 {
							t.Errorf("%s: %v after %d requests", op.name, err, sent)
						}
						return
					}
					if !errors.Is(err, table.ErrUnavailable) || sent != 1 {
						t.Errorf("%s: %v after %d requests", op.name, err, sent)
					}
				})
			}
		})
	}
}

// TestAnUnansweredChangeMayHaveTakenEffect (T-02): it is not sent again, and Modify does not send it again either.
func TestAnUnansweredChangeMayHaveTakenEffect(t *testing.T) {
	s := withEntity(t)
	channels := s.open(t, "Channels", aztable.Options{})
	before, err := channels.Get(t.Context(), someKey)
	if err != nil {
		t.Fatal(err)
	}
	s.arrived()
	s.setFault(func(op string) fault { return fault{unanswered: op == opUpdate} })
	_, err = table.Modify(t.Context(), channels, someKey, func(e *table.Entity) error { e.Properties["New"] = true; return nil }, nil)
	if !errors.Is(err, table.ErrUnavailable) || errors.Is(err, table.ErrPreconditionFailed) {
		t.Errorf("modify: %v", err)
	}
	if got := s.arrived(); got != "get, update" {
		t.Errorf("sent %q", got)
	}
	if now, err := channels.Get(t.Context(), someKey); err != nil || now.ETag == before.ETag || !now.Bool("New") {
		t.Errorf("the change had no effect: %v, %v", now, err)
	}
}

// TestNothingIsRepeatedWithoutRetryFor.
func TestNothingIsRepeatedWithoutRetryFor(t *testing.T) {
	s := withEntity(t)
	s.always(fault{status: 503, code: "ServerBusy"})
	for _, op := range operations {
		if err := op.call(t.Context(), s.open(t, "Channels", aztable.Options{RetryFor: -1})); !errors.Is(err, table.ErrUnavailable) || !strings.Contains(err.Error(), "more partitions") {
			t.Errorf("%s: %v", op.name, err)
		}
		if got := s.arrived(); strings.Contains(got, ",") {
			t.Errorf("%s sent %q", op.name, got)
		}
	}
}

// TestRequestsAreRepeatedForRetryFor: not longer, and with growing waits.
func TestRequestsAreRepeatedForRetryFor(t *testing.T) {
	for _, op := range operations {
		synctest.Test(t, func(t *testing.T) {
			s := withEntity(t)
			s.always(fault{status: 503, code: "ServerBusy"})
			before := time.Now()
			err := op.call(t.Context(), s.open(t, "Channels", aztable.Options{RetryFor: time.Minute}))
			if d := time.Since(before); !errors.Is(err, table.ErrUnavailable) || d < 50*time.Second || d > time.Minute {
				t.Errorf("%s: after %v: %v", op.name, d, err)
			}
			if n := strings.Count(s.arrived(), ",") + 1; n < 10 || n > 25 {
				t.Errorf("%s was tried %d times in a minute", op.name, n)
			}
		})
	}
}

// TestAnEmulatorThatIsNotThereIsReportedWithinTwoSeconds, and any other service that is not there after RetryFor.
func TestAnEmulatorThatIsNotThereIsReportedWithinTwoSeconds(t *testing.T) {
	for location, most := range map[string]time.Duration{
		"UseDevelopmentStorage=true":            2 * time.Second,
		keyLocation("http://127.0.0.1:1"):       2 * time.Minute,
		"AccountName=a;AccountKey=c2VjcmV0Cg==": 2 * time.Minute,
	} {
		for _, op := range operations {
			synctest.Test(t, func(t *testing.T) {
				s := withEntity(t)
				s.always(fault{err: errDial})
				begun := time.Now()
				err := op.call(t.Context(), openAt(t, location, &aztable.Options{Transport: s}))
				took := time.Since(begun)
				if !errors.Is(err, table.ErrUnavailable) || took < most/2 || took > most {
					t.Errorf("%s at %s: got %v after %v, want an error after %v to %v", op.name, location, err, took, most/2, most)
				}
				if most < time.Minute && !strings.Contains(err.Error(), "start Azurite's table service there (azurite-table), or use a directory") {
					t.Errorf("%s: got %v, want what to do", op.name, err)
				}
			})
		}
	}
}

// TestATableThatCannotBeCreated: an insertion fails as the creation does, and is repeated as it is.
func TestATableThatCannotBeCreated(t *testing.T) {
	for name, c := range map[string]struct {
		f    fault
		kind error
		sent string
	}{
		"forbidden":     {fault{status: 403, code: "AuthorizationPermissionMismatch"}, table.ErrUnauthorized, "insert, create"},
		"being deleted": {fault{status: 409, code: "TableBeingDeleted"}, table.ErrUnavailable, "insert, create, insert, create"},
		"no answer":     {fault{err: errCut}, table.ErrUnavailable, "insert, create, insert, create"},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newService()
			s.setFault(func(op string) fault {
				if op == opCreate {
					return c.f
				}
				return fault{}
			})
			// The first wait is 75 ms at least, so there is room for one.
			_, err := s.open(t, "Channels", aztable.Options{RetryFor: 130 * time.Millisecond}).Insert(t.Context(), someEntity())
			if !errors.Is(err, c.kind) || !strings.Contains(err.Error(), "could not be created") {
				t.Errorf("%s: %v", name, err)
			}
			if got := s.arrived(); got != c.sent {
				t.Errorf("%s: sent %q", name, got)
			}
		})
	}
}

// TestATableThatIsDeletedAtOnce is created again, not found missing.
func TestATableThatIsDeletedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService()
		s.setFault(func(op string) fault {
			if op == opInsert {
				return fault{status: 404, code: "TableNotFound"}
			}
			return fault{}
		})
		_, err := s.open(t, "Channels", aztable.Options{RetryFor: time.Second}).Insert(t.Context(), someEntity())
		if !errors.Is(err, table.ErrUnavailable) || errors.Is(err, table.ErrMissing) || !strings.Contains(err.Error(), "deleted as soon as") {
			t.Errorf("insert: %v", err)
		}
		if got := s.arrived(); !strings.HasPrefix(got, "insert, create, insert, insert, create, insert") {
			t.Errorf("sent %q", got)
		}
	})
}

// TestNothingIsSentAfterTheEndOfTheContext.
func TestNothingIsSentAfterTheEndOfTheContext(t *testing.T) {
	s := withEntity(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, op := range operations {
		if err := op.call(ctx, s.open(t, "Channels", aztable.Options{})); !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "nothing was sent") {
			t.Errorf("%s: %v", op.name, err)
		}
	}
	if got := s.arrived(); got != "" {
		t.Errorf("sent %q", got)
	}
}

// TestTimeOutsAndEndsOfContexts.
func TestTimeOutsAndEndsOfContexts(t *testing.T) {
	for _, op := range operations {
		synctest.Test(t, func(t *testing.T) {
			s := withEntity(t)
			s.always(fault{hangs: true})
			before := time.Now()
			err := op.call(t.Context(), s.open(t, "Channels", aztable.Options{RetryFor: -1, TryTimeout: 5 * time.Second}))
			if !errors.Is(err, table.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "no response within 5s") {
				t.Errorf("%s: %v", op.name, err)
			}
			if d := time.Since(before); d != 5*time.Second {
				t.Errorf("%s took %v", op.name, d)
			}
			why := errors.New("the worker stops")
			for name, f := range map[string]fault{"during a try": {hangs: true}, "during a wait": {err: errDial}} {
				s.always(f)
				ctx, cancel := context.WithCancelCause(t.Context())
				time.AfterFunc(time.Second, func() { cancel(why) })
				if err := op.call(ctx, s.open(t, "Channels", aztable.Options{})); !errors.Is(err, why) || !errors.Is(err, context.Canceled) || table.Transient(err) {
					t.Errorf("%s, %s: %v", op.name, name, err)
				}
				ctx, stop := context.WithTimeout(t.Context(), time.Second)
				if err := op.call(ctx, s.open(t, "Channels", aztable.Options{})); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("%s, %s: %v", op.name, name, err)
				}
				stop()
			}
		})
	}
}

// TestARepeatedRequestMayTakeLonger: twice as long, then four times.
func TestARepeatedRequestMayTakeLonger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := withEntity(t)
		s.always(fault{hangs: true})
		before := time.Now()
		_, err := s.open(t, "Channels", aztable.Options{TryTimeout: 10 * time.Second, RetryFor: time.Minute}).Get(t.Context(), someKey)
		if d := time.Since(before).Truncate(time.Second); d != 70*time.Second || !strings.Contains(err.Error(), "no response within 40s") {
			t.Errorf("after %v: %v", d, err)
		}
	})
}

// TestResponseToAnotherRequestIsRefused: it may have another entity.
func TestResponseToAnotherRequestIsRefused(t *testing.T) {
	s := withEntity(t)
	channels, err := aztable.Open("UseDevelopmentStorage=true", "Channels", &aztable.Options{RetryFor: -1, Transport: transport(func(r *http.Request) (*http.Response, error) {
		resp, err := s.Do(r)
		resp.Header.Set("X-Ms-Client-Request-Id", "another")
		return resp, err
	})})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := channels.Get(t.Context(), someKey); !errors.Is(err, table.ErrUnavailable) || !strings.Contains(err.Error(), "another request") {
		t.Errorf("get: got %v, want ErrUnavailable", err)
	}
}

// transport is a policy.Transporter.
type transport func(*http.Request) (*http.Response, error)

func (f transport) Do(r *http.Request) (*http.Response, error) { return f(r) }
