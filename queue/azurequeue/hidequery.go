package azurequeue

import (
	"net/http"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
)

// The SDK's retry policy makes a redacted copy of the address for a log line, whether or
// not anybody logs, and parses, encodes and joins the query for it: a tenth of what a
// delete costs. Its pipeline calls policies of ours before and after that one, so the
// query steps aside in between. It waits in a field that a client request has no use for;
// were it ever left there, net/http and http1 would refuse to send the request.

// aside takes the query away from the policies that come next, until [back].
type hideQuery struct{}

// Do implements [policy.Policy].
func (hideQuery) Do(r *policy.Request) (*http.Response, error) {
	raw := r.Raw()
	if raw.RequestURI == "" {
		raw.RequestURI, raw.URL.RawQuery = raw.URL.RawQuery, ""
	}
	return r.Next()
}

// back gives the query back, before the request is signed.
type restoreQuery struct{}

// Do implements [policy.Policy].
func (restoreQuery) Do(r *policy.Request) (*http.Response, error) {
	raw := r.Raw()
	if raw.RequestURI != "" {
		raw.URL.RawQuery, raw.RequestURI = raw.RequestURI, ""
	}
	return r.Next()
}
