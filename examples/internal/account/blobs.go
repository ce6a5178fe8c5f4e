package account

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/millrace/millrace/blob"
	"github.com/millrace/millrace/blob/azureblob"
	"github.com/millrace/millrace/internal/azurestorage"
)

// Program says whose blobs and tables an account has.
type Program struct {
	Name   string // such as mosaic; its folder in the user's data directory is millrace-mosaic
	Blobs  string // what the blobs are, for people, such as pictures; "" if there are none
	Tables string // what the tables hold, for people, such as channels; "" if there are none
}

// Blobs is the store of an account.
type Blobs struct {
	Store blob.Store
	Place string // for people on any machine
	Here  string // for people on this one
	close func() error
}

// Close closes the store, and deletes a temporary one.
func (b *Blobs) Close() error { return b.close() }

// OpenBlobs opens the store of an account: the folder if one is given; a temporary one for an embedded
// account; the blob service of an account in Azure or Azurite, after one request to it; and otherwise a
// folder for the account in the user's data directory, so that all processes of the program use the same one.
func (p Program) OpenBlobs(ctx context.Context, a *Account, folder string) (*Blobs, error) {
	switch {
	case folder != "":
		return openFolder(folder)
	case a.endpoint != nil:
		return p.openTemporary()
	}
	service, err := a.service(ctx, azurestorage.Blob)
	if err != nil {
		return nil, err
	}
	if service != "" {
		return p.openService(ctx, service, a.at.Account)
	}
	folder, err = p.FolderOf(a)
	if err != nil {
		return nil, fmt.Errorf("there is no folder for %s: %w; name one with -blobs", p.Blobs, err)
	}
	return openFolder(folder)
}

func openFolder(path string) (*Blobs, error) {
	store, err := blob.Dir(path)
	if err != nil {
		return nil, err
	}
	return &Blobs{Store: store, Place: placeOf(path), Here: path, close: store.Close}, nil
}

// openTemporary opens a store in files all the same, because large blobs need too much memory.
func (p Program) openTemporary() (*Blobs, error) {
	path, err := os.MkdirTemp("", p.Name+"-")
	if err != nil {
		return nil, fmt.Errorf("make a temporary folder: %w", err)
	}
	b, err := openFolder(path)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(path))
	}
	closeStore := b.close
	b.close = func() error { return errors.Join(closeStore(), os.RemoveAll(path)) }
	return b, nil
}

// openService opens a blob service, and checks that it can be read.
func (p Program) openService(ctx context.Context, location, account string) (*Blobs, error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second) // getting a token takes time
	defer cancel()
	once, err := azureblob.Open(location, &azureblob.Options{RetryFor: -1})
	if err == nil {
		_, err = blob.Exists(ctx, once, blob.Ref{Container: "store", Name: "id"})
		_ = once.Close() // its error is always nil
	}
	if err != nil {
		return nil, fmt.Errorf("the %s belong into the blob service of the account, which cannot be used: %w; or give all programs on the account the same folder with -blobs", p.Blobs, err)
	}
	store, err := azureblob.Open(location, nil)
	if err != nil {
		return nil, err
	}
	place := "the blob service of the account " + account
	return &Blobs{Store: store, Place: place, Here: place, close: store.Close}, nil
}

// placeOf describes a folder for people on any machine.
func placeOf(folder string) string {
	if absolute, err := filepath.Abs(folder); err == nil {
		folder = absolute
	}
	if host, err := os.Hostname(); err == nil {
		return folder + " on " + host
	}
	return folder
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

// folderName returns the name of the folder for an account.
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
