package millrace_test

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"github.com/millrace/millrace/blob"
	"github.com/millrace/millrace/blob/azureblob"
	"github.com/millrace/millrace/emulator"
	"github.com/millrace/millrace/internal/azuritetest"
	"github.com/millrace/millrace/stores"
	"github.com/millrace/millrace/table"
	"github.com/millrace/millrace/table/filetable"
)

// storesProgram stores a blob and an entity at a location, and reads them with stores opened anew.
func storesProgram(t *testing.T, location string, o *stores.Options) {
	t.Helper()
	ref, key := blob.Ref{Container: "reports", Name: "a/b"}, table.Key{Partition: "p", Row: "r"}
	for _, store := range []bool{true, false} {
		blobs, err := stores.OpenBlobs(location, o)
		if err != nil {
			t.Fatal(err)
		}
		defer blobs.Close()
		tables, err := stores.OpenTables(location, o)
		if err != nil {
			t.Fatal(err)
		}
		reports, err := tables.Table("Reports")
		if err != nil {
			t.Fatal(err)
		}
		if store {
			if err := blobs.Put(t.Context(), ref, strings.NewReader("content"), nil); err != nil {
				t.Fatal(err)
			}
			if _, err := reports.Insert(t.Context(), table.Entity{Key: key, Properties: map[string]any{"N": int64(1)}}); err != nil {
				t.Fatal(err)
			}
		}
		r, err := blobs.Open(t.Context(), ref)
		if err != nil {
			t.Fatal(err)
		}
		if data, err := io.ReadAll(r); err != nil || string(data) != "content" {
			t.Errorf("blob: got %q, %v; want content", data, err)
		}
		r.Close()
		if e, err := reports.Get(t.Context(), key); err != nil || e.Int("N") != 1 {
			t.Errorf("entity: got %+v, %v; want N = 1", e, err)
		}
		if err := tables.Close(); err != nil {
			t.Errorf("close the tables: %v", err)
		}
	}
}

// azuriteAccount returns the connection string of an Azurite with blobs and tables.
func azuriteAccount(t *testing.T) string {
	t.Helper()
	if testing.Short() {
		t.Skip("starts two servers")
	}
	_, tables, _ := strings.Cut(azuritetest.TableConnectionString(t), "TableEndpoint=")
	return azuritetest.BlobConnectionString(t) + "TableEndpoint=" + tables
}

func TestADirectoryHoldsBlobsAndTables(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "data")
	t.Run("directory", func(t *testing.T) { storesProgram(t, dir, &stores.Options{Credential: noToken{}}) })
	t.Run("relative", func(t *testing.T) { t.Chdir(t.TempDir()); storesProgram(t, "data\n", nil) })
	for _, path := range []string{"reports/a+b", "tables.db"} {
		if info, err := os.Stat(filepath.Join(dir, path)); err != nil || !info.Mode().IsRegular() {
			t.Errorf("%s in the directory: got %v, %v; want a file", path, info, err)
		}
	}
}

// The same program, with another setting.
func TestAnAccountHoldsWhatADirectoryDoes(t *testing.T) {
	t.Parallel()
	storesProgram(t, azuriteAccount(t), &stores.Options{Credential: noToken{}})
}

// TestALinkToNowhereIsNamed: a volume that is not mounted, for example.
func TestALinkToNowhereIsNamed(t *testing.T) {
	t.Parallel()
	link := filepath.Join(t.TempDir(), "data")
	if err := os.Symlink("/nowhere/data", link); err != nil {
		t.Skip(err)
	}
	const want = "is a symbolic link to /nowhere/data, which does not exist"
	if _, err := stores.OpenTables(link, nil); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("tables: got %v, want where the link leads", err)
	}
	if _, err := stores.OpenBlobs(link, nil); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("blobs: got %v, want where the link leads", err)
	}
}

// TestADirectoryOfTablesIsPrivate: also its new parent, and also if its name looks like that of a
// file of tables.
func TestADirectoryOfTablesIsPrivate(t *testing.T) {
	t.Parallel()
	parent := filepath.Join(t.TempDir(), "new")
	dir := filepath.Join(parent, "dir.db")
	if tables, err := stores.OpenTables(dir+"/", nil); err != nil {
		t.Fatal(err)
	} else if err := tables.Close(); err != nil {
		t.Error(err)
	}
	if tables, err := stores.OpenTables(dir, nil); err != nil {
		t.Error(err)
	} else if err := tables.Close(); err != nil {
		t.Error(err)
	}
	for _, path := range []string{parent, dir, filepath.Join(dir, "tables.db")} {
		if info, err := os.Stat(path); err != nil || runtime.GOOS != "windows" && info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s: got %v, %v; want no access for others", path, info, err)
		}
	}
}

