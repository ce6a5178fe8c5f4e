package boltfile

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	bolt "go.etcd.io/bbolt"
)

// contents is what a file has: bucket, key and value of each entry, in order.
type contents []string

func line(bucket, key, value []byte) string { return fmt.Sprintf("%s %s %x", bucket, key, value) }

// written returns a file that bbolt wrote, with and without a list of free pages.
func written(t testing.TB, path string, freelist bool) []byte {
	t.Helper()
	db, err := bolt.Open(path, 0o600, &bolt.Options{NoFreelistSync: !freelist, NoSync: true, PageSize: 1024})
	if err != nil {
		t.Fatal(err)
	}
	err = db.Update(func(tx *bolt.Tx) error {
		for _, name := range []string{"empty", "large", "small", "tree"} {
			if _, err := tx.CreateBucket([]byte(name)); err != nil {
				return err
			}
		}
		for i := range 300 {
			if err := tx.Bucket([]byte("tree")).Put(fmt.Appendf(nil, "%05d", i), []byte(strings.Repeat("v", i%50))); err != nil {
				return err
			}
		}
		if err := tx.Bucket([]byte("small")).Put([]byte("key"), []byte("value")); err != nil {
			return err
		}
		return tx.Bucket([]byte("large")).Put([]byte("key"), make([]byte, 5000))
	})
	if err != nil {
		t.Fatal(err)
	}
	err = db.Update(func(tx *bolt.Tx) error {
		for i := range 100 {
			if err := tx.Bucket([]byte("tree")).Delete(fmt.Appendf(nil, "%05d", 2*i)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// readByBbolt returns what bbolt reads.
func readByBbolt(t testing.TB, path string) (all contents) {
	t.Helper()
	db, err := bolt.Open(path, 0o600, &bolt.Options{NoSync: true, NoFreelistSync: true})
	if err != nil {
		t.Fatal(err)
	}
	err = db.Update(func(tx *bolt.Tx) error { // whose list of free pages is also checked
		return tx.ForEach(func(name []byte, b *bolt.Bucket) error {
			return b.ForEach(func(k, v []byte) error {
				all = append(all, line(name, k, v))
				return nil
			})
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	return all
}

// readStrictly returns what this package reads, or the first damage.
func readStrictly(content []byte) (all contents, err error) {
	r, err := NewReader(bytes.NewReader(content), int64(len(content)))
	if err != nil {
		return nil, err
	}
	if r.Truncated() {
		return nil, ErrNoMeta
	}
	if err := r.CheckFreelist(); err != nil {
		return nil, err
	}
	buckets, err := r.Buckets()
	if err != nil {
		return nil, err
	}
	for _, b := range buckets {
		visit := func(e Entry) error {
			if e.Bucket {
				return fmt.Errorf("a bucket within %s", b.Name)
			}
			all = append(all, line(b.Name, e.Key, e.Value))
			return nil
		}
		if err := r.Walk(b, visit, Stop); err != nil {
			return nil, err
		}
	}
	return all, nil
}

func TestItReadsWhatBboltReads(t *testing.T) {
	for _, freelist := range []bool{false, true} {
		path := filepath.Join(t.TempDir(), "file")
		content := written(t, path, freelist)
		got, err := readStrictly(content)
		if want := readByBbolt(t, path); err != nil || !slices.Equal(got, want) || len(want) != 202 {
			t.Errorf("list of free pages %v: got %d entries, %v; bbolt reads %d", freelist, len(got), err, len(want))
		}
	}
}

// FuzzReader: whatever a file has, reading it neither panics nor loops; and a file without damage is one that bbolt reads in the
// same way. bbolt's panic would end the test.
func FuzzReader(f *testing.F) {
	path := filepath.Join(f.TempDir(), "file")
	content := written(f, path, true)
	f.Add(uint32(0), []byte{})
	f.Fuzz(func(t *testing.T, at uint32, damage []byte) {
		damaged := bytes.Clone(content)
		copy(damaged[int(at)%len(damaged):], damage)
		if r, err := NewReader(bytes.NewReader(damaged), int64(len(damaged))); err == nil {
			for again := true; again; again = r.FallBack() {
				walkAll(r)
			}
			r.Scan(func(Entry) {})
		}
		got, err := readStrictly(damaged)
		if err != nil {
			return
		}
		path := filepath.Join(t.TempDir(), "file")
		if err := os.WriteFile(path, damaged, 0o600); err != nil {
			t.Fatal(err)
		}
		if want := readByBbolt(t, path); !slices.Equal(got, want) {
			t.Errorf("got %d entries, and bbolt reads %d", len(got), len(want))
		}
	})
}
