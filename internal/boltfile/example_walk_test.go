package boltfile_test

import (
	"bytes"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"

	bolt "go.etcd.io/bbolt"

	"github.com/millrace/millrace/internal/boltfile"
)

// A file with a damaged page: the entries on its other pages are read all the same.
func ExampleReader_Walk() {
	content, err := stock()
	if err != nil {
		log.Fatal(err)
	}
	at := bytes.Index(content, []byte("article-000")) / 1024 * 1024 // a leaf
	clear(content[at : at+8])                                       // its id

	r, err := boltfile.NewReader(bytes.NewReader(content), int64(len(content)))
	if err != nil {
		log.Fatal(err)
	}
	buckets, err := r.Buckets()
	if err != nil {
		log.Fatal(err)
	}
	entries, damaged := 0, 0
	count := func(boltfile.Entry) error { entries++; return nil }
	goOn := func(error) error { damaged++; return nil }
	for _, b := range buckets {
		if err := r.Walk(b, count, goOn); err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%s: a part of the 100 entries: %v, damaged pages: %d\n", b.Name, entries > 0 && entries < 100, damaged)
	}
	// Output:
	// stock: a part of the 100 entries: true, damaged pages: 1
}

// stock returns a file with a bucket of several pages.
func stock() (content []byte, err error) {
	dir, err := os.MkdirTemp("", "boltfile")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	path := filepath.Join(dir, "stock.db")
	db, err := bolt.Open(path, 0o600, &bolt.Options{PageSize: 1024})
	if err != nil {
		return nil, err
	}
	err = db.Update(func(tx *bolt.Tx) error {
		b, err := tx.CreateBucket([]byte("stock"))
		if err != nil {
			return err
		}
		for i := range 100 {
			if err := b.Put(fmt.Appendf(nil, "article-%03d", i), []byte("in the second room")); err != nil {
				return err
			}
		}
		return nil
	})
	if err := errors.Join(err, db.Close()); err != nil {
		return nil, err
	}
	return os.ReadFile(path)
}
