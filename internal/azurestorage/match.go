package azurestorage

import (
	"crypto/rand"
	"errors"
	"net/http"
	"strconv"
	"sync/atomic"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
)

// clientRequestIDHeader is the header with the client's id of a request. The service repeats it in the
// response.
const clientRequestIDHeader = "X-Ms-Client-Request-Id"

var (
	idPrefix = rand.Text()[:8] // of the ids of this process
	ids      atomic.Uint64     // given out
)

// errMismatch does not repeat the response: it may be another caller's.
var errMismatch = errors.New("the response is to another request: look for a proxy that sends responses twice")

// MatchResponse is a policy that refuses the response to another request. If a server or a proxy
// sends two responses to a request, net/http can take the second one for the response to the next
// request on the connection. A response without an id is accepted. The policy precedes the signing.
type MatchResponse struct{}

// Do implements [policy.Policy].
func (MatchResponse) Do(r *policy.Request) (*http.Response, error) {
	sent := r.Raw()
	id := strconv.AppendUint(append(make([]byte, 0, 24), idPrefix...), ids.Add(1), 36)
	sent.Header[clientRequestIDHeader] = []string{string(id)}
	resp, err := r.Next()
	if err != nil {
		return nil, err
	}
	if resp.Request != nil {
		sent = resp.Request // with the headers of the caller's transport
	}
	if id := resp.Header.Get(clientRequestIDHeader); id != "" && id != sent.Header.Get(clientRequestIDHeader) {
		_ = resp.Body.Close() // ends the connection if some of the body is unread
		return nil, errMismatch
	}
	return resp, nil
}
