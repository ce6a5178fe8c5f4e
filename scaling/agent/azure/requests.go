package azure

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"

	"github.com/millrace/millrace/internal/azurestorage"
)

const (
	requestTimeout = 9 * time.Second  // three of them are less than the agent gives Scale
	maxAnswer      = 1 << 20          // bytes
	maxWait        = time.Hour        // of Retry-After
	defaultWait    = 10 * time.Second // without Retry-After
	maxMessage     = 400              // bytes of a message of the service that errors repeat
)

// answer is an answer of the service.
type answer struct {
	status int
	header http.Header
	body   []byte
}

// wait returns how long the service asks to wait.
func (g *answer) wait() time.Duration {
	return min(cmp.Or(azurestorage.RetryAfter(g.header.Get("Retry-After")), defaultWait), maxWait)
}

// problem returns the code and the message of the error in the body. Some resource providers write
// it without an object around it.
func (g *answer) problem() string {
	type detail struct{ Code, Message string }
	var body struct {
		detail
		Error detail
	}
	if json.Unmarshal(g.body, &body) == nil && body.Error != (detail{}) {
		body.detail = body.Error
	}
	if body.detail == (detail{}) {
		return "no reason is given"
	}
	text := azurestorage.Location{}.Redact(body.Code + ": " + body.Message)
	if len(text) > maxMessage {
		text = strings.ToValidUTF8(text[:maxMessage], "") + "…"
	}
	return text
}

// refusal returns the error for an unexpected answer, with a hint.
func (a *Actuator) refusal(got *answer) error {
	hint := ""
	switch got.status {
	case http.StatusUnauthorized, http.StatusForbidden:
		hint = fmt.Sprintf("give the identity of the agent the actions %s/read and %[1]s/write on it, and any other that the message names; a new role takes minutes", a.kind.provider)
	case http.StatusNotFound:
		hint = "see whether the id is right and the resource exists"
	case http.StatusConflict:
		hint = "if another operation is in progress, the next measurement tries again"
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		a.mu.Lock()
		if wait := time.Until(a.notBefore); wait > 0 {
			hint = fmt.Sprintf("nothing is sent for %v", wait.Round(time.Second))
		}
		a.mu.Unlock()
	}
	if got.status >= 300 && got.status < 400 {
		hint = "a redirect is a proxy's, and is not followed"
	}
	if hint != "" {
		hint = "; " + hint
	}
	return fmt.Errorf("the service answered %d, %s%s", got.status, got.problem(), hint)
}

// address returns the address of the resource, or of a part of it.
func (a *Actuator) address(part string) string {
	return strings.TrimSuffix(a.endpoint.String(), "/") + a.path + part + "?api-version=" + a.kind.apiVersion
}

// get returns the body of a resource.
func (a *Actuator) get(ctx context.Context, address string) ([]byte, error) {
	got, err := a.send(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, err
	}
	if got.status != http.StatusOK {
		return nil, a.refusal(got)
	}
	return got.body, nil
}

// send sends one request, unless the service has asked to wait. After an error it is not known
// whether the service got it.
func (a *Actuator) send(ctx context.Context, method, address string, body any) (*answer, error) {
	a.mu.Lock()
	wait := time.Until(a.notBefore)
	a.mu.Unlock()
	if wait > 0 {
		return nil, fmt.Errorf("nothing is sent for %v: the service has asked for that", wait.Round(time.Second))
	}
	ctx, cancel := context.WithTimeoutCause(ctx, requestTimeout, fmt.Errorf("no answer within %v: %w", requestTimeout, context.DeadlineExceeded))
	defer cancel()
	var tokenless atomic.Bool
	ctx = context.WithValue(ctx, tokenlessKey{}, &tokenless)
	request, err := runtime.NewRequest(ctx, method, address)
	if err != nil {
		return nil, err
	}
	if body != nil {
		if err := runtime.MarshalAsJSON(request, body); err != nil {
			return nil, err
		}
	}
	request.Raw().Header.Set("Accept", "application/json")
	runtime.SkipBodyDownload(request) // which has no bound
	got, err := a.do(request)
	if err == nil {
		return got, nil
	}
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	err = azurestorage.Location{}.RedactError(err)
	if tokenless.Load() {
		return nil, fmt.Errorf("no token: %w; %s", err, azurestorage.LoginHint)
	}
	return nil, fmt.Errorf("no usable answer: %w", err)
}

// notedCredential notes in the context of a request that its token could not be obtained. The
// pipeline returns only the error of a context that has ended.
type notedCredential struct{ azcore.TokenCredential }

type tokenlessKey struct{}

// GetToken implements [azcore.TokenCredential].
func (c notedCredential) GetToken(ctx context.Context, o policy.TokenRequestOptions) (azcore.AccessToken, error) {
	token, err := c.TokenCredential.GetToken(ctx, o)
	if tokenless, ok := ctx.Value(tokenlessKey{}).(*atomic.Bool); ok {
		tokenless.Store(err != nil)
	}
	return token, err
}

// do sends a request, reads the answer, and notes when the service wants to be asked again.
func (a *Actuator) do(request *policy.Request) (*answer, error) {
	response, err := a.pipeline.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close() //nolint:errcheck // it was only read
	got := &answer{status: response.StatusCode, header: response.Header}
	if got.status == http.StatusTooManyRequests || got.status == http.StatusServiceUnavailable {
		a.mu.Lock()
		a.notBefore = time.Now().Add(got.wait())
		a.mu.Unlock()
	}
	if got.body, err = io.ReadAll(io.LimitReader(response.Body, maxAnswer)); err != nil {
		return nil, err
	}
	return got, nil
}
