package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"mime/multipart"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millrace/millrace/examples/internal/account"
	"github.com/millrace/millrace/examples/internal/cli"
	"github.com/millrace/millrace/examples/mosaic/web"
)

// served is mosaic serve in a process of its own.
type served struct {
	*program
	address string
}

func startServe(t *testing.T, data string, flags ...string) *served {
	t.Helper()
	p := start(t, append([]string{"serve", "-addr", "127.0.0.1:0", "-data", data}, flags...)...)
	for {
		line, err := p.stdout.ReadString('\n')
		if err != nil {
			t.Fatalf("output: got its end, want the address; stderr: %s", p.stderr.String())
		}
		if _, rest, ok := strings.Cut(line, "The page is at "); ok {
			address, _, _ := strings.Cut(rest, "/;")
			return &served{p, address}
		}
	}
}

func (s *served) post(path string, fields ...string) map[string]any {
	s.t.Helper()
	var body bytes.Buffer
	form := multipart.NewWriter(&body)
	for i := 0; i < len(fields); i += 2 {
		_ = form.WriteField(fields[i], fields[i+1]) // a buffer
	}
	_ = form.Close() // a buffer
	answer, err := http.Post(s.address+path, form.FormDataContentType(), &body)
	if err != nil {
		s.t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode > 299 {
		s.t.Fatalf("POST %s: got %d %s, %v", path, answer.StatusCode, text, err)
	}
	var v map[string]any
	if err := json.Unmarshal(text, &v); err != nil {
		s.t.Fatal(err)
	}
	return v
}

// until reads a stream of events until ok returns true for the data of one.
func (s *served) until(path string, ok func(data []byte) bool) {
	s.t.Helper()
	answer, err := http.Get(s.address + path)
	if err != nil {
		s.t.Fatal(err)
	}
	defer answer.Body.Close()
	lines := bufio.NewReader(answer.Body)
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			s.t.Fatalf("GET %s: the stream ended: %v", path, err)
		}
		if data, found := strings.CutPrefix(line, "data: "); found && ok([]byte(data)) {
			return
		}
	}
}

func (s *served) untilStatus(ok func(web.Status) bool) (now web.Status) {
	s.t.Helper()
	s.until("/events", func(data []byte) bool {
		now = web.Status{}
		return json.Unmarshal(data, &now) == nil && ok(now)
	})
	return now
}

func (s *served) untilJob(path, state string) {
	s.t.Helper()
	s.until(path+"/events", func(data []byte) bool {
		var now struct{ State, Error string }
		if err := json.Unmarshal(data, &now); err != nil {
			s.t.Fatal(err)
		}
		if now.State == "failed" {
			s.t.Fatalf("job: it failed: %s", now.Error)
		}
		return now.State == state
	})
}

// shortLeases creates the queues in a folder, so that the work of killed processes is soon taken up again.
func shortLeases(t *testing.T, folder string) {
	t.Helper()
	own, err := openServer(folder)
	if err != nil {
		t.Fatal(err)
	}
	location, err := own.start()
	if err != nil {
		t.Fatal(err)
	}
	createQueues(t, location)
	if err := own.close(); err != nil {
		t.Fatal(err)
	}
}

