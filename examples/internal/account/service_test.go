package account

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/millrace/millrace/examples/internal/plainlog"
)

// The server says whether it is Azurite, which has the other services, even when it refuses a request.
func TestAnotherServiceOfAnAccountIsUsedIfItHasOne(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ location, service, server, want string }{
		"a local server":              {"AccountName=a;" + keyOfAnyone + ";QueueEndpoint=http://HOST/a", "blob", "Azurite-Queue/3", ""},
		"a named blob service":        {"AccountName=a;" + keyOfAnyone + ";QueueEndpoint=http://HOST/a;BlobEndpoint=http://x/a", "blob", "", "same"},
		"no named table service":      {"AccountName=a;" + keyOfAnyone + ";QueueEndpoint=http://HOST/a;BlobEndpoint=http://x/a", "table", "", ""},
		"a named table service":       {"AccountName=a;" + keyOfAnyone + ";QueueEndpoint=http://HOST/a;TableEndpoint=http://x/a", "table", "", "same"},
		"Azure":                       {"AccountName=a1a;" + keyOfAnyone, "table", "", "same"},
		"Azure by login":              {"https://a1a.queue.core.windows.net", "blob", "", "https://a1a.blob.core.windows.net/"},
		"Azure's tables by login":     {"https://a1a.queue.core.windows.net", "table", "", "https://a1a.table.core.windows.net/"},
		"Azure by signature":          {"https://a1a.queue.core.windows.net?sv=1&sig=x", "blob", "", "https://a1a.blob.core.windows.net/?sv=1&sig=x"},
		"another cloud":               {"https://a1a.queue.core.chinacloudapi.cn", "table", "", "https://a1a.table.core.chinacloudapi.cn/"},
		"a domain of one's own":       {"https://queues.example.com", "table", "", ""},
		"millrace serve, the name":    {LocalServer, "blob", "Millrace-Queue/1.0", ""},
		"millrace serve has no table": {LocalServer, "table", "Millrace-Queue/1.0", ""},
		"Azurite, the same name":      {LocalServer, "blob", "Azurite-Queue/3.35.0", "same"},
		"Azurite's tables":            {LocalServer, "table", "Azurite-Queue/3.35.0", "same"},
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
