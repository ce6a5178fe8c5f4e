package blob_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/millrace/millrace/blob"
)

func ExampleMemory() {
	ctx := context.Background()
	store := blob.Memory()
	report := blob.Ref{Container: "reports", Name: "2026/november.txt"}

	err := store.Put(ctx, report, strings.NewReader("all is well"))
	if err != nil {
		fmt.Println(err)
	}
	r, err := store.Open(ctx, report)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer r.Close()
	fmt.Println(report, r.Size)
	io.Copy(os.Stdout, r)
	// Output:
	// blob://reports/2026/november.txt 11
	// all is well
}

// A step that may run twice takes effect once.
func ExampleStore_create() {
	ctx := context.Background()
	store := blob.Memory()
	result := blob.Ref{Container: "results", Name: "job-7"}

	for worker := range 3 {
		err := store.Create(ctx, result, strings.NewReader(fmt.Sprint("by worker ", worker)))
		fmt.Println(worker, err == nil, errors.Is(err, blob.ErrExists))
	}
	// Output:
	// 0 true false
	// 1 false true
	// 2 false true
}

func ExampleParse() {
	ref, err := blob.Parse("blob://imageinput/7d9a")
	fmt.Println(ref.Container, ref.Name, err)
	_, err = blob.Parse("blob://imageinput/../secrets")
	fmt.Println(err)
	// Output:
	// imageinput 7d9a <nil>
	// bad blob reference: in the name "../secrets" a part between slashes is empty, or begins or ends with a dot
}

func ExampleDir() {
	path, err := os.MkdirTemp("", "example")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(path)
	store, err := blob.Dir(path)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer store.Close()

	ctx := context.Background()
	for _, name := range []string{"7/1", "7/0", "8/0"} {
		if err := store.Put(ctx, blob.Ref{Container: "slices", Name: name}, strings.NewReader("…")); err != nil {
			fmt.Println(err)
		}
	}
	for ref, err := range store.List(ctx, "slices", "7/") {
		fmt.Println(ref, err)
	}
	// Output:
	// blob://slices/7/0 <nil>
	// blob://slices/7/1 <nil>
}
