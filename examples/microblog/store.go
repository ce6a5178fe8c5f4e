package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/millrace/millrace/emulator"
	"github.com/millrace/millrace/examples/internal/account"
	"github.com/millrace/millrace/examples/internal/cli"
	"github.com/millrace/millrace/examples/microblog/channels"
	"github.com/millrace/millrace/examples/microblog/roles"
	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/localqueue/filequeue"
	"github.com/millrace/millrace/table"
	"github.com/millrace/millrace/table/filetable"
)

// Names of the tables.
const (
	channelsTable = "Channels"
	postsTable    = "Blogs"
)

// store is where the program keeps its data.
type store struct {
	site      *channels.Site
	deletions queue.Queue
	wakeups   listener.Wakeups // nil in a folder: a poll costs nothing, and finds messages of workers that were killed at once
	place     string           // for people
	created   bool             // there was nothing before
	close     func() error
}

// Files in the folder of the data.
const (
	queuesFolder = "queues"
	tablesFile   = "tables.db"
)

// openFolder opens the queue and the tables in a folder, which one process at a time can.
func openFolder(folder string) (_ *store, err error) {
	engine, err := filequeue.Open(filepath.Join(folder, queuesFolder), nil)
	if errors.Is(err, filequeue.ErrLocked) {
		return nil, inUse(folder)
	}
	if err != nil {
		return nil, fmt.Errorf("open the data: %w; choose another folder with -data", err)
	}
	path := filepath.Join(folder, tablesFile)
	_, missing := os.Stat(path)
	db, err := filetable.Open(path, nil)
	if errors.Is(err, filetable.ErrLocked) {
		err = inUse(folder)
	}
	if err != nil {
		return nil, errors.Join(err, engine.Close())
	}
	s := &store{place: folder, created: errors.Is(missing, fs.ErrNotExist)}
	s.close = func() error { return errors.Join(db.Close(), engine.Close()) }
	if s.site, err = siteOf(db.Table); err != nil {
		return nil, errors.Join(err, s.close())
	}
	s.deletions = engine.Queue(queue.Name{Account: emulator.DevelopmentAccount, Queue: roles.QueueName})
	return s, nil
}

func inUse(folder string) error {
	return fmt.Errorf("the data in %s is in use: another microblog runs there; stop it, or choose another folder with -data", folder)
}

// openTemporary opens a new folder, which is removed when it is closed.
func openTemporary() (*store, error) {
	folder, err := os.MkdirTemp("", "microblog-")
	if err != nil {
		return nil, fmt.Errorf("make a temporary folder: %w", err)
	}
	s, err := openFolder(folder)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(folder))
	}
	closeFiles := s.close
	s.close = func() error { return errors.Join(closeFiles(), os.RemoveAll(folder)) }
	return s, nil
}

// openAccount opens the queue and the tables of an account. The tables are in the folder if one is given.
func openAccount(ctx context.Context, location, folder string, logger *slog.Logger) (_ *store, err error) {
	a, err := account.Open(location, logger)
	if err != nil {
		return nil, err
	}
	s := &store{close: a.Close, wakeups: a.Wakeups()}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	if _, err := a.Server(ctx); err != nil { // says what to do if there is none
		return nil, err
	}
	if s.deletions, err = a.Queue(roles.QueueName); err != nil {
		return nil, err
	}
	tables, err := program.OpenTables(ctx, a, folder)
	if err != nil {
		return nil, err
	}
	s.close = func() error { return errors.Join(tables.Close(), a.Close()) }
	s.place = fmt.Sprintf("queue at %s, tables in %s", a.Endpoint(), tables.Place)
	s.site, err = siteOf(func(name string) (table.Store, error) { return tables.Table(ctx, name) })
	return s, err
}

func siteOf(open func(name string) (table.Store, error)) (*channels.Site, error) {
	s := &channels.Site{}
	for name, t := range map[string]*table.Store{channelsTable: &s.Channels, postsTable: &s.Posts} {
		var err error
		if *t, err = open(name); err != nil {
			return nil, fmt.Errorf("open the table %s: %w", name, err)
		}
	}
	return s, nil
}

// storeFlags are the flags that say where the data is.
type storeFlags struct {
	account account.Flag
	data    string
}

const storeHelp = `  -data DIR          where the queue and the tables are kept, for one process at a time; with
                     an account, the tables alone
                     (default: a temporary folder; with an account in Azure or Azurite its table
                     service, and with another one a folder in your data directory)
  -account LOCATION  where the queue and the tables are (default: the environment variable
                     AZURE_STORAGE, or else in this process):
                       UseDevelopmentStorage=true    the server on this machine
                       a storage connection string
                       https://ACCOUNT.queue.core.windows.net
                       @FILE                         a file with one of them
`

// location returns the location of the account, or "" for none.
func (f *storeFlags) location() (string, error) {
	location, err := f.account.LocationOr("")
	if location == account.Embedded {
		location = ""
	}
	return location, err
}

// open opens the data, whose caller closes it.
func (f *storeFlags) open(ctx context.Context, logger *slog.Logger) (*store, error) {
	location, err := f.location()
	switch {
	case err != nil:
		return nil, err
	case location != "":
		return openAccount(ctx, location, f.data, logger)
	case f.data != "":
		folder, err := filepath.Abs(f.data)
		if err != nil {
			return nil, err
		}
		return openFolder(folder)
	}
	return openTemporary()
}

// exists returns a usage error unless the flags name data that may be there already.
func (f *storeFlags) exists(command string) error {
	location, err := f.location()
	switch {
	case err != nil:
		return err
	case f.data != "":
		if _, err := os.Stat(filepath.Join(f.data, tablesFile)); err != nil {
			return cli.UsageErrorf("-data %s has no microblog in it", f.data)
		}
	case location == "":
		return cli.UsageErrorf("%s needs -data or -account: without them there is nothing yet", command)
	}
	return nil
}
