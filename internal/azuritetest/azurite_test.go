package azuritetest

import (
	"net/http"
	"os"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	code := m.Run()
	Stop()
	if code == 0 {
		if err := goleak.Find(); err != nil {
			os.Stderr.WriteString(err.Error() + "\n")
			code = 1
		}
	}
	os.Exit(code)
}

func TestOneServerIsSharedAndStops(t *testing.T) {
	first := ConnectionString(t)
	if again := ConnectionString(t); again != first {
		t.Errorf("a second call gave another server:\n%s\n%s", first, again)
	}
	_, endpoint, _ := strings.Cut(first, "QueueEndpoint=")
	endpoint = strings.TrimSuffix(endpoint, ";")
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	response, err := client.Get(endpoint + "?comp=list")
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	if response.StatusCode != http.StatusForbidden {
		t.Errorf("status of an unsigned request: got %s, want 403", response.Status)
	}
	dir := shared.server.dir
	Stop()
	if response, err := client.Get(endpoint); err == nil {
		response.Body.Close()
		t.Error("still answers after Stop")
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("directory is still there: %v", err)
	}
}

func TestListeningLines(t *testing.T) {
	for _, line := range []string{
		"Azurite Queue service successfully listens on http://127.0.0.1:41679",
		"Azurite Queue service is successfully listening at http://127.0.0.1:41679",
	} {
		if m := listeningLine.FindStringSubmatch(line); m == nil || m[1] != "http://127.0.0.1:41679" {
			t.Errorf("%q gives %q", line, m)
		}
	}
	for _, line := range []string{
		"Azurite Queue service is starting on 127.0.0.1:0",
		"Azurite Blob service is successfully listening at http://127.0.0.1:38833",
	} {
		if m := listeningLine.FindStringSubmatch(line); m != nil {
			t.Errorf("%q gives %q", line, m)
		}
	}
}
