package filetable_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/millrace/millrace/table"
	"github.com/millrace/millrace/table/filetable"
)

// Tables in a file survive the program.
func ExampleOpen() {
	dir, err := os.MkdirTemp("", "tables")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "microblog.db")
	write(path)
	read(path) // as after a restart
	// Output:
	// a second one is refused: true
	// gophers is of ann
}

var gophers = table.Key{Partition: "gophers"}

func write(path string) {
	ctx := context.Background()
	db, channels := open(path)
	if _, err := channels.Insert(ctx, table.Entity{Key: gophers, Properties: map[string]any{"Owner": "ann"}}); err != nil {
		log.Fatal(err)
	}
	_, err := filetable.Open(path, &filetable.Options{Wait: -1})
	fmt.Println("a second one is refused:", errors.Is(err, filetable.ErrLocked))
	if err := db.Close(); err != nil {
		log.Fatal(err)
	}
}

func read(path string) {
	db, channels := open(path)
	channel, err := channels.Get(context.Background(), gophers)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(channel.Partition, "is of", channel.Text("Owner"))
	if err := db.Close(); err != nil {
		log.Fatal(err)
	}
}

func open(path string) (*filetable.DB, table.Store) {
	db, err := filetable.Open(path, nil)
	if err != nil {
		log.Fatal(err)
	}
	channels, err := db.Table("Channels")
	if err != nil {
		log.Fatal(err)
	}
	return db, channels
}
