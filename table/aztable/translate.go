package aztable

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/millrace/millrace/internal/azurestorage"
	"github.com/millrace/millrace/table"
)

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
