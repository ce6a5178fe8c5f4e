package shipping

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
)

// errAway means that a request has no complete response, or one that says to come back. Its outcome is unknown.
var errAway = errors.New("the Initiator does not answer")

// maxAnswer is the size of a response at most: the missing pieces of the largest batch.
const maxAnswer = 1 << 20

// answerError is a complete response that is not the one that was asked for.
type answerError struct {
	address string
	status  int
	ours    bool // it comes from a [Server]
	text    string
}

// Error returns one line.
func (e *answerError) Error() string {
	switch {
	case !e.ours:
		return fmt.Sprintf("%s answers, but is %v: %s; is the address right?", e.address, ErrNoInitiator, e.text)
	case e.status == http.StatusConflict:
		return e.text
	}
	return fmt.Sprintf("the Initiator refuses it (%d): %s", e.status, e.text)
}

// Is makes [ErrConflict] and [ErrNoInitiator] of it.
func (e *answerError) Is(target error) bool {
	return target == ErrNoInitiator && !e.ours || target == ErrConflict && e.final()
}

// final reports whether no other try will have another answer.
func (e *answerError) final() bool { return e.ours && e.status == http.StatusConflict }

func (c *Client) status(ctx context.Context, batch string) (*Status, error) {
	var s Status
	return &s, c.call(ctx, http.MethodGet, "batches/"+batch, nil, "", &s)
}

func (c *Client) putManifest(ctx context.Context, batch string, text []byte, digest string) (*Status, error) {
	var s Status
	return &s, c.call(ctx, http.MethodPut, "batches/"+batch, text, contentDigest(digest), &s)
}

func (c *Client) putPiece(ctx context.Context, batch string, n int, piece []byte) error {
	return c.call(ctx, http.MethodPut, fmt.Sprintf("batches/%s/pieces/%d", batch, n), piece, "", &struct{}{})
}

func (c *Client) complete(ctx context.Context, batch string) (*Status, error) {
	var s Status
	return &s, c.call(ctx, http.MethodPost, "batches/"+batch+"/complete", nil, "", &s)
}

// call sends one request and decodes its response. The error is errAway, an answerError, or that of the context.
func (c *Client) call(ctx context.Context, method, path string, body []byte, digest string, answer any) error {
	ctx, cancel := context.WithTimeout(ctx, c.options.RequestTimeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, c.address+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	if digest != "" {
		r.Header.Set(digestHeader, digest)
	}
	response, err := c.http.Do(r)
	if err != nil {
		return c.noAnswer(err)
	}
	defer response.Body.Close() //nolint:errcheck // it was read
	text, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return c.noAnswer(err)
	}
	return c.judge(response, text, answer)
}

// judge decodes a complete response.
func (c *Client) judge(response *http.Response, text []byte, answer any) error {
	e := &answerError{address: c.address, status: response.StatusCode, ours: response.Header.Get(versionHeader) == version}
	switch {
	case comeBack(response.StatusCode), !e.ours && cutRequest(response.StatusCode, text):
		return fmt.Errorf("%w at %s: %s", errAway, c.address, sentence(response, text, e.ours))
	case e.ours && response.StatusCode == http.StatusOK:
		err := json.Unmarshal(text, answer)
		if err == nil {
			return nil
		}
		e.text = err.Error()
	default:
		e.text = sentence(response, text, e.ours)
	}
	return e
}

func comeBack(status int) bool {
	return status == http.StatusTooManyRequests || status == http.StatusRequestTimeout || status >= http.StatusInternalServerError
}

// cutRequest reports whether a response may be that of net/http, or of a gateway, to the head of a request that was cut.
// The response of a server that expects TLS has the same status.
func cutRequest(status int, text []byte) bool {
	return status == http.StatusBadRequest && !bytes.Contains(text, []byte("HTTPS"))
}

// sentence returns what a response says, on one line. What another server says is a page: its status must do.
func sentence(response *http.Response, text []byte, ours bool) string {
	said := strings.Join(strings.Fields(string(text)), " ")
	if !ours || said == "" {
		said = response.Status
		if location := response.Header.Get("Location"); location != "" {
			said += fmt.Sprintf(" to %.200q", location)
		}
	}
	return said[:min(len(said), 500)]
}

// noAnswer is the error for a request without a complete response.
func (c *Client) noAnswer(err error) error {
	if wrapped := (*url.Error)(nil); errors.As(err, &wrapped) {
		err = wrapped.Err // without the URL, which is in our error
	}
	certificate := (*tls.CertificateVerificationError)(nil)
	if errors.As(err, &certificate) || errors.Is(err, http.ErrSchemeMismatch) {
		return &answerError{address: c.address, text: err.Error()}
	}
	if network := (*net.OpError)(nil); errors.As(err, &network) {
		err = network.Err
	}
	if errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("no response within %v", c.options.RequestTimeout)
	}
	return fmt.Errorf("%w at %s: %w", errAway, c.address, err)
}
