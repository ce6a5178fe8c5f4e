package stores

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"

	"github.com/millrace/millrace/blob"
	"github.com/millrace/millrace/blob/azureblob"
	"github.com/millrace/millrace/internal/azurestorage"
	"github.com/millrace/millrace/internal/openfile"
	"github.com/millrace/millrace/table"
	"github.com/millrace/millrace/table/aztable"
	"github.com/millrace/millrace/table/filetable"
)

// Options configure [OpenBlobs] and [OpenTables]. Nil and the zero value mean the defaults.
type Options struct {
	// Credential authorizes requests to the address of an account without a signature. It has no
	// effect at other locations, so a program can set it for all of them. Defaults to azidentity's
	// DefaultAzureCredential.
	Credential azcore.TokenCredential
}

// credential returns the credential for a location of a service, or nil if the location has its own.
func (o *Options) credential(s azurestorage.Service, location string) azcore.TokenCredential {
	at, err := s.Parse(location)
	if o == nil || err != nil || at.Auth != azurestorage.TokenAuth {
		return nil
	}
	return o.Credential
}

// emptyHint is for a setting that was forgotten.
const emptyHint = "use the path of a directory, or the location of an account"

// BlobStore is an open blob store. It is safe for concurrent use.
type BlobStore struct {
	_ [0]sync.Mutex // go vet reports copies

	// Manager is the store: a [*blob.Directory] or an [*azureblob.Store].
	blob.Manager

	close func() error
}

// Close releases the directory or the idle connections.
func (s *BlobStore) Close() error { return s.close() }

// OpenBlobs opens the blobs at a location, as described in the package comment. The error is
// [blob.ErrInvalid] for an empty location or an invalid location of an account, which it does not
// repeat, or an error of the file system.
func OpenBlobs(location string, o *Options) (*BlobStore, error) {
	location = strings.TrimSpace(location)
	if location == "" {
		return nil, &blob.Error{Op: "open the blob store", Kind: blob.ErrInvalid, Detail: "the location is empty", Hint: emptyHint}
	}
	if !azurestorage.IsLocation(location) {
		d, err := blob.Open(location)
		if err != nil {
			return nil, err
		}
		return &BlobStore{Manager: d, close: d.Close}, nil
	}
	location = azurestorage.Blob.Of(location)
	s, err := azureblob.Open(location, &azureblob.Options{Credential: o.credential(azurestorage.Blob, location)})
	if err != nil {
		return nil, err
	}
	return &BlobStore{Manager: s, close: s.Close}, nil
}

// tablesFile is the file with the tables of a directory, and fileSuffix the end of the path of such
// a file.
const (
	tablesFile = "tables.db"
	fileSuffix = ".db"
)

// TableSet is the tables at a location, opened by [OpenTables]. It is safe for concurrent use.
type TableSet struct {
	_ [0]sync.Mutex // go vet reports copies

	table func(name string) (table.Store, error)
	close func() error
}

// Table returns a table. It sends no request: the first insertion creates a table that does not
// exist. A name has 3 to 63 letters and digits and begins with a letter; other names fail with
// [table.ErrInvalid]. Upper and lower case are the same.
func (t *TableSet) Table(name string) (table.Store, error) { return t.table(name) }

// Close closes the file after the changes in progress, or closes the idle connections. Errors come
// from the file only.
func (t *TableSet) Close() error { return t.close() }

// OpenTables opens the tables at a location, as described in the package comment. The error is
// [table.ErrInvalid] for an empty location or an invalid location of an account, which it does not
// repeat, [filetable.ErrLocked] if another process has the tables of the directory open, or another
// error of [filetable.Open] or of the file system.
func OpenTables(location string, o *Options) (*TableSet, error) {
	location = strings.TrimSpace(location)
	if location == "" {
		return nil, &table.Error{Op: "open the tables", Kind: table.ErrInvalid, Detail: "the location is empty", Hint: emptyHint}
	}
	if !azurestorage.IsLocation(location) {
		return openFile(location)
	}
	return openAccount(azurestorage.Table.Of(location), o)
}

func openFile(path string) (*TableSet, error) {
	info, err := os.Stat(path)
	isFile := err == nil && info.Mode().IsRegular() || err != nil && strings.HasSuffix(path, fileSuffix)
	if !isFile {
		if err := openfile.MakeDirectory(os.Open, path, 0o700); err != nil {
			return nil, fmt.Errorf("open the tables in %s: %w", path, err)
		}
		path = filepath.Join(path, tablesFile)
	}
	db, err := filetable.Open(path, nil)
	if err != nil {
		return nil, err
	}
	return &TableSet{table: db.Table, close: db.Close}, nil
}

// openAccount gives all tables the connections of one client.
func openAccount(location string, o *Options) (*TableSet, error) {
	at, err := azurestorage.Table.Parse(location)
	checked := "Any"
	if err == nil && at.Resource != "" { // the location is of this table alone
		checked = at.Resource
	}
	client := azurestorage.NewClient(azurestorage.Limits{}.WithDefaults(at).Connections)
	options := &aztable.Options{Transport: client, Credential: o.credential(azurestorage.Table, location)}
	if _, err := aztable.Open(location, checked, options); err != nil {
		return nil, err
	}
	return &TableSet{
		table: func(name string) (table.Store, error) {
			t, err := aztable.Open(location, name, options)
			if err != nil {
				return nil, err
			}
			return t, nil
		},
		close: func() error { client.CloseIdleConnections(); return nil },
	}, nil
}
