package serverwakeup

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/internal/azurestorage"
	"github.com/millrace/millrace/queue"
)

// FuzzHello parses first lines. What it accepts can be put into a query, and bounds how long a silent server
// is waited for.
func FuzzHello(f *testing.F) {
	for _, line := range []string{"ready 0123456789abcdef 15", "ready a 1 more", "ready", "ready  15", "ready a&b=c 15", "ready a 99999999999999999999", "<html>", ""} {
		f.Add(line)
	}
	f.Fuzz(func(t *testing.T, line string) {
		h, err := parseHello(line)
		if err != nil {
			return
		}
		if h.alive < time.Second || h.alive > time.Hour || h.id == "" || strings.Trim(h.id, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_") != "" {
			t.Errorf("%q: got %+v", line, h)
		}
		again, err := parseHello(fmt.Sprintf("ready %s %d", h.id, int(h.alive/time.Second)))
		if err != nil || again != h {
			t.Errorf("%q: got %+v, and %+v, %v the second time", line, h, again, err)
		}
	})
}

// FuzzStream reads any bytes as a stream, in pieces. It ends, and no more events are heard than there are
// complete lines.
func FuzzStream(f *testing.F) {
	for _, text := range []string{"ready a 15\nevent 1\n\nevent\n", "ready a 15\r\nevent -1\nevent 99999999999999999999\neventually\n", "event 1\n", strings.Repeat("x", 2000) + "\n", "\x00\n\n"} {
		f.Add([]byte(text), uint8(3))
	}
	f.Fuzz(func(t *testing.T, text []byte, piece uint8) {
		synctest.Test(t, func(t *testing.T) {
			at, err := azurestorage.Queue.Parse("UseDevelopmentStorage=true")
			if err != nil {
				t.Fatal(err)
			}
			body := io.MultiReader(bytes.NewReader(nil), &pieces{text, int(piece%64) + 1})
			s := &Source{at: at, transport: fixed{&http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"text/plain"}}, Body: io.NopCloser(body)}}}
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			c, err := s.connect(ctx, cancel, queue.Name{Account: at.Account, Queue: "orders"}, tryTimeout)
			if err != nil {
				return
			}
			defer c.close()
			events := 0
			for {
				line, err := c.read()
				if err != nil {
					break
				}
				if n, ok := parseEvent(line); ok {
					events++
					if n < 0 {
						t.Errorf("%q: %d bytes", line, n)
					}
				}
			}
			if lines := bytes.Count(text, []byte("\n")); events >= max(lines, 1) {
				t.Errorf("%d events in %d lines", events, lines)
			}
		})
	})
}

// pieces returns so many bytes at a time.
type pieces struct {
	text []byte
	size int
}

func (p *pieces) Read(to []byte) (int, error) {
	if len(p.text) == 0 {
		return 0, io.EOF
	}
	n := copy(to[:min(len(to), p.size)], p.text)
	p.text = p.text[n:]
	return n, nil
}

type fixed struct{ response *http.Response }

func (f fixed) Do(*http.Request) (*http.Response, error) { return f.response, nil }
