package main

import (
	"context"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// api is an API server of Kubernetes that answers each request by answer.
type api struct {
	*cluster
	folder string
	last   *http.Request
}

func serveAPI(t *testing.T, answer http.HandlerFunc) *api {
	t.Helper()
	a := &api{folder: t.TempDir()}
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a.last = r
		answer(w, r)
	}))
	t.Cleanup(server.Close)
	a.write(t, "ca.crt", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})))
	a.write(t, "token", "first\n")
	at, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	if a.cluster, err = openCluster(at.Hostname(), at.Port(), a.folder); err != nil {
		t.Fatal(err)
	}
	return a
}

func (a *api) write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(a.folder, name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// says answers with a status and a text.
func says(code int, text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(code)
		_, _ = w.Write([]byte(text))
	}
}

// scaleOf is what an API server answers; it leaves out replicas of zero.
func scaleOf(spec string) string {
	return `{"kind":"Scale","apiVersion":"autoscaling/v1","metadata":{"name":"worker","namespace":"jobs"},"spec":{` + spec + `},"status":{"replicas":3,"selector":"app=worker"}}`
}

func TestReplicas(t *testing.T) {
	for text, want := range map[string]int{scaleOf(`"replicas":12`): 12, scaleOf(``): 0} {
		a := serveAPI(t, says(http.StatusOK, text))
		if got, err := a.Replicas(t.Context(), "jobs", "worker"); got != want || err != nil {
			t.Errorf("%s: got %d, %v, want %d", text, got, err, want)
		}
		if got, want := a.last.Method+" "+a.last.URL.Path, "GET /apis/apps/v1/namespaces/jobs/deployments/worker/scale"; got != want {
			t.Errorf("asked %s, want %s", got, want)
		}
	}
}

// Kubernetes renews the token of a pod about every hour.
func TestTheTokenIsReadEachTime(t *testing.T) {
	a := serveAPI(t, says(http.StatusOK, scaleOf(`"replicas":1`)))
	for _, token := range []string{"first", "second"} {
		a.write(t, "token", token+"\n")
		if _, err := a.Replicas(t.Context(), "jobs", "worker"); err != nil {
			t.Fatal(err)
		}
		if got, want := a.last.Header.Get("Authorization"), "Bearer "+token; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// What is not a scale must not count as a scale of zero.
func TestOtherAnswersAreErrors(t *testing.T) {
	forbidden := `{"kind":"Status","message":"deployments.apps \"worker\" is forbidden"}`
	for name, test := range map[string]struct {
		answer http.HandlerFunc
		want   string
	}{
		"empty object": {says(200, `{}`), "no Scale"},
		"Deployment":   {says(200, `{"kind":"Deployment","spec":{"replicas":3}}`), `kind is "Deployment"`},
		"negative":     {says(200, scaleOf(`"replicas":-1`)), "replicas are -1"},
		"page":         {says(200, `<html>`), "no Scale"},
		"nothing":      {says(200, ``), "no Scale"},
		"cut off":      {says(200, scaleOf(`"replicas":12`)[:60]), "no Scale"},
		"large":        {says(200, scaleOf(`"more":"`+strings.Repeat("x", maxAnswer)+`"`)), "no Scale"},
		"forbidden":    {says(403, forbidden), "verb get on deployments/scale"},
		"unauthorized": {says(401, forbidden), "verb get on deployments/scale"},
		"missing":      {says(404, `{"kind":"Status","message":"not found"}`), "check the namespace and the name"},
		"overloaded":   {says(503, `busy`), "503"},
		"redirect":     {func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/elsewhere", http.StatusFound) }, "302"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := serveAPI(t, test.answer).Replicas(t.Context(), "jobs", "worker")
			if err == nil || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), "Deployment jobs/worker") {
				t.Errorf("got %d, %v, want an error about the Deployment that says %s", got, err, test.want)
			}
			if err != nil && (strings.Contains(err.Error(), "first") || len(err.Error()) > 500) {
				t.Errorf("got %v, want a short error without the token", err)
			}
		})
	}
}

func TestNamesThatLeadElsewhereAreRefused(t *testing.T) {
	a := serveAPI(t, says(http.StatusOK, scaleOf(`"replicas":1`)))
	for _, name := range []string{"", "..", "a/b", "a%2fb", "Upper", "-a", "a-", "a?b", strings.Repeat("a", 254)} {
		if _, err := a.Replicas(t.Context(), name, "worker"); err == nil {
			t.Errorf("namespace %q: got no error", name)
		}
		if _, err := a.Replicas(t.Context(), "jobs", name); err == nil {
			t.Errorf("name %q: got no error", name)
		}
	}
	if a.last != nil {
		t.Errorf("asked %s, want no request", a.last.URL)
	}
}

func TestACancelledContextEndsTheRequest(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	a := serveAPI(t, func(_ http.ResponseWriter, r *http.Request) {
		cancel()
		<-r.Context().Done()
	})
	if _, err := a.Replicas(ctx, "jobs", "worker"); err == nil {
		t.Error("got no error, want that of the context")
	}
}

func TestAnotherServerIsNotTrusted(t *testing.T) {
	a := serveAPI(t, says(http.StatusOK, scaleOf(`"replicas":1`)))
	// All test servers have one certificate, for 127.0.0.1 and example.com.
	a.cluster.address = strings.Replace(a.cluster.address, "127.0.0.1", "localhost", 1)
	if _, err := a.Replicas(t.Context(), "jobs", "worker"); err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("got %v, want an error about the certificate", err)
	}
	if a.last != nil {
		t.Error("the request with the token was sent")
	}
}

func TestOutsideOfAClusterIsSaid(t *testing.T) {
	empty := t.TempDir()
	bad := t.TempDir()
	if err := os.WriteFile(filepath.Join(bad, "ca.crt"), []byte("no certificate"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct{ host, port, folder, want string }{
		{"", "443", empty, "does not run in a pod"},
		{"10.0.0.1", "", empty, "does not run in a pod"},
		{"10.0.0.1", "443", empty, "not mounted"},
		{"10.0.0.1", "443", bad, "has no certificate"},
	} {
		if _, err := openCluster(test.host, test.port, test.folder); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("got %v, want %s", err, test.want)
		}
	}
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	if _, err := inCluster(); err == nil || !strings.Contains(err.Error(), "find the API of Kubernetes") {
		t.Errorf("inCluster: got %v, want an error", err)
	}
}

// A service account without a token, as with automountServiceAccountToken: false.
func TestAMissingTokenIsSaid(t *testing.T) {
	a := serveAPI(t, says(http.StatusOK, scaleOf(`"replicas":1`)))
	if err := os.Remove(filepath.Join(a.folder, "token")); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Replicas(t.Context(), "jobs", "worker"); err == nil || !strings.Contains(err.Error(), "token of the service account") {
		t.Errorf("got %v, want an error about the token", err)
	}
}
