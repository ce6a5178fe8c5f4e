package azurequeue

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/queuexml"
	"github.com/millrace/millrace/internal/suitetest"
	"github.com/millrace/millrace/queue"
)

// listOf returns a response with a message for each text, and the client's id of a request.
func listOf(r *http.Request, texts ...string) string {
	var messages []queuexml.Message
	for _, text := range texts {
		m := someMessages[0]
		m.Text = text
		messages = append(messages, m)
	}
	body := queuexml.AppendMessages(nil, queuexml.Get, slices.Values(messages))
	return fmt.Sprintf("HTTP/1.1 200 OK\r\nX-Ms-Client-Request-Id: %s\r\nContent-Length: %d\r\n\r\n%s",
		r.Header.Get("X-Ms-Client-Request-Id"), len(body), body)
}

// openRaw opens a queue on a server that calls respond for each request, one at a time.
func openRaw(t *testing.T, secure bool, respond func(c net.Conn, r *http.Request)) *Queue {
	t.Helper()
	s := httptest.NewUnstartedServer(http.NotFoundHandler())
	s.StartTLS()
	s.Close()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	scheme := "http"
	address := l.Addr().String()
	if secure {
		scheme = "https"
		l = tls.NewListener(l, &tls.Config{Certificates: s.TLS.Certificates, MinVersion: tls.VersionTLS12})
	}
	var (
		work       sync.WaitGroup
		responding sync.Mutex
	)
	work.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			work.Go(func() {
				defer c.Close()
				for in := bufio.NewReader(c); ; {
					r, err := http.ReadRequest(in)
					if err != nil {
						return
					}
					io.Copy(io.Discard, r.Body)
					responding.Lock()
					respond(c, r)
					responding.Unlock()
				}
			})
		}
	})
	q, err := Open(scheme+"://"+address+"/acct?"+someSAS, "orders", nil)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(s.Certificate())
	q.account.own.Transport.(*http.Transport).TLSClientConfig.RootCAs = roots
	t.Cleanup(func() { q.Close(); l.Close(); work.Wait() })
	return q
}

// logged is the output of the standard log.
type logged struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// net/http logs unsolicited data, by default up to 4 KiB of it.
func TestUnsolicitedDataIsNotLogged(t *testing.T) {
	const secret = "the text of the message that nobody may log"
	receipt := strings.Repeat("AgAAAAMA", 3) + "AAE="
	long := secret + `</MessageText><PopReceipt>` + receipt + `</PopReceipt>`
	for name, excess := range map[string]func(r *http.Request) string{
		"a doubled response": func(r *http.Request) string { return listOf(r, secret) },
		"a text":             func(*http.Request) string { return long },
		"a receipt":          func(*http.Request) string { return receipt + long },
	} {
		for _, later := range []bool{false, true} {
			for _, secure := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s, later %t, TLS %t", name, later, secure), func(t *testing.T) {
					var output logged
					defer log.SetOutput(log.Writer())
					log.SetOutput(&output)
					first, received := true, make(chan struct{}) // the connections come one after the other
					q := openRaw(t, secure, func(c net.Conn, r *http.Request) {
						response := listOf(r, "for "+r.URL.Query().Get("visibilitytimeout"))
						if !first {
							io.WriteString(c, response)
							return
						}
						first = false
						if later {
							io.WriteString(c, response)
							<-received
							response = ""
						}
						io.WriteString(c, response+excess(r))
					})
					for i := 1; i <= 3; i++ {
						batch, err := q.Dequeue(t.Context(), 1, time.Duration(i)*time.Second)
						if i == 2 && errors.Is(err, queue.ErrOutcomeUnknown) {
							continue // net/http took the connection that it was about to close
						}
						if want := fmt.Sprint("for ", i); err != nil || len(batch) != 1 || batch[0].Text != want {
							t.Fatalf("dequeue %d: got %v, %v; want one message %q", i, batch, err, want)
						}
						if i == 1 {
							close(received)
						}
						if !suitetest.Poll(10*time.Second, time.Millisecond, func() bool { return strings.Contains(output.String(), "Unsolicited") }) {
							t.Fatal("net/http logged nothing in 10s: this test no longer sends unsolicited data")
						}
					}
					for _, s := range []string{secret, receipt, someMessages[0].Receipt, "sig="} {
						if strings.Contains(output.String(), s) {
							t.Errorf("log: got %q, want it without %q", output.String(), s)
						}
					}
				})
			}
		}
	}
}

// A response to another request has that one's messages, or says that this one's were deleted.
func TestResponseToAnotherRequestIsRefused(t *testing.T) {
	last := ""
	q := openRaw(t, false, func(c net.Conn, r *http.Request) {
		if last == "" {
			last = listOf(r, "stale")
		}
		io.WriteString(c, last)
	})
	if batch, err := q.Dequeue(t.Context(), 1, time.Second); err != nil || len(batch) != 1 {
		t.Fatalf("first dequeue: got %v, %v; want a message", batch, err)
	}
	if batch, err := q.Dequeue(t.Context(), 1, time.Second); !errors.Is(err, queue.ErrOutcomeUnknown) || len(batch) != 0 {
		t.Errorf("dequeue with the response to another: got %v, %v; want ErrOutcomeUnknown", batch, err)
	}
	if err := q.Delete(t.Context(), someLease); !errors.Is(err, queue.ErrOutcomeUnknown) {
		t.Errorf("delete with the response to another: got %v, want ErrOutcomeUnknown", err)
	}
}