// A processor is killed, then the whole program, both in the middle of a job. The job is done by the next
// run, and no processor outlives its program.
func TestServeSurvivesKills(t *testing.T) {
	t.Parallel()
	data := filepath.Join(t.TempDir(), "data")
	shortLeases(t, filepath.Join(data, "queues"))
	tiles := t.TempDir()
	if err := os.WriteFile(filepath.Join(tiles, "one.png"), samplePNG(t), 0o600); err != nil {
		t.Fatal(err)
	}
	flags := []string{"-tiles", tiles, "-processors", "2"}
	s := startServe(t, data, flags...)
	running := func(now web.Status) bool {
		return now.Processors[0].PID > 0 && now.Processors[1].PID > 0
	}
	s.untilStatus(running)
	s.post("/faults", "kind", "slow")
	before := s.untilStatus(func(now web.Status) bool { return now.Slow && running(now) })
	job := s.post("/jobs", "builtin", "1", "tile", "64")["url"].(string)
	s.untilJob(job, "working")
	s.post("/processors/0/kill")
	s.untilStatus(func(now web.Status) bool { return running(now) && now.Processors[0].PID != before.Processors[0].PID })
	if err := s.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	// It ends when the processors have ended too: they have its standard error.
	if code := s.wait(); code != -1 {
		t.Errorf("exit status: got %d, want that of a kill", code)
	}

	s = startServe(t, data, flags...)
	s.untilJob(job, "done")
	answer, err := http.Get(s.address + job + "/mosaic")
	if err != nil {
		t.Fatal(err)
	}
	mosaic, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != http.StatusOK || !bytes.HasPrefix(mosaic, []byte("\x89PNG")) {
		t.Errorf("mosaic: got %d and %d bytes, %v", answer.StatusCode, len(mosaic), err)
	}
	answer.Body.Close()
	http.DefaultClient.CloseIdleConnections()

	// A stream that is open does not delay the end.
	s.untilStatus(func(web.Status) bool { return true })
	stream, err := http.Get(s.address + "/events")
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Body.Close()
	s.signal(os.Interrupt)
	if code := s.wait(); code != cli.StatusDone {
		t.Errorf("exit status: got %d, want %d; stderr: %s", code, cli.StatusDone, s.stderr.String())
	}
	http.DefaultClient.CloseIdleConnections()
}

func samplePNG(t *testing.T) []byte {
	t.Helper()
	_, sample, err := readInput("")
	if err != nil {
		t.Fatal(err)
	}
	return sample
}

func TestServeRefusesWhatItCannotUse(t *testing.T) {
	for want, args := range map[string][]string{
		"-processors 65 is outside":      {"-processors", "65"},
		"-processors -1 is outside":      {"-processors", "-1"},
		"is not HOST:PORT":               {"-addr", "8088"},
		"is not a folder":                {"-tiles", "/does/not/exist"},
		"unexpected argument":            {"page"},
		"-data is empty":                 {"-data", ""},
		"flag provided but not defined:": {"-port", "1"},
	} {
		var out, errs bytes.Buffer
		if code := command(t.Context(), append([]string{"serve"}, args...), &out, &errs); code != cli.StatusUsage || !strings.Contains(errs.String(), want) {
			t.Errorf("%q: got %d %q, want %d and %q", args, code, errs.String(), cli.StatusUsage, want)
		}
	}
}

func TestASecondServeIsRefused(t *testing.T) {
	data := t.TempDir()
	s := startServe(t, data, "-processors", "1")
	var out, errs bytes.Buffer
	if code := command(t.Context(), []string{"serve", "-addr", strings.TrimPrefix(s.address, "http://"), "-data", t.TempDir()}, &out, &errs); code != cli.StatusFailed || !strings.Contains(errs.String(), "choose another address with -addr") {
		t.Errorf("same address: got %d %q", code, errs.String())
	}
	errs.Reset()
	if code := command(t.Context(), []string{"serve", "-addr", "127.0.0.1:0", "-data", data}, &out, &errs); code != cli.StatusFailed || !strings.Contains(errs.String(), "another mosaic serve runs") {
		t.Errorf("same data: got %d %q", code, errs.String())
	}
	// Its jobs are in use also if the queues of the second are elsewhere.
	errs.Reset()
	if code := command(t.Context(), []string{"serve", "-addr", "127.0.0.1:0", "-data", data, "-account", account.LocalServer, "-processors", "0"}, &out, &errs); code != cli.StatusFailed || !strings.Contains(errs.String(), "another mosaic serve runs") {
		t.Errorf("same data with an account: got %d %q", code, errs.String())
	}
	s.signal(os.Interrupt)
	if code := s.wait(); code != cli.StatusDone {
		t.Errorf("exit status: got %d; stderr: %s", code, s.stderr.String())
	}
}

func TestThePageAloneNeedsAnAccount(t *testing.T) {
	var out, errs bytes.Buffer
	if code := command(t.Context(), []string{"serve", "-addr", "127.0.0.1:0", "-data", t.TempDir(), "-processors", "0"}, &out, &errs); code != cli.StatusUsage || !strings.Contains(errs.String(), "needs -account") {
		t.Errorf("got %d %q, want %d and what is missing", code, errs.String(), cli.StatusUsage)
	}
}
