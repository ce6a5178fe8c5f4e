package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/blob"
	"github.com/millrace/millrace/blob/azureblob"
	"github.com/millrace/millrace/codec/claimcheck"
	"github.com/millrace/millrace/internal/azuritetest"
	"github.com/millrace/millrace/internal/claimtext"
)

// keepBody puts a body of this size into a store, or the tombstone of one.
func keepBody(t *testing.T, s blob.Store, container, name string, size int, tombstone bool) blob.Ref {
	t.Helper()
	ref := blob.Ref{Container: container, Name: "bodies/" + name}
	if err := s.Put(t.Context(), ref, strings.NewReader(strings.Repeat("x", size)), nil); err != nil {
		t.Fatal(err)
	}
	if !tombstone {
		return ref
	}
	claims, err := claimcheck.New(s, container, nil)
	if err != nil {
		t.Fatal(err)
	}
	claim := claimtext.Claim{Ref: ref, Size: int64(size)}
	if err := claims.Settled(t.Context(), claim.String()); err != nil {
		t.Fatal(err)
	}
	return ref
}

// bodiesDir returns a directory with what docs/bodies.md shows.
func bodiesDir(t *testing.T) string {
	t.Helper()
	const day = 24 * time.Hour
	dir := t.TempDir()
	d, err := blob.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	for _, one := range []struct {
		name      string
		size      int
		tombstone bool
		age       time.Duration
	}{
		{"f3xm", 150_000, false, 3 * time.Minute}, {"a7k2", 70_000, false, 100 * day},
		{"c4wz", 5, true, 20 * day}, {"h9ds", 6, true, time.Hour},
	} {
		ref := keepBody(t, d, "order-bodies", one.name, one.size, one.tombstone)
		at := time.Now().Add(-one.age)
		if err := os.Chtimes(filepath.Join(dir, ref.Container, strings.ReplaceAll(ref.Name, "/", "+")), at, at); err != nil {
			t.Fatal(err)
		}
	}
	keepBody(t, d, "other-bodies", "zzzz", 1, false) // nobody asks for it
	return dir
}

var storedAt = regexp.MustCompile(`"stored":"[^"]*"|[0-9]m0[0-9]s`)

// TestTheBodiesPageIsAsItRuns runs the commands of docs/bodies.md in order and compares what they
// print with the page, apart from times.
func TestTheBodiesPageIsAsItRuns(t *testing.T) {
	t.Parallel()
	dir := bodiesDir(t)
	commands := 0
	for _, block := range regexp.MustCompile("(?ms)^```console\n(.*?)^```$").FindAllStringSubmatch(document(t, "docs/bodies.md"), -1) {
		for one := range strings.SplitSeq(strings.TrimPrefix(block[1], "$ "), "\n$ ") {
			line, want, _ := strings.Cut(strings.TrimSuffix(one, "\n"), "\n")
			args := strings.Fields(strings.ReplaceAll(line, "./bodies", dir))[1:]
			got := strings.TrimSuffix((invocation{}).ok(t, args...), "\n")
			if got, want := storedAt.ReplaceAllString(got, "TIME"), storedAt.ReplaceAllString(want, "TIME"); got != want {
				t.Errorf("%s: got\n%s\nwant\n%s", line, got, want)
			}
			commands++
		}
	}
	if commands < 7 {
		t.Errorf("the page has %d commands, want at least 7", commands)
	}
	if files, err := filepath.Glob(filepath.Join(dir, "other-bodies", "*zzzz")); err != nil || len(files) != 1 {
		t.Errorf("another container: got %v, %v; want its body", files, err)
	}
}

