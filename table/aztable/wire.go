package aztable

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/streaming"

	"github.com/millrace/millrace/internal/azurestorage"
)

// wire is the first policy of aztables' pipeline. It writes what aztables v1.4.1 cannot say, and takes the responses
// before aztables reads them. Of a response aztables keeps too little: it reads every number as a float64, so that 5.0
// comes back as the integer 5; it drops the versions of a group; and it panics over the response to a group that has no
// line end.
type wire struct{}

// Do implements [policy.Policy].
func (wire) Do(req *policy.Request) (*http.Response, error) {
	if err := prepare(req); err != nil {
		return nil, err
	}
	resp, err := req.Next()
	if err != nil {
		return nil, err
	}
	if resp.StatusCode >= http.StatusMultipleChoices {
		return nil, runtime.NewResponseError(resp)
	}
	body, err := runtime.Payload(resp) // the pipeline has read it
	if err != nil {
		return nil, err
	}
	return nil, &answer{Response: resp, body: body}
}

// prepare completes a request before it is signed.
func prepare(req *policy.Request) error {
	r := req.Raw()
	r.URL.RawPath = strings.ReplaceAll(r.URL.EscapedPath(), "+", "%2B") // some servers read it as a space
	switch {
	case r.Method != http.MethodPost:
		return nil
	case !strings.HasSuffix(r.URL.Path, "/$batch"):
		r.Header.Set("Prefer", "return-no-content") // or the service sends the entity back
		return nil
	}
	body, err := io.ReadAll(req.Body())
	if err != nil {
		return fmt.Errorf("read the group: %w", err)
	}
	return req.SetBody(streaming.NopCloser(bytes.NewReader(quoteKeys(body))), r.Header.Get("Content-Type"))
}

// quoteKeys doubles the quotes in the keys of the addresses in a group, as OData demands. aztables does so for single
// changes alone.
func quoteKeys(group []byte) []byte {
	if !bytes.Contains(group, []byte("%27")) && !bytes.Contains(group, []byte("+")) {
		return group
	}
	lines := bytes.SplitAfter(group, []byte("\n"))
	for i, line := range lines {
		// Headers have a colon and entities are JSON on one line, so that no other line begins like this.
		if bytes.HasPrefix(line, []byte("PUT ")) || bytes.HasPrefix(line, []byte("DELETE ")) {
			path, query, signed := bytes.Cut(line, []byte("?"))
			path = bytes.ReplaceAll(path, []byte("%27"), []byte("%27%27"))
			path = bytes.ReplaceAll(path, []byte("+"), []byte("%2B"))
			if signed {
				path = append(append(path, '?'), query...)
			}
			lines[i] = path
		}
	}
	return bytes.Join(lines, nil)
}

// answer is a response with a success status, with its whole body. It leaves the pipeline as an error, because aztables
// returns errors unchanged.
type answer struct {
	*http.Response
	body []byte
}

func (*answer) Error() string { return "the response was taken" }

// NonRetriable tells azcore not to retry.
func (*answer) NonRetriable() {}

// check refuses a response that is not the service's answer to a request that it answers with one of the statuses.
func (a *answer) check(statuses ...int) error {
	if a.Header.Get(azurestorage.RequestIDHeader) == "" {
		return &azurestorage.ForeignError{Lacks: "request id"}
	}
	if !runtime.HasStatusCode(a.Response, statuses...) {
		return &azurestorage.ForeignError{Lacks: "status of success"}
	}
	return nil
}

// decode reads the JSON document of a response. One without the types of properties is refused, because a 64-bit
// number would then be a string.
func (a *answer) decode(into any) error {
	if strings.Contains(a.Header.Get("Content-Type"), "odata=nometadata") {
		return &azurestorage.ForeignError{Lacks: "types of the properties"}
	}
	return decode(a.body, into)
}
