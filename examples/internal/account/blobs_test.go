package account

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millrace/millrace/examples/internal/cli"
	"github.com/millrace/millrace/internal/azurestorage"
	"github.com/millrace/millrace/internal/azuritetest"
)

// testProgram is a program with blobs and tables.
var testProgram = Program{Name: "photos", Blobs: "pictures", Tables: "albums", Flag: "-data"}

const keyOfAnyone = "AccountKey=" + azuritetest.Key

func TestEveryAccountHasAFolderOfItsOwn(t *testing.T) {
	t.Parallel()
	for location, want := range map[string]string{
		LocalServer: "devstoreaccount1",
		"AccountName=devstoreaccount1;" + keyOfAnyone + ";QueueEndpoint=http://127.0.0.1:10001/devstoreaccount1": "devstoreaccount1",
		"AccountName=devstoreaccount1;" + keyOfAnyone + ";QueueEndpoint=http://localhost:10001/devstoreaccount1": "devstoreaccount1",
		"AccountName=devstoreaccount1;" + keyOfAnyone + ";QueueEndpoint=http://127.0.0.1:4711/devstoreaccount1":  "devstoreaccount1@127.0.0.1-4711",
		"AccountName=Photos;" + keyOfAnyone + ";QueueEndpoint=http://[::1]:4711/Photos":                          "photos@--1-4711",
		"https://photos.queue.core.windows.net":                                                                  "photos",
	} {
		at, err := azurestorage.Queue.Parse(location)
		if err != nil {
			t.Fatal(err)
		}
		got := folderName(at)
		if got != want {
			t.Errorf("%s: got %s, want %s", location, got, want)
		}
	}
}

func TestTheDataFolderIsTheUsers(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HOME", home)
	t.Setenv("XDG_DATA_HOME", "relative") // must be absolute to count
	got, err := testProgram.Folder()
	if err != nil || !strings.HasPrefix(got, home) && os.Getenv("LOCALAPPDATA") == "" || filepath.Base(got) != "millrace-photos" {
		t.Errorf("got %s, %v; want a folder in %s", got, err, home)
	}
	t.Setenv("XDG_DATA_HOME", filepath.Join(home, "data"))
	if got, err := testProgram.Folder(); err != nil || got != filepath.Join(home, "data", "millrace-photos") {
		t.Errorf("got %s, %v; want the folder in XDG_DATA_HOME", got, err)
	}
}

func TestALocationInAFileOrTheEnvironment(t *testing.T) {
	file := filepath.Join(t.TempDir(), "location")
	if err := os.WriteFile(file, []byte("AccountName=a;AccountKey=aaaa\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	many := filepath.Join(t.TempDir(), "many")
	if err := os.WriteFile(many, []byte("SECRET\nSECRET\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		given, variable, want string
	}{
		{"", "", LocalServer}, {"x", "y", "x"}, {"", " y ", "y"}, {"@" + file, "", "AccountName=a;AccountKey=aaaa"}, {"", "@" + file, "AccountName=a;AccountKey=aaaa"},
	} {
		t.Setenv(Variable, c.variable)
		if got, err := (Flag{c.given}).Location(); err != nil || got != c.want {
			t.Errorf("%+v: got %q, %v; want %q", c, got, err, c.want)
		}
	}
	for _, given := range []string{"@", "@" + many, "@" + filepath.Dir(many), "@" + many + "x"} {
		got, err := (Flag{given}).Location()
		if wrong, ok := err.(*cli.UsageError); !ok || strings.Contains(wrong.Error(), "SECRET") { //nolint:errorlint // it is not wrapped
			t.Errorf("%s: got %q, %v; want a usage error without the content", given, got, err)
		}
	}
}
