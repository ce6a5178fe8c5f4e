package emulator_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azqueue/v2"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azqueue/v2/queueerror"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azqueue/v2/sas"

	"github.com/millrace/millrace/emulator"
)

// A web shop gets a signature with which it can only put orders on the queue. The
// emulator enforces this as the service would.
func ExampleServer_sharedAccessSignature() {
	ctx := context.Background()
	server, err := emulator.New(nil, &emulator.Options{Accounts: map[string][]byte{"shop": []byte("the shop's key")}})
	if err != nil {
		log.Fatal(err)
	}
	options := func() *azqueue.ClientOptions { // azqueue keeps credentials in them: one for each client
		return &azqueue.ClientOptions{ClientOptions: azcore.ClientOptions{
			Transport: &http.Client{Transport: server}, Retry: policy.RetryOptions{MaxRetries: -1}}}
	}
	const address = "http://shop.queue.localhost"
	key, err := azqueue.NewSharedKeyCredential("shop", "dGhlIHNob3AncyBrZXk=")
	if err != nil {
		log.Fatal(err)
	}
	owner, err := azqueue.NewQueueClientWithSharedKeyCredential(address+"/orders", key, options())
	if err != nil {
		log.Fatal(err)
	}
	if _, err := owner.Create(ctx, nil); err != nil {
		log.Fatal(err)
	}

	signed, err := sas.QueueSignatureValues{QueueName: "orders", Permissions: (&sas.QueuePermissions{Add: true}).String(),
		ExpiryTime: time.Now().Add(time.Hour), Protocol: sas.ProtocolHTTPSandHTTP}.SignWithSharedKey(key)
	if err != nil {
		log.Fatal(err)
	}
	shop, err := azqueue.NewQueueClientWithNoCredential(address+"/orders?"+signed.Encode(), options())
	if err != nil {
		log.Fatal(err)
	}
	_, err = shop.EnqueueMessage(ctx, "ship 42", nil)
	fmt.Println("put:", err)
	_, err = shop.DequeueMessage(ctx, nil)
	fmt.Println("get refused:", queueerror.HasCode(err, queueerror.AuthorizationPermissionMismatch))
	// Output:
	// put: <nil>
	// get refused: true
}
