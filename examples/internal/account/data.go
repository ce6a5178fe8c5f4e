package account

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/millrace/millrace/blob"
	"github.com/millrace/millrace/blob/azureblob"
	"github.com/millrace/millrace/internal/azurestorage"
	"github.com/millrace/millrace/stores"
	"github.com/millrace/millrace/table"
	"github.com/millrace/millrace/table/aztable"
	"github.com/millrace/millrace/table/filetable"
)

// Program describes a program, and the data that it keeps in an account.
type Program struct {
	Name   string // such as mosaic; its folder in the user's data directory is millrace-mosaic
	Blobs  string // the content of the blobs, for people, such as pictures; "" without blobs
	Tables string // the content of the tables, for people, such as channels; "" without tables
	Flag   string // of the folder; -blobs by default
}

// home is where a program keeps its blobs or its tables: in a folder, or at a service.
type home struct {
	folder    string
	temporary bool
	service   string // the location of the service; "" for a folder
	place     string // for people on any machine
	what      string // is kept there, for people
	flag      string
}

// home chooses the folder if one is given; a temporary one for an embedded account; the service of an account in Azure or Azurite; and
// otherwise a folder for the account in the user's data directory, so that all processes of the program use the same one.
func (p Program) home(ctx context.Context, a *Account, folder, what string, s azurestorage.Service) (h home, err error) {
	h = home{folder: folder, what: what, flag: cmp.Or(p.Flag, "-blobs")}
	switch {
	case folder != "":
	case a.endpoint != nil:
		h.temporary = true
		if h.folder, err = os.MkdirTemp("", p.Name+"-"); err != nil {
			return h, fmt.Errorf("make a temporary folder: %w", err)
		}
	default:
		if h.service, err = a.service(ctx, s); err != nil {
			return h, err
		}
		if h.service != "" {
			h.place = fmt.Sprintf("the %s service of the account %s", s.Name, a.at.Account)
			return h, nil
		}
		if h.folder, err = p.FolderOf(a); err != nil {
			return h, fmt.Errorf("there is no folder for %s: %w; name one with %s", what, err, h.flag)
		}
	}
	h.place = h.folder
	if absolute, err := filepath.Abs(h.folder); err == nil {
		h.place = absolute
	}
	if host, err := os.Hostname(); err == nil {
		h.place += " on " + host
	}
	return h, nil
}

// unusable explains an error of a service.
func (h home) unusable(err error, instead string) error {
	return fmt.Errorf("the %s belong into %s, which cannot be used: %w; or %s with %s", h.what, h.place, err, instead, h.flag)
}

// leave removes a temporary folder, after the files in it are closed.
func (h home) leave(closed error) error {
	if !h.temporary {
		return closed
	}
	return errors.Join(closed, os.RemoveAll(h.folder))
}

// firstRequest bounds the first request to a service, which may have to get a token.
const firstRequest = 30 * time.Second

// Blobs is the store of an account.
type Blobs struct {
	Store blob.Store
	Place string // for people on any machine
	Here  string // for people on this one
	home  home
	close func() error
}

// Close closes the store, and deletes a temporary one.
func (b *Blobs) Close() error { return b.home.leave(b.close()) }

// OpenBlobs opens the store of an account. It sends one request to a service. An embedded account has its blobs in files too,
// because large ones need too much memory.
func (p Program) OpenBlobs(ctx context.Context, a *Account, folder string) (*Blobs, error) {
	h, err := p.home(ctx, a, folder, p.Blobs, azurestorage.Blob)
	if err != nil {
		return nil, err
	}
	b := &Blobs{home: h, Place: h.place, Here: cmp.Or(h.folder, h.place)}
	if h.service == "" {
		dir, err := blob.Open(h.folder)
		if err != nil {
			return nil, h.leave(err)
		}
		b.Store, b.close = dir, dir.Close
		return b, nil
	}
	ctx, cancel := context.WithTimeout(ctx, firstRequest)
	defer cancel()
	once, err := azureblob.Open(h.service, &azureblob.Options{RetryFor: -1})
	if err == nil {
		_, err = blob.Exists(ctx, once, blob.Ref{Container: "store", Name: "id"})
		_ = once.Close() // its error is always nil
	}
	if err != nil {
		return nil, h.unusable(err, "give all programs on the account the same folder")
	}
	store, err := azureblob.Open(h.service, nil)
	if err != nil {
		return nil, err
	}
	b.Store, b.close = store, store.Close
	return b, nil
}

// Tables are the tables of an account.
type Tables struct {
	Place string // for people

	home  home
	open  func(ctx context.Context, name string) (table.Store, error)
	close func() error
}

// Table opens a table. The first entity makes a table that does not exist.
func (t *Tables) Table(ctx context.Context, name string) (table.Store, error) {
	return t.open(ctx, name)
}

