package azureblob_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/sas"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/service"

	"github.com/millrace/millrace/blob"
	"github.com/millrace/millrace/blob/azureblob"
	"github.com/millrace/millrace/internal/azuritetest"
)

// azurite returns Azurite's location and address.
func azurite(t *testing.T) (location, endpoint string) {
	t.Helper()
	location = azuritetest.BlobConnectionString(t)
	_, endpoint, _ = strings.Cut(location, "BlobEndpoint=")
	return location, strings.TrimSuffix(endpoint, ";")
}

func openAt(t *testing.T, location string, o *azureblob.Options) *azureblob.Store {
	t.Helper()
	s, err := azureblob.Open(location, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func newRef() blob.Ref {
	return blob.Ref{Container: "test-" + strings.ToLower(rand.Text()), Name: "a/b"}
}

// sign returns a signature for one container, or for the whole account when its name is empty.
func sign(t *testing.T, name, permissions string, expiry time.Time) string {
	t.Helper()
	c, err := service.NewSharedKeyCredential(azuritetest.Account, azuritetest.Key)
	if err != nil {
		t.Fatal(err)
	}
	var p sas.QueryParameters
	if name == "" {
		p, err = sas.AccountSignatureValues{Protocol: sas.ProtocolHTTPSandHTTP, ExpiryTime: expiry, Permissions: permissions, ResourceTypes: "sco"}.SignWithSharedKey(c)
	} else {
		p, err = sas.BlobSignatureValues{Protocol: sas.ProtocolHTTPSandHTTP, ExpiryTime: expiry, Permissions: permissions, ContainerName: name}.SignWithSharedKey(c)
	}
	if err != nil {
		t.Fatal(err)
	}
	return p.Encode()
}

func TestSharedAccessSignature(t *testing.T) {
	location, endpoint := azurite(t)
	later := time.Now().Add(time.Hour)
	ref := newRef()
	if err := openAt(t, location, nil).SetPublic(t.Context(), ref.Container, false); err != nil {
		t.Fatal(err)
	}
	whole, one := sign(t, "", "rwdlac", later), sign(t, ref.Container, "rwdl", later)
	for name, location := range map[string]string{
		"address with the account's":   endpoint + "?" + whole,
		"address with the container's": endpoint + "/?" + one,
		"address of the container":     endpoint + "/" + ref.Container + "?" + one,
		"connection string":            "BlobEndpoint=" + endpoint + ";SharedAccessSignature=" + one,
	} {
		s := openAt(t, location, &azureblob.Options{BlockSize: 1 << 10})
		for _, data := range [][]byte{content(10), content(5 << 10)} {
			if err := s.Put(t.Context(), ref, bytes.NewReader(data), nil); err != nil {
				t.Errorf("%s: %v", name, err)
				continue
			}
			if got := get(t, s, ref); got != string(data) {
				t.Errorf("%s: got %d bytes", name, len(got))
			}
		}
		for _, err := range s.List(t.Context(), ref.Container, "") {
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		if err := s.Delete(t.Context(), ref); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, signature := range map[string]string{
		"expired":               sign(t, ref.Container, "rwdl", time.Now().Add(-time.Hour)),
		"for reading":           sign(t, ref.Container, "r", later),
		"for another container": sign(t, "others", "rwdl", later),
		"forged":                strings.Replace(one, "sig=", "sig=AAAA", 1),
	} {
		err := openAt(t, endpoint+"?"+signature, nil).Put(t.Context(), ref, strings.NewReader("x"), nil)
		known := (*blob.Error)(nil)
		if !errors.As(err, &known) || !errors.Is(err, blob.ErrUnauthorized) || known.Status != 403 || known.Hint == "" || strings.Contains(err.Error(), signature) {
			t.Errorf("%s: %v", name, err)
		}
	}
	absent := blob.Ref{Container: "test-absent", Name: "a"}
	err := openAt(t, endpoint+"?"+sign(t, absent.Container, "rwdl", later), nil).Put(t.Context(), absent, strings.NewReader("x"), nil)
	if !errors.Is(err, blob.ErrUnauthorized) || !strings.Contains(err.Error(), "could not be created") {
		t.Errorf("a container that must not be created: %v", err)
	}
	wrong := strings.Replace(location, azuritetest.Key, "d3Jvbmc=", 1)
	if _, err := openAt(t, wrong, nil).Stat(t.Context(), ref); !errors.Is(err, blob.ErrUnauthorized) {
		t.Errorf("wrong key: %v", err)
	}
}

// TestEverybodyReadsAPublicContainer settles BL-05: blobs, not the list of them, and only while the
// container is public.
func TestEverybodyReadsAPublicContainer(t *testing.T) {
	location, endpoint := azurite(t)
	s := openAt(t, location, nil)
	ref := newRef()
	if err := s.Put(t.Context(), ref, strings.NewReader("for everybody"), nil); err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	fetch := func(method, path, body string) (status int, text string) {
		r, err := http.NewRequestWithContext(t.Context(), method, endpoint+"/"+ref.Container+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("X-Ms-Version", "2026-04-06")
		r.Header.Set("X-Ms-Blob-Type", "BlockBlob")
		resp, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		data, _ := io.ReadAll(resp.Body)
		return resp.StatusCode, string(data)
	}
	for _, public := range []bool{false, true, false} {
		if err := s.SetPublic(t.Context(), ref.Container, public); err != nil {
			t.Fatal(err)
		}
		status, text := fetch(http.MethodGet, "/a/b", "")
		if got := status == 200 && text == "for everybody"; got != public {
			t.Errorf("public %v: status %d, %q", public, status, text)
		}
		for what, r := range map[string][2]string{"listed": {http.MethodGet, "?restype=container&comp=list"}, "overwritten": {http.MethodPut, "/a/b"}, "deleted": {http.MethodDelete, "/a/b"}} {
			if status, _ := fetch(r[0], r[1], ""); status < 400 {
				t.Errorf("public %v: it was %s by anybody", public, what)
			}
		}
	}
}

// TestSetAccessKeepsStoredPolicies: signatures rest on them.
func TestSetAccessKeepsStoredPolicies(t *testing.T) {
	location, _ := azurite(t)
	s := openAt(t, location, nil)
	ref := newRef()
	if err := s.SetPublic(t.Context(), ref.Container, false); err != nil {
		t.Fatal(err)
	}
	sdk, err := service.NewClientFromConnectionString(location, nil)
	if err != nil {
		t.Fatal(err)
	}
	c := sdk.NewContainerClient(ref.Container)
	id, permission := "mine", "r"
	stored := []*container.SignedIdentifier{{ID: &id, AccessPolicy: &container.AccessPolicy{Permission: &permission}}}
	if _, err := c.SetAccessPolicy(t.Context(), &container.SetAccessPolicyOptions{ContainerACL: stored}); err != nil {
		t.Fatal(err)
	}
	if err := s.SetPublic(t.Context(), ref.Container, true); err != nil {
		t.Fatal(err)
	}
	got, err := c.GetAccessPolicy(t.Context(), nil)
	if err != nil || len(got.SignedIdentifiers) != 1 || *got.SignedIdentifiers[0].ID != id {
		t.Errorf("stored policies: %+v, %v", got.SignedIdentifiers, err)
	}
	if public, err := s.Public(t.Context(), ref.Container); !public || err != nil {
		t.Errorf("public is %v, %v", public, err)
	}
}

// counter counts the requests of an operation that a server responds to.
type counter struct {
	next http.RoundTripper
	mu   sync.Mutex
	ops  []string // guarded by mu
}

func (c *counter) Do(r *http.Request) (*http.Response, error) {
	c.mu.Lock()
	c.ops = append(c.ops, strings.TrimSpace(r.Method+" "+r.URL.Query().Get("comp")))
	c.mu.Unlock()
	return c.next.RoundTrip(r)
}

func (c *counter) arrived() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	defer func() { c.ops = nil }()
	return c.ops
}

// TestAzuriteContinuesAPutThatBrokeOff settles B-03 on a server that is not ours.
func TestAzuriteContinuesAPutThatBrokeOff(t *testing.T) {
	location, _ := azurite(t)
	sockets := &http.Transport{}
	t.Cleanup(sockets.CloseIdleConnections)
	c := &counter{next: sockets}
	s := openAt(t, location, &azureblob.Options{BlockSize: 64 << 10, Transport: c})
	data, ref := content(10*64<<10), newRef()
	if err := s.SetPublic(t.Context(), ref.Container, false); err != nil {
		t.Fatal(err)
	}
	if err := s.Put(t.Context(), ref, io.MultiReader(bytes.NewReader(data[:6*64<<10+1]), iotest.ErrReader(errCut)), nil); !errors.Is(err, errCut) {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	if err := s.Put(ctx, ref, io.MultiReader(bytes.NewReader(data[:8*64<<10+1]), cancelReader{cancel}), nil); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if exists, err := blob.Exists(t.Context(), s, ref); exists || err != nil {
		t.Errorf("half a blob exists: %v, %v", exists, err)
	}
	for _, err := range s.List(t.Context(), ref.Container, "") {
		t.Errorf("half a blob is listed: %v", err)
	}
	c.arrived()
	if err := s.Create(t.Context(), ref, bytes.NewReader(data), nil); err != nil {
		t.Fatal(err)
	}
	if n := count(c.arrived(), "PUT block"); n != 2 {
		t.Errorf("%d blocks were sent, want the last two", n)
	}
	if got := get(t, s, ref); got != string(data) {
		t.Errorf("got %d bytes", len(got))
	}
}

// cancelReader cancels a context, and goes on.
type cancelReader struct{ cancel func() }

func (c cancelReader) Read(p []byte) (int, error) {
	c.cancel()
	return copy(p, "more"), nil
}

// breaker breaks connections to a real server at given bytes of requests and responses, in turn.
type breaker struct {
	next http.RoundTripper
	mu   sync.Mutex
	left []fault // guarded by mu
}

func (b *breaker) Do(r *http.Request) (*http.Response, error) {
	b.mu.Lock()
	var f fault
	if len(b.left) > 0 {
		f, b.left = b.left[0], b.left[1:]
	}
	b.mu.Unlock()
	if f.cutRequest > 0 && r.Body != nil {
		r = r.WithContext(r.Context())
		r.Body = struct {
			io.Reader
			io.Closer
		}{io.MultiReader(io.LimitReader(r.Body, int64(f.cutRequest)), iotest.ErrReader(errCut)), r.Body}
		r.GetBody = nil
	}
	resp, err := b.next.RoundTrip(r)
	switch {
	case err != nil:
		return nil, err
	case f.unanswered:
		resp.Body.Close()
		return nil, errCut
	case f.cutResponse > 0:
		resp.Body = struct {
			io.Reader
			io.Closer
		}{io.MultiReader(io.LimitReader(resp.Body, int64(f.cutResponse)), iotest.ErrReader(errCut)), resp.Body}
	}
	return resp, nil
}

// TestAzuriteSurvivesBrokenConnections: sockets break in the middle of requests and responses.
func TestAzuriteSurvivesBrokenConnections(t *testing.T) {
	t.Parallel() // it waits, most of the time
	location, _ := azurite(t)
	const size = 32 << 10
	data := content(4*size + 100)
	for _, f := range []fault{{cutRequest: 1}, {cutRequest: size - 1}, {unanswered: true}, {cutResponse: 1}, {cutResponse: 3*size + 5}} {
		t.Run("", func(t *testing.T) {
			t.Parallel()
			sockets := &http.Transport{}
			t.Cleanup(sockets.CloseIdleConnections)
			b := &breaker{next: sockets}
			s := openAt(t, location, &azureblob.Options{BlockSize: size, Transport: b})
			ref := newRef()
			if err := s.SetPublic(t.Context(), ref.Container, false); err != nil {
				t.Fatal(err)
			}
			b.left = []fault{{}, f, {}, f, {}, {}, f, f} // blocks, commit
			if err := s.Create(t.Context(), ref, bytes.NewReader(data), nil); err != nil {
				t.Fatalf("create: %v", err)
			}
			b.left = []fault{f, f}
			if got := get(t, s, ref); got != string(data) {
				t.Errorf("got %d bytes of %d", len(got), len(data))
			}
			b.left = []fault{f}
			n := 0
			for info, err := range s.List(t.Context(), ref.Container, "") {
				if n++; err != nil || info.Ref != ref {
					t.Errorf("list: %v, %v", info, err)
				}
			}
			b.left = []fault{f}
			if err := s.Delete(t.Context(), ref); err != nil || n != 1 {
				t.Errorf("delete: %v after %d blobs", err, n)
			}
		})
	}
}

// TestAzuriteListsByPages: a signature does not cover the size of the page, so that a transport can
// ask for small ones.
func TestAzuriteListsByPages(t *testing.T) {
	_, endpoint := azurite(t)
	sockets := &http.Transport{}
	t.Cleanup(sockets.CloseIdleConnections)
	pages := 0
	s := openAt(t, endpoint+"?"+sign(t, "", "rwdlac", time.Now().Add(time.Hour)), &azureblob.Options{Transport: transport(func(r *http.Request) (*http.Response, error) {
		if q := r.URL.Query(); q.Get("comp") == "list" {
			pages++
			q.Set("maxresults", "2")
			r.URL.RawQuery = q.Encode()
		}
		return sockets.RoundTrip(r)
	})})
	ref := newRef()
	var want, got []string
	for _, name := range []string{"a", "b", "b-c", "b/1", "b_c"} {
		ref.Name = name
		want = append(want, name)
		if err := s.Put(t.Context(), ref, strings.NewReader(name), &blob.PutOptions{Metadata: map[string]string{"name": name}}); err != nil {
			t.Fatal(err)
		}
	}
	for b, err := range s.List(t.Context(), ref.Container, "") {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, b.Metadata["name"])
	}
	if strings.Join(got, " ") != strings.Join(want, " ") || pages != 3 {
		t.Errorf("listed %v in %d pages", got, pages)
	}
}

// TestForeignBlobsAreNotListed: other programs use other names.
func TestForeignBlobsAreNotListed(t *testing.T) {
	location, _ := azurite(t)
	s := openAt(t, location, nil)
	ref := newRef()
	if err := s.Put(t.Context(), ref, strings.NewReader("x"), nil); err != nil {
		t.Fatal(err)
	}
	sdk, err := service.NewClientFromConnectionString(location, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"Upper.PNG", "with space", "ä"} {
		if _, err := sdk.NewContainerClient(ref.Container).NewBlockBlobClient(name).UploadBuffer(t.Context(), []byte("x"), nil); err != nil {
			t.Fatal(err)
		}
	}
	for b, err := range s.List(t.Context(), ref.Container, "") {
		if err != nil || b.Ref != ref {
			t.Errorf("listed %v, %v", b.Ref, err)
		}
	}
}

// TestAnAppendBlobCanBeReadAndReplaced: another program made it.
func TestAnAppendBlobCanBeReadAndReplaced(t *testing.T) {
	location, _ := azurite(t)
	s := openAt(t, location, &azureblob.Options{BlockSize: 1 << 10})
	ref := newRef()
	if err := s.SetPublic(t.Context(), ref.Container, false); err != nil {
		t.Fatal(err)
	}
	sdk, err := service.NewClientFromConnectionString(location, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := sdk.NewContainerClient(ref.Container).NewAppendBlobClient(ref.Name).Create(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if got := get(t, s, ref); got != "" {
		t.Errorf("got %q", got)
	}
	if err := s.Put(t.Context(), ref, bytes.NewReader(content(3<<10)), nil); err != nil && !errors.Is(err, blob.ErrInvalid) {
		t.Errorf("put large: %v", err)
	}
	if err := s.Put(t.Context(), ref, strings.NewReader("text"), nil); err != nil || get(t, s, ref) != "text" {
		t.Errorf("put small: %v", err)
	}
}
