package browser

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// server is a running mosaic.
type server struct {
	t    *testing.T
	data string
	addr string // with port 0 until the first start

	account string // of the queues; "" if they are the program's own

	cmd  *exec.Cmd
	said *output
}

// setup starts the program, after what is given to it.
func setup(t *testing.T, before ...func(*server)) *server {
	t.Helper()
	needChromium(t)
	s := &server{t: t, data: t.TempDir(), addr: "127.0.0.1:0"}
	for _, do := range before {
		do(s)
	}
	s.start()
	t.Cleanup(s.stop)
	return s
}

// start starts the program on the address and the data of before.
func (s *server) start() {
	s.t.Helper()
	s.cmd = exec.Command(shared.mosaic, "serve", "-addr", s.addr, "-data", s.data)
	if s.account != "" {
		s.cmd.Args = append(s.cmd.Args, "-blobs", filepath.Join(s.data, "blobs"))
	}
	s.cmd.Env = append(os.Environ(), "AZURE_STORAGE="+s.account)
	pipe, err := s.cmd.StdoutPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	s.said = &output{}
	s.cmd.Stderr = s.said
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	lines := bufio.NewScanner(pipe)
	for lines.Scan() {
		if _, rest, ok := strings.Cut(lines.Text(), "http://"); ok {
			s.addr, _, _ = strings.Cut(rest, "/")
			return
		}
	}
	s.t.Fatalf("the program ended before it served the page: %s", s.said)
}

// kill ends the program without its knowledge.
func (s *server) kill() {
	s.t.Helper()
	if err := s.cmd.Process.Kill(); err != nil {
		s.t.Fatal(err)
	}
	_ = s.cmd.Wait() // its status is that it was killed
}

func (s *server) stop() {
	_ = s.cmd.Process.Signal(os.Interrupt) // it may have ended
	_ = s.cmd.Wait()                       // the test has its result
	if s.t.Failed() {
		s.t.Logf("the program said:\n%s", s.said)
	}
}

func (s *server) url(path string) string { return "http://" + s.addr + path }

// output keeps what a program says.
type output struct {
	mu   sync.Mutex
	text strings.Builder // guarded by mu
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}