// Close closes all tables, and deletes temporary ones.
func (t *Tables) Close() error { return t.home.leave(t.close()) }

// repeatTables is how long requests to tables are repeated. A person may wait for them.
const repeatTables = 3 * time.Second

// OpenTables opens the tables of an account. One process at a time has the tables of a folder. Opening a table of a service checks that it can
// be read.
func (p Program) OpenTables(ctx context.Context, a *Account, folder string) (*Tables, error) {
	h, err := p.home(ctx, a, folder, p.Tables, azurestorage.Table)
	if err != nil {
		return nil, err
	}
	t := &Tables{Place: h.place, home: h}
	if h.service == "" {
		set, err := stores.OpenTables(h.folder, nil)
		if errors.Is(err, filetable.ErrLocked) {
			return nil, fmt.Errorf("the tables in %s are in use by another process, and one at a time can have them: stop it, or use an account with a table service, in Azure or Azurite", h.folder)
		}
		if err != nil {
			return nil, h.leave(fmt.Errorf("open the tables: %w", err))
		}
		t.open = func(_ context.Context, name string) (table.Store, error) { return set.Table(name) }
		t.close = set.Close
		return t, nil
	}
	transport := &tableTransport{account: a, outage: outage{server: "table server", logger: a.outage.logger}}
	t.open = func(ctx context.Context, name string) (table.Store, error) {
		ctx, cancel := context.WithTimeout(ctx, firstRequest)
		defer cancel()
		once, err := aztable.Open(h.service, name, &aztable.Options{Transport: transport, RetryFor: -1})
		if err == nil {
			_, err = once.Get(ctx, table.Key{Partition: "any"})
		}
		if err != nil && !errors.Is(err, table.ErrMissing) {
			return nil, h.unusable(err, "name a folder")
		}
		return aztable.Open(h.service, name, &aztable.Options{Transport: transport, RetryFor: repeatTables})
	}
	t.close = func() error { return nil }
	return t, nil
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

// With opens the account of a flag and its blobs, and closes both when work has returned.
func (p Program) With(ctx context.Context, flag Flag, folder string, logger *slog.Logger, work func(*Account, *Blobs) error) (err error) {
	location, err := flag.Location()
	if err != nil {
		return err
	}
	a, err := Open(location, logger)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, a.Close()) }()
	b, err := p.OpenBlobs(ctx, a, folder)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	return work(a, b)
}

// service returns the location of another service of the account, or "" if the account does not have it.
func (a *Account) service(ctx context.Context, s azurestorage.Service) (string, error) {
	lower := strings.ToLower(strings.TrimSpace(a.location))
	switch {
	case strings.Contains(lower, s.Name+"endpoint="):
		return a.location, nil
	case strings.HasPrefix(lower, "http"): // of the queue service
		if location := s.Of(a.location); location != a.location {
			return location, nil
		}
		return "", nil
	case strings.Contains(lower, "queueendpoint="): // and no endpoint of that service
		return "", nil
	case !strings.Contains(lower, "usedevelopmentstorage="):
		return a.location, nil // a connection string of Azure
	}
	// Azurite and millrace serve have the same location. Only Azurite has other services too.
	server, err := a.Server(ctx)
	if err != nil || !strings.HasPrefix(server, "Azurite") {
		return "", err
	}
	return a.location, nil
}

// FolderOf returns the folder for an account in the user's data directory: its name, and its address unless that is the
// usual one.
func (p Program) FolderOf(a *Account) (string, error) {
	data, err := p.Folder()
	if err != nil {
		return "", err
	}
	return filepath.Join(data, "accounts", folderName(a.at)), nil
}

func folderName(at azurestorage.Location) string {
	u, err := url.Parse(at.Endpoint)
	if err != nil {
		return at.Account
	}
	host := strings.ToLower(u.Host)
	host = strings.Replace(host, "localhost", "127.0.0.1", 1)
	if host == "127.0.0.1:"+azurestorage.Queue.Port || strings.HasPrefix(host, strings.ToLower(at.Account)+".") {
		return strings.ToLower(at.Account)
	}
	// Colons and brackets have a meaning in some file systems.
	return strings.ToLower(at.Account) + "@" + strings.NewReplacer(":", "-", "[", "", "]", "").Replace(host)
}

// Folder returns the folder of the program in the user's data directory.
func (p Program) Folder() (string, error) {
	name := "millrace-" + p.Name
	if dir := os.Getenv("XDG_DATA_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, name), nil
	}
	if dir := os.Getenv("LOCALAPPDATA"); runtime.GOOS == "windows" && dir != "" {
		return filepath.Join(dir, name), nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", err
	}
	if runtime.GOOS == "darwin" {
		return filepath.Join(home, "Library", "Application Support", name), nil
	}
	return filepath.Join(home, ".local", "share", name), nil
}
