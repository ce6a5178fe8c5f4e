package table_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/millrace/millrace/table"
)

var ann = table.Key{Partition: "owners", Row: "ann"}

func TestErrorsAsText(t *testing.T) {
	for want, err := range map[string]*table.Error{
		`update people "owners/ann": entity was changed since it was read`: {Op: "update", Table: "people", Key: ann, Kind: table.ErrPreconditionFailed},
		`query people "owners/": store unavailable: the request was not answered (503 ServerBusy, request 1-2); try again`: {
			Op: "query", Table: "people", Key: table.Key{Partition: "owners"}, Kind: table.ErrUnavailable, Status: 503, Code: "ServerBusy", RequestID: "1-2",
			Detail: "the request was not answered", Hint: "try again",
		},
		`get people: context canceled`: {Op: "get", Table: "people", Err: context.Canceled},
		`two lines`:                    {Detail: "two\r\n\nlines\n"},
		`apply people "owners/a\nb": invalid argument (400)`: {Op: "apply", Table: "people", Key: table.Key{Partition: "owners", Row: "a\nb"}, Kind: table.ErrInvalid, Status: 400},
		``: {},
	} {
		if got := err.Error(); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
	long := (&table.Error{Op: "get", Table: "people", Key: table.Key{Partition: strings.Repeat("k", 1<<20)}, Kind: table.ErrTooLarge}).Error()
	if len(long) > 300 {
		t.Errorf("a bad key makes an error of %d bytes", len(long))
	}
}

func TestErrorsAreFound(t *testing.T) {
	e := &table.Error{Kind: table.ErrUnavailable, Err: context.DeadlineExceeded}
	if !errors.Is(e, table.ErrUnavailable) || !errors.Is(e, context.DeadlineExceeded) || errors.Is(e, table.ErrExists) {
		t.Errorf("%v is not what it is", e)
	}
	if errors.Is(&table.Error{}, table.ErrUnavailable) {
		t.Error("an empty error is something")
	}
	for err, want := range map[error]bool{e: true, table.ErrUnavailable: true, table.ErrExists: false, context.DeadlineExceeded: false, nil: false} {
		if table.Transient(err) != want {
			t.Errorf("%v is transient: %v", err, !want)
		}
	}
}

func TestExplain(t *testing.T) {
	if err := table.Explain("get", "people", ann, nil); err != nil {
		t.Errorf("no error is %v", err)
	}
	bare := &table.Error{Kind: table.ErrInvalid, Detail: "no", Hint: "yes", Status: 400}
	named := &table.Error{Kind: table.ErrExists, Key: table.Key{Partition: "owners", Row: "bob"}}
	done := &table.Error{Op: "get", Table: "others", Key: ann, Kind: table.ErrMissing}
	for want, err := range map[string]error{
		`insert people "owners/ann": invalid argument: no (400); yes`:                     bare,
		`insert people "owners/bob": entity already exists`:                               named,
		`insert people "owners/ann": context canceled`:                                    context.Canceled,
		`insert people "owners/ann": entity does not exist`:                               table.ErrMissing,
		`insert people "owners/ann": the file is broken: invalid argument: no (400); yes`: fmt.Errorf("the file is broken: %w", bare),
		`insert people "owners/ann": get others "owners/ann": entity does not exist`:      done,
		`insert people "owners/ann": one two`:                                             errors.Join(errors.New("one"), errors.New("two")),
	} {
		got := table.Explain("insert", "people", ann, err)
		known := (*table.Error)(nil)
		if got.Error() != want || !errors.As(got, &known) || known.Op != "insert" || known.Table != "people" {
			t.Errorf("got  %v\nwant %s", got, want)
		}
		if kind := errors.Unwrap(err); kind != nil && !errors.Is(got, kind) {
			t.Errorf("%v is no longer %v", got, kind)
		}
	}
	if bare.Op != "" || named.Op != "" || bare.Key != (table.Key{}) {
		t.Errorf("the arguments became %v and %v", bare, named)
	}
	for err, kind := range map[error]error{bare: table.ErrInvalid, named: table.ErrExists, done: table.ErrMissing, context.Canceled: context.Canceled} {
		if !errors.Is(table.Explain("insert", "people", ann, err), kind) {
			t.Errorf("%v is no longer %v", err, kind)
		}
	}
}
