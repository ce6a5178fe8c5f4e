package aztable

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/millrace/millrace/internal/azurestorage"
	"github.com/millrace/millrace/internal/serviceerror"
	"github.com/millrace/millrace/table"
)

// exchange is one request and what is read from its response.
type exchange struct {
	// send calls a method of aztables, whose error is an [*answer] if the service did what it was asked for.
	send func(try context.Context) error

	statuses []int
	read     func(a *answer) error // nil if the status says it all
}

// once sends one request with a context that ends after TryTimeout.
func (t *Table) once(ctx context.Context, x exchange) error {
	try, timeout, cancel := t.limits.Try(ctx)
	defer cancel()
	err := x.send(try)
	if a := (*answer)(nil); errors.As(err, &a) {
		if err = a.check(x.statuses...); err == nil && x.read != nil {
			err = x.read(a)
		}
	}
	if err != nil {
		return t.translate(ctx, try, timeout, err)
	}
	return nil
}

// read sends a request that changes nothing, and repeats it while it fails for a while.
func (t *Table) read(ctx context.Context, k table.Key, bad error, x exchange) error {
	if err := ready(ctx, bad); err != nil {
		return err
	}
	gaveUp, err := t.limits.Repeat(ctx, k.String(), table.Transient, func(ctx context.Context) error { return t.once(ctx, x) })
	return explainEnd(ctx, gaveUp, err)
}

// change sends a request that changes entities. It is repeated only while it is known not to have been carried out: a
// conditional change that took effect without an answer would otherwise fail on its own success. If the
// table does not exist and create is set, change creates the table first.
func (t *Table) change(ctx context.Context, k table.Key, bad error, create bool, x exchange) error {
	if err := ready(ctx, bad); err != nil {
		return err
	}
	harmless := false // the last try had no effect
	gaveUp, err := t.limits.Repeat(ctx, k.String(), func(error) bool { return harmless }, func(ctx context.Context) error {
		err := t.once(ctx, x)
		if create && hasCode(err, codeTableNotFound) {
			if err := t.create(ctx); err != nil {
				harmless = table.Transient(err)
				return err
			}
			if err = t.once(ctx, x); hasCode(err, codeTableNotFound) {
				harmless = true
				return afresh(err, table.ErrUnavailable, "the table was deleted as soon as it was created")
			}
		}
		harmless = notCarriedOut(err)
		return err
	})
	return explainEnd(ctx, gaveUp, err)
}

// create creates the table, which may have been created meanwhile.
func (t *Table) create(ctx context.Context) error {
	err := t.once(ctx, exchange{
		send: func(try context.Context) error {
			_, err := t.client.CreateTable(try, nil)
			return err
		},
		statuses: []int{http.StatusCreated, http.StatusNoContent},
	})
	if hasCode(err, codeTableExists) {
		return nil
	}
	return afresh(err, nil, "the table does not exist and could not be created")
}

// afresh returns an error of a request with what it means for the call, and with another kind unless that is nil.
func afresh(err error, kind error, meaning string) error {
	known := (*table.Error)(nil)
	if !errors.As(err, &known) {
		return err
	}
	e := *known
	if kind != nil {
		e.Kind = kind
	}
	if e.Detail != "" {
		meaning += ": " + e.Detail
	}
	e.Detail = meaning
	return &e
}

// ready returns why a call must not begin. bad is what is wrong with its arguments.
func ready(ctx context.Context, bad error) error {
	if bad != nil {
		return bad
	}
	if ctx.Err() != nil {
		return &table.Error{Detail: "nothing was sent", Err: serviceerror.Ended(ctx)}
	}
	return nil
}

// explainEnd returns the error of a call that the end of its context ended between two tries.
func explainEnd(ctx context.Context, gaveUp bool, err error) error {
	if gaveUp {
		return &table.Error{Detail: fmt.Sprintf("gave up after: %v", err), Err: serviceerror.Ended(ctx)}
	}
	return err
}

// The storage error codes that calls decide by.
const (
	codeTableNotFound     = "TableNotFound"
	codeTableExists       = "TableAlreadyExists"
	codeTableBeingDeleted = "TableBeingDeleted"
	codeServerBusy        = "ServerBusy"
)

// busyHint says what helps against throttling. The figures are those of "Scalability and performance targets for Table
// storage".
const busyHint = "send less at once, or spread the entities over more partitions: a partition takes up to 2,000 entities of 1 KiB a second, an account 20,000"

// failures are what requests fail with. The codes are those of the Table service REST API, "Table service error codes",
// and of "Common REST API error codes".
var failures = azurestorage.Failures{
	Unavailable: table.ErrUnavailable, Unauthorized: table.ErrUnauthorized, Invalid: table.ErrInvalid,
	Role: "Storage Table Data Contributor",
	What: "table service",
	Known: map[string]azurestorage.Meaning{
		"ResourceNotFound":            {Kind: table.ErrMissing},
		"EntityNotFound":              {Kind: table.ErrMissing},
		codeTableNotFound:             {Kind: table.ErrMissing},
		"EntityAlreadyExists":         {Kind: table.ErrExists},
		"UpdateConditionNotSatisfied": {Kind: table.ErrPreconditionFailed},
		"ConditionNotMet":             {Kind: table.ErrPreconditionFailed},
		codeTableBeingDeleted:         {Kind: table.ErrUnavailable, Hint: "wait until the table is deleted, which takes 40 s at least, or use another name"},
		codeServerBusy:                {Kind: table.ErrUnavailable, Hint: busyHint},
		"EntityTooLarge":              {Kind: table.ErrTooLarge, Hint: "store the content in a blob"},
		"PropertyValueTooLarge":       {Kind: table.ErrTooLarge, Hint: "store the content in a blob"},
		"TooManyProperties":           {Kind: table.ErrTooLarge},
		"KeyValueTooLarge":            {Kind: table.ErrTooLarge},
		"RequestBodyTooLarge":         {Kind: table.ErrTooLarge, Hint: "apply the changes in several groups"},
		"ContentLengthExceeded":       {Kind: table.ErrTooLarge, Hint: "apply the changes in several groups"},
		"NotImplemented":              {Kind: table.ErrInvalid, Hint: "the server has no such operation: use a general-purpose account"},
	},
}

// translate turns an error of aztables into a [*table.Error] without secrets. ctx is the caller's context, try the one
// that ends after timeout.
func (t *Table) translate(ctx, try context.Context, timeout time.Duration, err error) error {
	f := t.location.Failure(ctx, try, timeout, err, failures)
	if f.Status == http.StatusTooManyRequests && f.Hint == "" {
		f.Hint = busyHint
	}
	return &table.Error{Kind: f.Kind, Status: f.Status, Code: f.Code, RequestID: f.RequestID, Detail: f.Detail, Hint: f.Hint, Err: f.Err}
}

// hasCode reports whether the service refused a request with a storage error code.
func hasCode(err error, code string) bool {
	known := (*table.Error)(nil)
	return errors.As(err, &known) && known.Code == code
}

// notCarriedOut reports whether a failed change is known to have had no effect, and may have one later.
func notCarriedOut(err error) bool {
	known := (*table.Error)(nil)
	if !table.Transient(err) || !errors.As(err, &known) {
		return false
	}
	return known.Code == codeServerBusy || known.Code == codeTableBeingDeleted || known.Status == http.StatusTooManyRequests ||
		known.Status == 0 && azurestorage.NeverSent(known.Err)
}
