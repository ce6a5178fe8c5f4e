package web

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/internal/pipelistener"
)

// piped serves the page over a connection that keeps nothing of what is sent.
func piped(t *testing.T, use func(s *site, conn net.Conn)) {
	synctest.Test(t, func(t *testing.T) {
		w := setup(t)
		w.still = true
		s := w.serve(func(o *Options) { o.Data += "/page" }, withoutSocket)
		listener := pipelistener.New()
		server := &http.Server{Handler: s}
		served := make(chan error, 1)
		go func() { served <- server.Serve(listener) }()
		conn, err := listener.Dial(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		use(s, conn)
		_ = conn.Close()   // the server may have closed it
		_ = server.Close() // nothing is left
		<-served
		s.stop()
	})
}

// reader has a mosaic of several pieces sent to it.
func reader(t *testing.T, read func(conn net.Conn, content []byte)) {
	piped(t, func(s *site, conn net.Conn) {
		j := newJob(record{ID: "job", Name: "large.png", State: done, Slices: 1, Rows: 1, Cols: 1, settings: settings{Tile: 1}})
		content := make([]byte, 8*piece)
		_, _ = rand.Read(content) // never fails
		if err := s.root.Mkdir(jobsFolder+"/job", 0o700); err != nil {
			t.Fatal(err)
		}
		if err := s.root.WriteFile(file("job", mosaicFile), content, 0o600); err != nil {
			t.Fatal(err)
		}
		s.shelf.add(j)
		if _, err := io.WriteString(conn, "GET /jobs/job/mosaic HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		read(conn, content)
	})
}

func TestADownloadThatNobodyReadsEnds(t *testing.T) {
	reader(t, func(conn net.Conn, content []byte) {
		time.Sleep(2 * readPatience)
		rest, _ := io.ReadAll(conn) // an error of a connection that was closed is as good
		if len(rest) >= len(content) {
			t.Errorf("got %d bytes, want the connection closed", len(rest))
		}
	})
}

func TestASlowDownloadIsNotCut(t *testing.T) {
	reader(t, func(conn net.Conn, content []byte) {
		begin := time.Now()
		answer, err := http.ReadResponse(bufio.NewReaderSize(conn, 16), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		var got bytes.Buffer
		for {
			time.Sleep(readPatience * 3 / 4)
			if _, err := io.CopyN(&got, answer.Body, piece); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatalf("after %d bytes and %v: %v", got.Len(), time.Since(begin), err)
			}
		}
		if !bytes.Equal(got.Bytes(), content) || time.Since(begin) < 5*readPatience {
			t.Errorf("got %d bytes in %v, want all %d, slowly", got.Len(), time.Since(begin), len(content))
		}
		// The connection is used again, long after its last deadline.
		time.Sleep(3 * readPatience)
		if _, err := io.WriteString(conn, "GET /static/icon.svg HTTP/1.1\r\nHost: localhost\r\nIf-None-Match: \"x\"\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		next, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatalf("the next response: %v", err)
		}
		defer next.Body.Close()
		if next.StatusCode != http.StatusOK {
			t.Errorf("the next response: got %d, want 200", next.StatusCode)
		}
	})
}

// upload sends a picture of n bytes, a part after each pause, and returns the status of the answer, 0 for none.
func upload(t *testing.T, n, part int, pause time.Duration) (status int) {
	piped(t, func(_ *site, conn net.Conn) {
		body, kind := multipartForm(field{name: "picture", file: "slow.png", value: strings.Repeat("x", n)})
		sent := make(chan struct{})
		go func() {
			defer close(sent)
			_, err := fmt.Fprintf(conn, "POST /jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n", kind, body.Len())
			for err == nil && body.Len() > 0 {
				time.Sleep(pause)
				_, err = conn.Write(body.Next(part)) // it fails when the server has had enough
			}
		}()
		if answer, err := http.ReadResponse(bufio.NewReader(conn), nil); err == nil {
			status = answer.StatusCode
			_ = answer.Body.Close() // what it says is not of interest
		}
		_ = conn.Close() // the server may have closed it
		<-sent
	})
	return status
}

func TestASlowUploadIsNotCut(t *testing.T) {
	// 25 kB a second, for 13 minutes. What was sent is no picture, which is seen when all of it is there.
	if got := upload(t, 20_000_000, 1_000_000, 40*time.Second); got != http.StatusUnprocessableEntity {
		t.Errorf("got %d, want 422", got)
	}
}

func TestAnUploadThatHardlyMovesEnds(t *testing.T) {
	if got := upload(t, 10_000, 1, 10*time.Second); got != http.StatusRequestTimeout {
		t.Errorf("got %d, want 408", got)
	}
}
