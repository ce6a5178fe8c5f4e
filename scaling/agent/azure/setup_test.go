package azure_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"go.uber.org/goleak"

	"github.com/millrace/millrace/scaling/agent/azure"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	group        = "/subscriptions/01234567-89ab-cdef-0123-456789abcdef/resourceGroups/shop/providers/"
	containerApp = group + "Microsoft.App/containerApps/orders"
	scaleSet     = group + "Microsoft.Compute/virtualMachineScaleSets/orders"
	operations   = "https://management.azure.com/subscriptions/01234567-89ab-cdef-0123-456789abcdef/operations/1?api-version=1"
)

// management is a fake of the management API with one resource.
type management struct {
	t  *testing.T
	id string

	mu       sync.Mutex
	n        int      // guarded by mu: what the resource is asked to have
	state    string   // guarded by mu: its provisioningState
	extra    string   // guarded by mu: further properties of a container app, or of its template
	replicas int      // guarded by mu: of the last ready revision
	sent     []string // guarded by mu: what was asked for, such as "GET" and "PATCH 5"

	// answer answers a request instead, unless it returns nil twice. It may call do for the usual
	// effect.
	answer func(r *http.Request, do func() *http.Response) (*http.Response, error)
}

// respond returns an answer.
func respond(status int, body string, headers ...string) *http.Response {
	header := http.Header{"Content-Type": {"application/json"}}
	for i := 0; i < len(headers); i += 2 {
		header.Set(headers[i], headers[i+1])
	}
	return &http.Response{StatusCode: status, Header: header, Body: io.NopCloser(strings.NewReader(body))}
}

// RoundTrip implements [http.RoundTripper].
func (m *management) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Host != "management.azure.com" || r.Header.Get("Authorization") != "Bearer token" {
		m.t.Errorf("got a request to %s with the authorization %q", r.URL, r.Header.Get("Authorization"))
	}
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	var body []byte
	if r.Body != nil {
		body, _ = io.ReadAll(r.Body)
	}
	do := func() *http.Response { return m.do(r, body) }
	m.mu.Lock()
	answer := m.answer
	m.sent = append(m.sent, m.describe(r, body))
	m.mu.Unlock()
	if answer != nil {
		if response, err := answer(r, do); response != nil || err != nil {
			return response, err
		}
	}
	return do(), nil
}

// describe returns how the tests call a request. A PATCH has nothing but the number.
func (m *management) describe(r *http.Request, body []byte) string {
	switch {
	case strings.HasSuffix(r.URL.Path, "/operations/1"):
		return "GET operation"
	case strings.Contains(r.URL.Path, "/revisions/"):
		return "GET revision"
	case r.Method == http.MethodGet:
		return "GET"
	}
	return r.Method + " " + string(body)
}

// do has the usual effect of a request: a change is accepted, and in progress until the test sets
// another state.
func (m *management) do(r *http.Request, body []byte) *http.Response {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case strings.HasSuffix(r.URL.Path, "/operations/1"):
		status := map[string]string{"Updating": "InProgress"}[m.state]
		if status == "" {
			status = m.state
		}
		return respond(200, fmt.Sprintf(`{"status": %q, "error": {"code": "QuotaExceeded", "message": "there are\n4 cores"}}`, status), "Retry-After", "20")
	case strings.HasSuffix(r.URL.Path, "/revisions/orders--old"):
		return respond(200, fmt.Sprintf(`{"properties": {"replicas": %d}}`, m.replicas))
	case r.URL.Path != m.id:
		return respond(404, `{"error": {"code": "ResourceNotFound", "message": "no such resource"}}`)
	case r.Method == http.MethodGet:
		return respond(200, m.resource())
	}
	var change struct {
		SKU        struct{ Capacity int }
		Properties struct {
			Template struct{ Scale struct{ MinReplicas int } }
		}
	}
	if err := json.Unmarshal(body, &change); err != nil {
		m.t.Error(err)
	}
	m.n, m.state = change.SKU.Capacity+change.Properties.Template.Scale.MinReplicas, "Updating"
	return respond(202, "", "Azure-AsyncOperation", operations, "Retry-After", "15")
}

// resource returns the resource. The caller holds the lock.
func (m *management) resource() string {
	if m.id == scaleSet {
		return fmt.Sprintf(`{"sku": {"name": "Standard_D2", "capacity": %d}, "properties": {"provisioningState": %q}}`, m.n, m.state)
	}
	return fmt.Sprintf(`{"properties": {"provisioningState": %q, "latestReadyRevisionName": "orders--old", "configuration": {"activeRevisionsMode": "Single"},
		"template": {"revisionSuffix": %q, "scale": {"minReplicas": %d, "maxReplicas": %d, "rules": null}}}}`, m.state, m.extra, m.n, max(m.n, 1))
}

// requests returns what was asked for since the last call.
func (m *management) requests() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	sent := strings.Join(m.sent, ", ")
	m.sent = nil
	return sent
}

func (m *management) instances() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.n
}

func (m *management) set(n int, state string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.n, m.state = n, state
}

// actuator returns an actuator for the fake, and the fake, whose resource has two instances.
func actuator(t *testing.T, id string) (*azure.Actuator, *management) {
	t.Helper()
	m := &management{t: t, id: id, n: 2, state: "Succeeded", replicas: 2}
	a, err := azure.New(id, &azure.Options{Credential: credential{}, Transport: &http.Client{Transport: m}})
	if err != nil {
		t.Fatal(err)
	}
	return a, m
}

// credential is one whose tokens are good for an hour.
type credential struct{ err error }

func (c credential) GetToken(context.Context, policy.TokenRequestOptions) (azcore.AccessToken, error) {
	return azcore.AccessToken{Token: "token", ExpiresOn: time.Now().Add(time.Hour)}, c.err
}

// endless is a body without end, of which only the beginning may be read.
type endless struct {
	t    *testing.T
	read int
}

func (e *endless) Read(p []byte) (int, error) {
	e.read += len(p)
	if e.read > 2<<20 {
		e.t.Error("more than 2 MiB of an answer are read")
		return 0, errors.New("too much")
	}
	return copy(p, bytes.Repeat([]byte{' '}, len(p))), nil
}

// patch returns how the fake describes a PATCH to n.
func patch(id string, n int) string {
	if id == scaleSet {
		return fmt.Sprintf(`PATCH {"sku":{"capacity":%d}}`, n)
	}
	return fmt.Sprintf(`PATCH {"properties":{"template":{"scale":{"maxReplicas":%d,"minReplicas":%d}}}}`, max(n, 1), n)
}

// must returns the value of a constructor that must not fail.
func must[T any](made T, err error) T {
	if err != nil {
		panic(err)
	}
	return made
}
