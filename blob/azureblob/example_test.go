package azureblob_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/millrace/millrace/blob"
	"github.com/millrace/millrace/blob/azureblob"
)

// A store of an account. Here a service in this process responds; without the Transport it would
// be the one at the location.
func ExampleOpen() {
	store, err := azureblob.Open("UseDevelopmentStorage=true", &azureblob.Options{Transport: newService()})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer store.Close()

	ctx := context.Background()
	report := blob.Ref{Container: "reports", Name: "2026/november.txt"}
	err = store.Create(ctx, report, strings.NewReader("all is well"), &blob.PutOptions{Metadata: map[string]string{"author": "night-shift"}})
	if err != nil {
		fmt.Println(err)
		return
	}
	err = store.Create(ctx, report, strings.NewReader("again"), nil)
	fmt.Println("again:", errors.Is(err, blob.ErrExists))

	r, err := store.Open(ctx, report)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer r.Close()
	fmt.Println(r.Ref, r.Size, r.Metadata)
	io.Copy(os.Stdout, r)
	// Output:
	// again: true
	// blob://reports/2026/november.txt 11 map[author:night-shift]
	// all is well
}

// A put that broke off is continued when the same content is put again.
func ExampleStore_Put() {
	service := newService()
	store, err := azureblob.Open("UseDevelopmentStorage=true", &azureblob.Options{Transport: service, BlockSize: 1 << 10})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	film := blob.Ref{Container: "pictures", Name: "film"}
	data := strings.Repeat("0123456789abcdef", 640) // ten blocks

	half, cut := io.Pipe()
	go func() {
		io.WriteString(cut, data[:7000])
		cut.CloseWithError(errors.New("the line went dead"))
	}()
	fmt.Println(store.Put(ctx, film, half, nil))
	service.arrived()
	fmt.Println(store.Put(ctx, film, strings.NewReader(data), nil))
	fmt.Println(count(service.arrived(), "PUT block"), "blocks were sent")
	// Output:
	// put blob://pictures/film: the line went dead
	// <nil>
	// 4 blocks were sent
}

// An address with a shared access signature, of one container. Nothing is sent yet.
func ExampleOpen_signature() {
	store, err := azureblob.Open("https://acct.blob.core.windows.net/reports?sv=2024-11-04&sr=c&sp=rwdl&sig=c2lnbmF0dXJl", nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer store.Close()
	_, err = store.Stat(context.Background(), blob.Ref{Container: "others", Name: "a"})
	fmt.Println(err)
	// Output:
	// stat blob://others/a: invalid argument: the store is of the container "reports" alone
}
