package azurequeue

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"

	"github.com/millrace/millrace/queue"
)

type fakeCredential struct{ err error }

func (c fakeCredential) GetToken(ctx context.Context, o policy.TokenRequestOptions) (azcore.AccessToken, error) {
	if ctx.Err() != nil {
		return azcore.AccessToken{}, ctx.Err()
	}
	return azcore.AccessToken{Token: "S3cret-token", ExpiresOn: time.Now().Add(time.Hour)}, c.err
}

// Requirement Q-02.
func TestTokenIsSent(t *testing.T) {
	sent := ""
	q, err := Open("https://acct.queue.core.windows.net", "orders", &Options{Credential: fakeCredential{}, Transport: canned(func(r *http.Request) (*http.Response, error) {
		sent = r.Header.Get("Authorization")
		return responding(204, "")(r)
	})})
	if err != nil {
		t.Fatal(err)
	}
	if err := q.Delete(t.Context(), someLease); err != nil || sent != "Bearer S3cret-token" {
		t.Errorf("Authorization: got %q, %v; want the token", sent, err)
	}
}

// The service may ask for a token with more claims. Each request, with its body, is then sent again with
// such a token, and the connection of the first response is free.
func TestATokenWithMoreClaims(t *testing.T) {
	var sent, bodies []string
	closed := 0
	answer := canned(func(r *http.Request) (*http.Response, error) {
		body := ""
		if r.Body != nil {
			read, _ := io.ReadAll(r.Body)
			body = string(read)
		}
		sent, bodies = append(sent, r.Header.Get("Authorization")), append(bodies, body)
		if len(sent) > 1 {
			return responding(503, "")(r)
		}
		resp, err := responding(401, "<Error/>", "WWW-Authenticate", `Bearer realm="", error="insufficient_claims", claims="eyJhIjoiYiJ9"`)(r)
		resp.Body = struct {
			io.Reader
			io.Closer
		}{resp.Body, closer(func() { closed++ })}
		return resp, err
	})
	for op := range operations(nil) {
		q, err := Open("https://acct.queue.core.windows.net", "orders", &Options{Credential: claiming{}, Transport: answer})
		if err != nil {
			t.Fatal(err)
		}
		sent, bodies, closed = nil, nil, 0
		err = operations(q)[op](t.Context())
		if !errors.Is(err, queue.ErrThrottled) || !slices.Equal(sent, []string{"Bearer with ", `Bearer with {"a":"b"}`}) || bodies[0] != bodies[1] || closed != 1 {
			t.Errorf("%s: got %v, requests with %q and %q, %d bodies closed; want the same request again with the claims, and 1", op, err, sent, bodies, closed)
		}
	}
}

// claiming is a credential whose tokens name their claims.
type claiming struct{}

func (claiming) GetToken(_ context.Context, o policy.TokenRequestOptions) (azcore.AccessToken, error) {
	return azcore.AccessToken{Token: "with " + o.Claims, ExpiresOn: time.Now().Add(time.Hour)}, nil
}

func TestCredentialErrors(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		kind error
	}{
		"none available": {azidentity.NewCredentialUnavailableError("no login\nat all"), queue.ErrUnauthorized},
		"refused":        {&azidentity.AuthenticationFailedError{RawResponse: &http.Response{StatusCode: http.StatusUnauthorized, Body: http.NoBody}}, queue.ErrUnauthorized},
		"busy":           {&azidentity.AuthenticationFailedError{RawResponse: &http.Response{StatusCode: http.StatusServiceUnavailable, Body: http.NoBody}}, queue.ErrUnavailable},
		"unreachable":    {&net.OpError{Op: "dial", Err: errors.New("refused")}, queue.ErrUnavailable},
	} {
		q, err := Open("https://acct.queue.core.windows.net", "orders", &Options{Credential: fakeCredential{c.err}, Transport: canned(func(*http.Request) (*http.Response, error) {
			t.Errorf("%s: a request was sent", name)
			return nil, errors.New("no")
		})})
		if err != nil {
			t.Fatal(err)
		}
		for op, do := range operations(q) {
			err := do(t.Context())
			if !errors.Is(err, c.kind) {
				t.Errorf("%s with %s: got %v, want %v", op, name, err, c.kind)
			}
			known := written(t, err, op)
			if hinted := strings.Contains(known.Hint, "az login"); hinted != errors.Is(c.kind, queue.ErrUnauthorized) {
				t.Errorf("%s with %s: hint: got %q, want az login only if unauthorized", op, name, known.Hint)
			}
		}
	}
}

// Without a credential in the options, azidentity's is used, which is created without a request.
func TestDefaultCredential(t *testing.T) {
	q, err := Open("https://acct.queue.core.windows.net/", "orders", nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := q.Close(); err != nil {
		t.Error(err)
	}
}

func TestBadCredentialSetting(t *testing.T) {
	t.Setenv("AZURE_TOKEN_CREDENTIALS", "nonsense")
	_, err := Open("https://acct.queue.core.windows.net/", "orders", nil)
	if !errors.Is(err, queue.ErrUnauthorized) || strings.Contains(err.Error(), "\n") {
		t.Errorf("error: got %v, want ErrUnauthorized", err)
	}
}
