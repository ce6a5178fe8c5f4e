package aztable

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/millrace/millrace/internal/azurestorage"
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
		return &table.Error{Detail: "nothing was sent", Err: azurestorage.ContextError(ctx)}
	}
	return nil
}

// explainEnd returns the error of a call that the end of its context ended between two tries.
func explainEnd(ctx context.Context, gaveUp bool, err error) error {
	if gaveUp {
		return &table.Error{Detail: fmt.Sprintf("gave up after: %v", err), Err: azurestorage.ContextError(ctx)}
	}
	return err
}
