package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// serviceAccount is where Kubernetes puts the token of a pod and the authority of the API server's
// certificate.
const serviceAccount = "/var/run/secrets/kubernetes.io/serviceaccount"

// maxAnswer bounds what is read of an answer, in bytes.
const maxAnswer = 64 << 10

// cluster is the cluster in which this process runs. It tells how many replicas a Deployment is asked
// to have. That is one request of the API, and therefore needs no client library. The process must run
// under a service account that may get the scale of the Deployment; deploy/keda has the role. A cluster
// is safe for concurrent use.
type cluster struct {
	address string // of the API, without a slash at its end
	token   string // path of the file; Kubernetes renews its content
	client  *http.Client
}

// inCluster returns the cluster that the environment and the files of the service account describe. It
// sends no request.
func inCluster() (*cluster, error) {
	c, err := openCluster(os.Getenv("KUBERNETES_SERVICE_HOST"), os.Getenv("KUBERNETES_SERVICE_PORT"), serviceAccount)
	if err != nil {
		return nil, fmt.Errorf("find the API of Kubernetes: %w", err)
	}
	return c, nil
}

func openCluster(host, port, folder string) (*cluster, error) {
	if host == "" || port == "" {
		return nil, errors.New("KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set: this process does not run in a pod")
	}
	authority, err := os.ReadFile(filepath.Join(folder, "ca.crt"))
	if err != nil {
		return nil, fmt.Errorf("the service account is not mounted: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(authority) {
		return nil, fmt.Errorf("%s has no certificate", filepath.Join(folder, "ca.crt"))
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}, DisableKeepAlives: true}
	return &cluster{
		address: "https://" + net.JoinHostPort(host, port),
		token:   filepath.Join(folder, "token"),
		client:  &http.Client{Transport: transport, Timeout: 10 * time.Second, CheckRedirect: noRedirect},
	}, nil
}

// noRedirect keeps the token from other servers.
func noRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// Replicas returns how many replicas the Deployment is asked to have, including those that do not run
// yet. It is one request, of at most 10 s.
func (c *cluster) Replicas(ctx context.Context, namespace, name string) (int, error) {
	n, err := c.replicas(ctx, namespace, name)
	if err != nil {
		return 0, fmt.Errorf("read the scale of the Deployment %s/%s: %w", namespace, name, err)
	}
	return n, nil
}

func (c *cluster) replicas(ctx context.Context, namespace, name string) (int, error) {
	if err := errors.Join(checkKubernetesName(namespace), checkKubernetesName(name)); err != nil {
		return 0, err
	}
	token, err := os.ReadFile(c.token)
	if err != nil {
		return 0, fmt.Errorf("the token of the service account: %w", err)
	}
	url := fmt.Sprintf("%s/apis/apps/v1/namespaces/%s/deployments/%s/scale", c.address, namespace, name)
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, err
	}
	r.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	r.Header.Set("Accept", "application/json")
	answer, err := c.client.Do(r)
	if err != nil {
		return 0, err
	}
	defer func() { _ = answer.Body.Close() }() // read, so nothing is lost
	body, err := io.ReadAll(io.LimitReader(answer.Body, maxAnswer))
	if err != nil {
		return 0, err
	}
	if answer.StatusCode != http.StatusOK {
		return 0, refusal(answer.StatusCode, body)
	}
	return parseScale(body)
}

// parseScale returns the replicas of a Scale. A Scale of zero has no field "replicas", so another answer
// must not count as one.
func parseScale(body []byte) (int, error) {
	var scale struct {
		Kind string
		Spec struct{ Replicas int }
	}
	if err := json.Unmarshal(body, &scale); err != nil {
		return 0, fmt.Errorf("the answer is no Scale: %w", err)
	}
	if scale.Kind != "Scale" || scale.Spec.Replicas < 0 {
		return 0, fmt.Errorf("the answer is no Scale: its kind is %.50q, its replicas are %d", scale.Kind, scale.Spec.Replicas)
	}
	return scale.Spec.Replicas, nil
}

// refusal returns the error for a status other than success, with the message of the API server.
func refusal(code int, body []byte) error {
	var said struct{ Message string }
	if json.Unmarshal(body, &said) != nil || said.Message == "" {
		said.Message = "no message"
	}
	hint := ""
	switch code {
	case http.StatusUnauthorized, http.StatusForbidden:
		hint = "; the service account needs the verb get on deployments/scale, as deploy/keda/scaler.yaml has it"
	case http.StatusNotFound:
		hint = "; check the namespace and the name"
	}
	return fmt.Errorf("the API answered %d, %.300q%s", code, said.Message, hint)
}

// checkKubernetesName returns an error if this is not a name of Kubernetes: up to 253 lower-case letters,
// digits, dashes and dots, a letter or digit first and last.
func checkKubernetesName(name string) error {
	letter := func(c byte) bool { return 'a' <= c && c <= 'z' || '0' <= c && c <= '9' }
	ok := name != "" && len(name) <= 253 && letter(name[0]) && letter(name[len(name)-1])
	for i := range len(name) {
		ok = ok && (letter(name[i]) || name[i] == '-' || name[i] == '.')
	}
	if !ok {
		return fmt.Errorf("%.100q is no name of Kubernetes: want lower-case letters, digits, dashes and dots", name)
	}
	return nil
}
