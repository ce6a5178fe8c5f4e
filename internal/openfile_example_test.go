package internal_test

import (
	"fmt"
	"log"
	"os"

	"github.com/millrace/millrace/internal/openfile"
)

// A program makes sure that it is the only one that uses a file, and that the file was not deleted.
func Example_openfileLock() {
	if err := useAlone(); err != nil {
		log.Fatal(err)
	}
	// Output:
	// locked: true
	// has a name: true
}

func useAlone() error {
	f, err := os.CreateTemp("", "openfile")
	if err != nil {
		return err
	}
	defer func() { _, _ = f.Close(), os.Remove(f.Name()) }() // the lock ends with Close
	locked, err := openfile.TryLock(f)
	if err != nil {
		return err
	}
	fmt.Println("locked:", locked)
	info, err := f.Stat()
	if err != nil {
		return err
	}
	fmt.Println("has a name:", openfile.Linked(info))
	return nil
}
