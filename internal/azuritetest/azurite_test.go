package azuritetest

import (
	"errors"
	"net/http"
	"os"
	"path/filepath"
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
	for _, v := range []*service{queueService, blobService, tableService} {
		t.Run(v.name, func(t *testing.T) { oneServerIsSharedAndStops(t, v) })
	}
}

func oneServerIsSharedAndStops(t *testing.T, v *service) {
	first := v.connectionString(t)
	if again := v.connectionString(t); again != first {
		t.Errorf("a second call gave another server:\n%s\n%s", first, again)
	}
	_, endpoint, _ := strings.Cut(first, v.title+"Endpoint=")
	endpoint = strings.TrimSuffix(endpoint, ";")
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	list := map[string]string{"queue": "?comp=list", "blob": "?comp=list", "table": "/Tables"}
	response, err := client.Get(endpoint + list[v.name])
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	if response.StatusCode != http.StatusForbidden {
		t.Errorf("status of an unsigned request: got %s, want 403", response.Status)
	}
	dir := v.server.dir
	Stop()
	if response, err := client.Get(endpoint); err == nil {
		response.Body.Close()
		t.Error("still answers after Stop")
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("directory is still there: %v", err)
	}
}

// TestTheExecutablesAreBesideEachOther: AZURITE names one of them, or the one that has it all.
func TestTheExecutablesAreBesideEachOther(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"azurite", "azurite-queue", "azurite-blob"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"), 0o777); err != nil {
			t.Fatal(err)
		}
	}
	for set, want := range map[string]string{"azurite-queue": "azurite-blob", "azurite-blob": "azurite-blob", "azurite": "azurite"} {
		t.Setenv("AZURITE", filepath.Join(dir, set))
		if got, err := blobService.find(); err != nil || len(got) != 1 || got[0] != filepath.Join(dir, want) {
			t.Errorf("%s gives %v, %v", set, got, err)
		}
	}
	t.Setenv("AZURITE", filepath.Join(dir, "azurite-queue"))
	if got, err := tableService.find(); err != nil || len(got) != 1 || got[0] != filepath.Join(dir, "azurite") {
		t.Errorf("the table service: %v, %v", got, err)
	}
	if err := os.Remove(filepath.Join(dir, "azurite-blob")); err != nil {
		t.Fatal(err)
	}
	t.Setenv("AZURITE", filepath.Join(dir, "azurite-queue"))
	if got, err := blobService.find(); err == nil || errors.Is(err, ErrAbsent) {
		t.Errorf("without the executable: %v, %v", got, err)
	}
}

func TestListeningLines(t *testing.T) {
	for _, line := range []string{
		"Azurite Queue service successfully listens on http://127.0.0.1:41679",
		"Azurite Queue service is successfully listening at http://127.0.0.1:41679",
	} {
		if url := queueService.listening(line); url != "http://127.0.0.1:41679" {
			t.Errorf("%q gives %q", line, url)
		}
	}
	for _, line := range []string{
		"Azurite Queue service is starting on 127.0.0.1:0",
		"Azurite Blob service is successfully listening at http://127.0.0.1:38833",
		"Azurite Table service successfully started on 127.0.0.1:0",
	} {
		if url := queueService.listening(line); url != "" {
			t.Errorf("%q gives %q", line, url)
		}
	}
}