// TestAPurgeOfBodiesIsAskedFirst: what would go is counted, and nothing does unless the name is
// typed.
func TestAPurgeOfBodiesIsAskedFirst(t *testing.T) {
	t.Parallel()
	dir := bodiesDir(t)
	v := invocation{interactive: true}
	purge := []string{"bodies", "purge", "order-bodies", "-store", dir, "-older", "1m"}
	if r := v.withInput("no\n").call(t, purge...); r.status != exitFailure || !strings.Contains(r.errs, "This removes 2 bodies of 220000 bytes, the oldest stored 100d00h ago, from order-bodies for good.") || !strings.Contains(r.errs, "nothing was removed") {
		t.Errorf("answered no: got %+v, want a failure that nothing was removed", r)
	}
	invocation{}.fails(t, exitUsage, []string{"not a terminal", "-yes to purge order-bodies"}, purge...)
	if got := v.withInput("order-bodies\n").ok(t, purge...); got != "2 bodies of 220000 bytes of order-bodies were removed.\n" {
		t.Errorf("confirmed: got %q, want 2 bodies", got)
	}
	if got := v.ok(t, purge...); got != "0 bodies of 0 bytes of order-bodies were removed.\n" { // nothing to ask
		t.Errorf("again: got %q, want nothing removed", got)
	}
	if r := v.call(t, "bodies", "list", "order-bodies", "-store", dir); r.out != "" || r.errs != "0 bodies of 0 bytes, and 2 tombstones.\n" {
		t.Errorf("list: got %+v, want the tombstones counted", r)
	}
	var removed bodiesRemoved
	if err := json.Unmarshal([]byte(v.ok(t, "bodies", "sweep", "order-bodies", "-store", dir, "-retention", "1m", "-json")), &removed); err != nil || removed != (bodiesRemoved{Container: "order-bodies", Blobs: 2}) {
		t.Errorf("sweep -json: got %+v, %v; want 2 tombstones", removed, err)
	}
}

// TestTheBodiesOfAnAccount are those of Azurite.
func TestTheBodiesOfAnAccount(t *testing.T) {
	t.Parallel()
	location := azuritetest.BlobConnectionString(t)
	s, err := azureblob.Open(location, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	container := strings.TrimPrefix(newQueueName(t, on(azuritetest.ConnectionString(t))), "cli-") + "-bodies"
	keepBody(t, s, container, "a", 5, false)
	keepBody(t, s, container, "b", 5, true)
	azuritetest.Until(t, "the service, which keeps whole seconds, says that both are old", func() bool {
		for info, err := range s.List(t.Context(), container, "") {
			if age, e := info.Age(); err != nil || e != nil || age == 0 {
				return false
			}
		}
		return true
	})
	v := on(location) // without -store
	if got := v.ok(t, "bodies", "list", container, "-all"); strings.Count(got, "\n") != 2 || strings.Count(got, "a tombstone") != 1 {
		t.Errorf("list: got %q, want a body and a tombstone", got)
	}
	if got := v.ok(t, "bodies", "sweep", container, "-retention", "1ms", "-store", location); got != "1 tombstone of "+container+" was removed.\n" {
		t.Errorf("sweep: got %q, want one", got)
	}
	if got := v.ok(t, "bodies", "purge", container, "-older", "1ms", "-yes"); got != "1 body of 5 bytes of "+container+" was removed.\n" {
		t.Errorf("purge: got %q, want one", got)
	}
	if r := v.call(t, "bodies", "list", container); r.out != "" || r.status != exitOK {
		t.Errorf("list: got %+v, want nothing", r)
	}
}

func TestBodiesCommandLinesAreChecked(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, []byte("AccountName=a;AccountKey=secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	for line, want := range map[string]string{
		"bodies":                                                  "write millrace bodies VERB CONTAINER",
		"bodies look claims":                                      `unknown verb "look"; the verbs are list, sweep, purge`,
		"bodies list":                                             "write millrace bodies list CONTAINER",
		"bodies list claims":                                      "no store is known: specify -store",
		"bodies list Claims -store .":                             "lower-case letters",
		"bodies list claims -store . -older -1s":                  "negative",
		"bodies list https://x.blob.core -store .":                "not a container name",
		"bodies sweep claims -store . -retention 0s":              "too short",
		"bodies purge claims -store .":                            "-older is required",
		"bodies purge claims -store . -older 30":                  "missing unit",
		"bodies list claims -store https://":                      "-store: ",
		"bodies list claims -store @" + file + ".no":              "no such file",
		"bodies list claims -store AccountName=x;AccountKey=s%%t": "-store: ",
	} {
		invocation{}.fails(t, exitUsage, []string{want}, strings.Fields(line)...)
	}
	absent := filepath.Join(dir, "absent")
	invocation{}.fails(t, exitFailure, []string{"no such file"}, "bodies", "list", "claims", "-store", absent)
	invocation{}.fails(t, exitFailure, []string{"not a directory"}, "bodies", "list", "claims", "-store", file)
	if _, err := os.Stat(absent); !os.IsNotExist(err) {
		t.Errorf("the directory that was absent: got %v, want it absent still", err)
	}
	v := invocation{env: map[string]string{accountVariable: dir}}
	v.fails(t, exitUsage, []string{"is not the location of an account"}, "bodies", "list", "claims")
	for _, one := range bodiesCommand().verbs {
		for line := range strings.SplitSeq(one.more, "\n") {
			if len(line) > 101 {
				t.Errorf("%s: %q is wide", one.name, line)
			}
		}
	}
}
