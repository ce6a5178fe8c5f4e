package account

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"time"

	"github.com/millrace/millrace/internal/azurestorage"
	"github.com/millrace/millrace/stores"
	"github.com/millrace/millrace/table"
	"github.com/millrace/millrace/table/aztable"
	"github.com/millrace/millrace/table/filetable"
)

// Tables are the tables of an account.
type Tables struct {
	Place string // for people

	open  func(ctx context.Context, name string) (table.Store, error)
	close func() error
}

// Table opens a table. The first entity makes a table that does not exist.
func (t *Tables) Table(ctx context.Context, name string) (table.Store, error) {
	return t.open(ctx, name)
}

// Close closes all tables.
func (t *Tables) Close() error { return t.close() }

// OpenTables opens the tables of an account: those in the folder if one is given; temporary ones for an embedded account;
// the table service of an account in Azure or Azurite; and otherwise those in a folder for the account in the user's data
// directory. One process at a time has the tables of a folder.
func (p Program) OpenTables(ctx context.Context, a *Account, folder string) (*Tables, error) {
	switch {
	case folder != "":
		return openTables(folder)
	case a.endpoint != nil:
		return p.openTemporaryTables()
	}
	service, err := a.service(ctx, azurestorage.Table)
	if err != nil {
		return nil, err
	}
	if service != "" {
		return p.openTableService(a, service), nil
	}
	folder, err = p.FolderOf(a)
	if err != nil {
		return nil, fmt.Errorf("there is no folder for %s: %w; name one with -data", p.Tables, err)
	}
	return openTables(folder)
}

// openTables opens the tables in a folder, which is made if it does not exist.
func openTables(folder string) (*Tables, error) {
	set, err := stores.Tables(folder, nil)
	if errors.Is(err, filetable.ErrLocked) {
		return nil, fmt.Errorf("the tables in %s are in use by another process, and one at a time can have them: stop it, or use an account with a table service, in Azure or Azurite", folder)
	}
	if err != nil {
		return nil, fmt.Errorf("open the tables: %w", err)
	}
	return &Tables{
		Place: placeOf(folder), close: set.Close,
		open: func(_ context.Context, name string) (table.Store, error) { return set.Table(name) },
	}, nil
}

// openTemporaryTables opens tables in a folder that is removed when they are closed.
func (p Program) openTemporaryTables() (*Tables, error) {
	folder, err := os.MkdirTemp("", p.Name+"-")
	if err != nil {
		return nil, fmt.Errorf("make a temporary folder: %w", err)
	}
	t, err := openTables(folder)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(folder))
	}
	closeFile := t.close
	t.close = func() error { return errors.Join(closeFile(), os.RemoveAll(folder)) }
	return t, nil
}

// Times of the table service: the first request, for which a token may be needed, and how long later ones are
// repeated. A person may wait for them.
const (
	firstRequest = 30 * time.Second
	repeatTables = 3 * time.Second
)

// openTableService opens a table service. Opening a table checks that it can be read.
func (p Program) openTableService(a *Account, location string) *Tables {
	transport := &tableTransport{account: a, outage: outage{server: "table server", logger: a.outage.logger}}
	open := func(ctx context.Context, name string) (table.Store, error) {
		ctx, cancel := context.WithTimeout(ctx, firstRequest)
		defer cancel()
		once, err := aztable.Open(location, name, &aztable.Options{Transport: transport, RetryFor: -1})
		if err == nil {
			_, err = once.Get(ctx, table.Key{Partition: "any"})
		}
		if err != nil && !errors.Is(err, table.ErrMissing) {
			return nil, fmt.Errorf("the %s belong into the table service of the account, which cannot be used: %w; or name a folder with -data", p.Tables, err)
		}
		return aztable.Open(location, name, &aztable.Options{Transport: transport, RetryFor: repeatTables})
	}
	return &Tables{Place: "the table service of the account " + a.at.Account, open: open, close: func() error { return nil }}
}

// tableTransport sends requests to the table service, and notes whether it answers.
type tableTransport struct {
	account *Account
	outage  outage
}

// Do sends a request.
func (t *tableTransport) Do(r *http.Request) (*http.Response, error) {
	response, err := t.account.client.Do(r)
	t.outage.note(r.Context(), response, err)
	return response, err
}