func TestTheTablesOfAFile(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for a lock")
	}
	t.Parallel()
	dir := t.TempDir()
	made := filepath.Join(dir, "made") // by a program that uses filetable, under any name
	db, err := filetable.Open(made, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{made, filepath.Join(dir, "new.db")} {
		for range 2 { // as a new file, and as one that exists
			tables, err := stores.OpenTables(path, nil)
			if err != nil {
				t.Fatal(err)
			}
			if err := tables.Close(); err != nil {
				t.Error(err)
			}
			if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() {
				t.Errorf("%s: got %v, %v; want a file", path, info, err)
			}
		}
	}
	tables, err := stores.OpenTables(made, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer tables.Close()
	if _, err := stores.OpenTables(made, nil); !errors.Is(err, filetable.ErrLocked) {
		t.Errorf("opened twice: got %v, want ErrLocked", err)
	}
	if _, err := stores.OpenBlobs(made, nil); err == nil || !strings.Contains(err.Error(), made) {
		t.Errorf("blobs in a file: got %v, want an error with its path", err)
	}
}

// A location that is not accepted must not become the name of a directory.
func TestInvalidLocationsAreRefused(t *testing.T) {
	t.Chdir(t.TempDir())
	const key = "AccountKey=c2VjcmV0"
	served := must(emulator.New(nil, nil)).ConnectionString()
	for location, want := range map[string]string{
		"":                             "the location is empty; use the path of a directory",
		"acct.queue.core.windows.net":  "neither a connection string nor an http address",
		"htps://acct.core.windows.net": "neither a connection string nor an http address",
		"file:///var/data":             "neither a connection string nor an http address",
		"AccountName=a;" + key + "!":   "not Base64",
		"AccountName = a; AccountKey = c2VjcmV0!": "not Base64",
		"?sv=1&sig=c2VjcmV0":                      "neither AccountName nor",
		served:                                    "or use a directory, as stores.",
		"https://a.queue.core.windows.net/orders?sv=1&sig=c2VjcmV0": "the location is the account's queue address",
	} {
		_, err := stores.OpenBlobs(location, nil)
		if !errors.Is(err, blob.ErrInvalid) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "c2VjcmV0") {
			t.Errorf("blobs at %q: got %v, want %q", location, err, want)
		}
		_, err = stores.OpenTables(location, nil)
		if !errors.Is(err, table.ErrInvalid) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "c2VjcmV0") {
			t.Errorf("tables at %q: got %v, want %q", location, err, want)
		}
	}
	if left, err := os.ReadDir("."); err != nil || len(left) > 0 {
		t.Errorf("made by invalid locations: got %v, %v; want nothing", left, err)
	}
}

// noToken is a credential without a token, so that nothing is sent.
type noToken struct{}

var errNoToken = errors.New("no token today")

func (noToken) GetToken(context.Context, policy.TokenRequestOptions) (azcore.AccessToken, error) {
	return azcore.AccessToken{}, errNoToken
}

// Queues, blobs and tables of an account have different addresses, and one setting.
func TestTheAddressOfAnyServiceLeadsToTheAccount(t *testing.T) {
	for _, location := range []string{"https://acct.queue.core.windows.net", "https://acct.blob.core.windows.net/", "https://acct.table.core.windows.net"} {
		o := &stores.Options{Credential: noToken{}}
		blobs, err := stores.OpenBlobs(location, o)
		if err != nil {
			t.Fatal(err)
		}
		if _, is := blobs.Manager.(*azureblob.Store); !is {
			t.Errorf("%s: got a %T, want an azureblob.Store", location, blobs.Manager)
		}
		if _, err := blobs.Stat(t.Context(), blob.Ref{Container: "reports", Name: "a"}); !errors.Is(err, blob.ErrUnauthorized) || !strings.Contains(err.Error(), errNoToken.Error()) {
			t.Errorf("%s: got %v, want the credential's error", location, err)
		}
		tables, err := stores.OpenTables(location, o)
		if err != nil {
			t.Fatal(err)
		}
		reports, err := tables.Table("Reports")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := reports.Get(t.Context(), table.Key{Partition: "a"}); !errors.Is(err, table.ErrUnauthorized) || !strings.Contains(err.Error(), errNoToken.Error()) {
			t.Errorf("%s: got %v, want the credential's error", location, err)
		}
		if err := errors.Join(blobs.Close(), tables.Close()); err != nil {
			t.Error(err)
		}
	}
}

// A program sets the credential for Azure, and keeps it on a laptop.
func TestACredentialIsIgnoredWhereTheLocationHasAKey(t *testing.T) {
	o := &stores.Options{Credential: noToken{}}
	for _, location := range []string{"UseDevelopmentStorage=true", "AccountName=a;AccountKey=c2VjcmV0"} {
		_, blobErr := stores.OpenBlobs(location, o)
		_, tableErr := stores.OpenTables(location, o)
		if err := errors.Join(blobErr, tableErr); err != nil {
			t.Errorf("%s: got %v, want nil", location, err)
		}
	}
}

func TestASignatureForOneTableOpensThatOne(t *testing.T) {
	tables, err := stores.OpenTables("https://acct.table.core.windows.net/Reports?sv=1&sig=x", nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tables.Table("Reports"); err != nil {
		t.Errorf("its table: got %v, want nil", err)
	}
	if _, err := tables.Table("Others"); !errors.Is(err, table.ErrInvalid) {
		t.Errorf("another table: got %v, want ErrInvalid", err)
	}
}
