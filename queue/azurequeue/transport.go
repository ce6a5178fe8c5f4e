package azurequeue

import (
	"io"
	"net/http"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
)

// sendOnce keeps net/http from sending a request twice. Its Transport repeats a GET without a
// body if the connection breaks before the response, because a GET changes nothing. But a dequeue
// is a GET, and hides 32 messages.
type sendOnce struct{ next policy.Transporter }

// Do implements [policy.Transporter].
func (t sendOnce) Do(r *http.Request) (*http.Response, error) {
	if r.Body == nil && r.Method == http.MethodGet {
		r = r.WithContext(r.Context()) // a copy: the caller owns the request
		r.Body = noBody{}
	}
	return t.next.Do(r)
}

// noBody is an empty body that is not [http.NoBody], which net/http considers repeatable. It
// sends nothing.
type noBody struct{}

func (noBody) Read([]byte) (int, error) { return 0, io.EOF }
func (noBody) Close() error             { return nil }
