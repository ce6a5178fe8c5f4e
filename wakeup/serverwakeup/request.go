package serverwakeup

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"github.com/millrace/millrace/internal/azurestorage"
	"github.com/millrace/millrace/queue"
)

const (
	// protocolVersion is one that every emulator serves.
	protocolVersion = "2020-10-02"

	// tryTimeout is how long a request may take, and a stream until its first line.
	tryTimeout = 10 * time.Second
)

var (
	errSilent  = errors.New("the wake-up stream is silent")
	errHeld    = errors.New("the response has begun, but the stream does not arrive: a proxy may hold it back")
	errForeign = errors.New("the response is not a wake-up stream")
)

// refusal is a response that refuses a request.
type refusal struct {
	status int
	code   string // of the service, or ""
}

func (r *refusal) Error() string {
	return strings.TrimSpace(fmt.Sprintf("%d %s %s", r.status, http.StatusText(r.status), r.code))
}

// connection is an open stream.
type connection struct {
	hello  hello
	body   io.ReadCloser
	lines  *bufio.Reader
	silent *time.Timer // ends the stream when it fires
	ctx    context.Context
}

// connect opens a stream and reads its first line within a time. The caller closes it. cancel ends ctx, which
// the stream needs until then.
func (s *Source) connect(ctx context.Context, cancel context.CancelCauseFunc, q queue.Name, within time.Duration) (_ *connection, err error) {
	slow := time.AfterFunc(within, func() { cancel(azurestorage.ErrTryTimeout) })
	defer slow.Stop()
	response, err := s.send(ctx, http.MethodGet, q, "") //nolint:bodyclose // the connection closes it
	if err != nil {
		return nil, err
	}
	c := &connection{body: response.Body, lines: bufio.NewReaderSize(response.Body, maxLine), ctx: ctx}
	if kind, _, _ := mime.ParseMediaType(response.Header.Get("Content-Type")); response.StatusCode != http.StatusOK || kind != "text/plain" {
		c.close()
		return nil, errForeign
	}
	line, err := c.line()
	switch {
	case err == nil:
		c.hello, err = parseHello(line)
	case errors.Is(err, io.EOF): // the response is complete; one that was cut is io.ErrUnexpectedEOF
		err = errNoHello
	}
	if err == nil && !slow.Stop() {
		err = azurestorage.ErrTryTimeout
	}
	if err != nil {
		c.close()
		if errors.Is(context.Cause(ctx), azurestorage.ErrTryTimeout) {
			err = errHeld
		}
		return nil, err
	}
	c.silent = time.AfterFunc(c.patience(), func() { cancel(errSilent) })
	return c, nil
}

// patience is how long the stream may be silent.
func (c *connection) patience() time.Duration { return 2*c.hello.alive + tryTimeout }

// read returns the next line.
func (c *connection) read() (string, error) {
	line, err := c.line()
	if err == nil {
		c.silent.Reset(c.patience())
	}
	return line, err
}

// line returns the next line that is complete.
func (c *connection) line() (string, error) {
	line, err := c.lines.ReadSlice('\n')
	switch {
	case errors.Is(err, bufio.ErrBufferFull):
		return "", errForeign
	case c.ctx.Err() != nil:
		return "", context.Cause(c.ctx)
	case err != nil:
		return "", err
	}
	return strings.TrimRight(string(line), "\r\n"), nil
}

func (c *connection) close() {
	if c.silent != nil {
		c.silent.Stop()
	}
	_ = c.body.Close() // nothing is left to be read
}

// setReady tells the server whether a stream is ready.
func (s *Source) setReady(ctx context.Context, q queue.Name, id string, ready bool) error {
	ctx, cancel := context.WithTimeoutCause(ctx, tryTimeout, azurestorage.ErrTryTimeout)
	defer cancel()
	response, err := s.send(ctx, http.MethodPut, q, fmt.Sprintf("&stream=%s&ready=%t", id, ready))
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }() // it is empty
	if response.StatusCode != http.StatusNoContent {
		return errForeign
	}
	return nil
}

// send sends a request. A response that refuses it is a [*refusal]; the caller closes the body of others.
func (s *Source) send(ctx context.Context, method string, q queue.Name, more string) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, method, s.at.Endpoint+q.Queue+"?comp=wakeups"+more, nil)
	if err != nil {
		return nil, s.at.RedactError(err)
	}
	r.Header.Set("x-ms-version", protocolVersion)
	r.Header.Set("Accept-Encoding", "identity") // a proxy that compresses would hold lines back
	if err := s.authorize(ctx, r); err != nil {
		return nil, err
	}
	response, err := s.transport.Do(r)
	if err != nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return nil, s.at.RedactError(err)
	}
	if response.StatusCode >= http.StatusMultipleChoices {
		const enough = 4 << 10
		_, _ = io.CopyN(io.Discard, response.Body, enough) // so that the connection can be used again
		_ = response.Body.Close()
		return nil, &refusal{response.StatusCode, s.at.Redact(response.Header.Get("x-ms-error-code"))}
	}
	return response, nil
}

func (s *Source) authorize(ctx context.Context, r *http.Request) error {
	if s.at.Auth != azurestorage.TokenAuth {
		return s.at.Sign(r)
	}
	token, err := s.credential.GetToken(ctx, policy.TokenRequestOptions{Scopes: []string{"https://storage.azure.com/.default"}})
	if err != nil {
		return fmt.Errorf("no token, nothing was sent: %w", s.at.RedactError(err))
	}
	r.Header.Set("Authorization", "Bearer "+token.Token)
	return nil
}
