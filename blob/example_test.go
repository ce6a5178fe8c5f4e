package blob_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/millrace/millrace/blob"
)

func ExampleMemory() {
	ctx := context.Background()
	store := blob.Memory()
	report := blob.Ref{Container: "reports", Name: "2026/november.txt"}

	err := store.Put(ctx, report, strings.NewReader("all is well"), nil)
	if err != nil {
		fmt.Println(err)
	}
	r, err := store.Open(ctx, report)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer r.Close()
	fmt.Println(r.Ref, r.Size)
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
		err := store.Create(ctx, result, strings.NewReader(fmt.Sprint("by worker ", worker)), nil)
		fmt.Println(worker, err == nil, errors.Is(err, blob.ErrExists))
	}
	// Output:
	// 0 true false
	// 1 false true
	// 2 false true
}

// Metadata appear with the blob, and a list tells them with size and time.
func ExampleStore_list() {
	ctx := context.Background()
	store := blob.Memory()
	for i, text := range []string{"to be kept", "to be dropped"} {
		ref := blob.Ref{Container: "uploads", Name: fmt.Sprint(i)}
		err := store.Put(ctx, ref, strings.NewReader(text), &blob.PutOptions{Metadata: map[string]string{"owner": fmt.Sprint("user-", i)}})
		if err != nil {
			fmt.Println(err)
		}
	}
	for b, err := range store.List(ctx, "uploads", "") {
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(b.Ref, b.Size, b.Metadata["owner"], time.Since(b.Modified) < time.Hour)
	}
	// Output:
	// blob://uploads/0 10 user-0 true
	// blob://uploads/1 13 user-1 true
}

func ExampleParse() {
	ref, err := blob.Parse("blob://imageinput/7d9a")
	fmt.Println(ref.Container, ref.Name, err)
	_, err = blob.Parse("blob://imageinput/../secrets")
	fmt.Println(err)
	// Output:
	// imageinput 7d9a <nil>
	// invalid argument: in the name "../secrets" a part between slashes is empty, or begins or ends with a dot
}

func ExampleDir() {
	path, err := os.MkdirTemp("", "example")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(path)
	store, err := blob.Open(path)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer store.Close()

	ctx := context.Background()
	for _, name := range []string{"7/1", "7/0", "8/0"} {
		if err := store.Put(ctx, blob.Ref{Container: "slices", Name: name}, strings.NewReader("…"), nil); err != nil {
			fmt.Println(err)
		}
	}
	for b, err := range store.List(ctx, "slices", "7/") {
		fmt.Println(b.Ref, b.Size, err)
	}
	// Output:
	// blob://slices/7/0 3 <nil>
	// blob://slices/7/1 3 <nil>
}
