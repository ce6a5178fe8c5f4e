package account

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/millrace/millrace/examples/internal/plainlog"
	"github.com/millrace/millrace/internal/azurestorage"
)

// The server says whether it is Azurite, which has the other services, even when it refuses a request.
func TestAnotherServiceOfAnAccountIsUsedIfItHasOne(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		location     string
		service      azurestorage.Service
		server, want string
	}{
		"a local server":              {"AccountName=a;" + keyOfAnyone + ";QueueEndpoint=http://HOST/a", azurestorage.Blob, "Azurite-Queue/3", ""},
		"a named blob service":        {"AccountName=a;" + keyOfAnyone + ";QueueEndpoint=http://HOST/a;BlobEndpoint=http://x/a", azurestorage.Blob, "", "same"},
		"no named table service":      {"AccountName=a;" + keyOfAnyone + ";QueueEndpoint=http://HOST/a;BlobEndpoint=http://x/a", azurestorage.Table, "", ""},
		"a named table service":       {"AccountName=a;" + keyOfAnyone + ";QueueEndpoint=http://HOST/a;TableEndpoint=http://x/a", azurestorage.Table, "", "same"},
		"Azure":                       {"AccountName=a1a;" + keyOfAnyone, azurestorage.Table, "", "same"},
		"Azure by login":              {"https://a1a.queue.core.windows.net", azurestorage.Blob, "", "https://a1a.blob.core.windows.net"},
		"Azure's tables by login":     {"https://a1a.queue.core.windows.net", azurestorage.Table, "", "https://a1a.table.core.windows.net"},
		"Azure by signature":          {"https://a1a.queue.core.windows.net?sv=1&sig=x", azurestorage.Blob, "", "https://a1a.blob.core.windows.net?sv=1&sig=x"},
		"another cloud":               {"https://a1a.queue.core.chinacloudapi.cn", azurestorage.Table, "", "https://a1a.table.core.chinacloudapi.cn"},
		"a domain of one's own":       {"https://queues.example.com", azurestorage.Table, "", ""},
		"millrace serve, the name":    {LocalServer, azurestorage.Blob, "Millrace-Queue/1.0", ""},
		"millrace serve has no table": {LocalServer, azurestorage.Table, "Millrace-Queue/1.0", ""},
		"Azurite, the same name":      {LocalServer, azurestorage.Blob, "Azurite-Queue/3.35.0", "same"},
		"Azurite's tables":            {LocalServer, azurestorage.Table, "Azurite-Queue/3.35.0", "same"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Server", c.server)
				w.WriteHeader(http.StatusForbidden)
			}))
			defer server.Close()
			location := strings.Replace(c.location, "http://HOST", server.URL, 1)
			a, err := Open(location, plainlog.New(t.Output()))
			if err != nil {
				t.Fatal(err)
			}
			defer a.Close()
			if location == LocalServer { // whatever listens there
				a.at.Endpoint = server.URL + "/"
			}
			want := c.want
			if want == "same" {
				want = location
			}
			if got, err := a.service(t.Context(), c.service); err != nil || got != want {
				t.Errorf("got %q, %v; want %q", got, err, want)
			}
		})
	}
}
