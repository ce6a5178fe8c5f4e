package azurequeue_test

import (
	"context"
	"fmt"
	"net/http"

	"github.com/millrace/millrace/emulator"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/azurequeue"
)

// The queues of an account share client, credential and connections. Here the account is one of
// an emulator in this process.
func ExampleOpenAccount() {
	ctx := context.Background()
	server, err := emulator.New(nil, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	account, err := azurequeue.OpenAccount(server.ConnectionString(), &azurequeue.Options{Transport: &http.Client{Transport: server}})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer account.Close()
	for _, name := range []string{"orders", "letters"} {
		q, err := account.Open(name)
		if err != nil {
			fmt.Println(err)
			return
		}
		if err := q.Create(ctx, nil); err != nil {
			fmt.Println(err)
			return
		}
	}
	for listed, err := range queue.ListAll(ctx, account, "") {
		fmt.Println(listed.Name, err)
	}
	// Output:
	// letters <nil>
	// orders <nil>
}
