package azurequeue

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"github.com/millrace/millrace/internal/azurestorage"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/azurequeue/http1"
)

// canned responds to every request itself.
type canned func(*http.Request) (*http.Response, error)

func (c canned) Do(r *http.Request) (*http.Response, error) { return c(r) }

// responding always returns the same response, with a request id.
func responding(status int, body string, header ...string) canned {
	return func(r *http.Request) (*http.Response, error) {
		h := http.Header{"X-Ms-Request-Id": {"rid-1"}, "Date": {"Sat, 01 Jan 2000 00:00:00 GMT"}}
		for i := 0; i < len(header); i += 2 {
			h.Set(header[i], header[i+1])
		}
		return &http.Response{Status: http.StatusText(status), StatusCode: status, Header: h, Body: io.NopCloser(strings.NewReader(body)), Request: r}, nil
	}
}

func openCanned(t testing.TB, c canned) *Queue {
	t.Helper()
	q, err := Open("https://acct.queue.core.windows.net/?"+someSAS, "orders", &Options{Transport: c})
	if err != nil {
		t.Fatal(err)
	}
	return q
}

const someReceipt queue.Receipt = "AgAAAAMAAAAAAAAA/rece+ipt="

var someLease = queue.Lease{ID: "0f7a-1", Receipt: someReceipt}

// operations are all calls of a Manager, with arguments that are not refused before a request.
func operations(q queue.Manager) map[string]func(context.Context) error {
	return map[string]func(context.Context) error{
		"enqueue":      func(ctx context.Context) error { _, err := q.Enqueue(ctx, "x", nil); return err },
		"dequeue":      func(ctx context.Context) error { _, err := q.Dequeue(ctx, 1, time.Second); return err },
		"peek":         func(ctx context.Context) error { _, err := q.Peek(ctx, 1); return err },
		"update":       func(ctx context.Context) error { _, err := q.Update(ctx, someLease, "x", 0); return err },
		"delete":       func(ctx context.Context) error { return q.Delete(ctx, someLease) },
		"properties":   func(ctx context.Context) error { _, err := q.Properties(ctx); return err },
		"create":       func(ctx context.Context) error { return q.Create(ctx, nil) },
		"set metadata": func(ctx context.Context) error { return q.SetMetadata(ctx, nil) },
		"clear":        func(ctx context.Context) error { return q.Clear(ctx) },
		"drop":         func(ctx context.Context) error { return q.Drop(ctx) },
	}
}

// written checks that an error is one line without secrets, and returns it.
func written(t *testing.T, err error, op string) *queue.Error {
	t.Helper()
	known := (*queue.Error)(nil)
	if !errors.As(err, &known) {
		t.Fatalf("%s: error: got %v, want a *queue.Error", op, err)
	}
	if known.Op != op || known.Queue != (queue.Name{Account: "acct", Queue: "orders"}) {
		t.Errorf("%s: error: got operation %q and queue %v, want %q and acct/orders", op, known.Op, known.Queue, op)
	}
	for _, text := range []string{err.Error(), fmt.Sprintf("%v %+v %s %q", err, err, err, err)} {
		for _, secret := range []string{"S3cret", "sign%3D", "rece+ipt", url.QueryEscape(string(someReceipt)), "\n"} {
			if strings.Contains(text, secret) {
				t.Errorf("%s: got the error %q, want none with %q in it", op, text, secret)
			}
		}
	}
	return known
}

// Requirement B-05.
func TestResponsesBecomeErrors(t *testing.T) {
	const body = "<?xml version=\"1.0\" encoding=\"utf-8\"?><Error><Code>%s</Code><Message>The sentence.\nRequestId:rid-1\nTime:2000-01-01 sig=S3cret %s</Message></Error>"
	for _, c := range []struct {
		status int
		code   string
		kind   error
	}{
		{400, "PopReceiptMismatch", queue.ErrReceiptMismatch},
		{404, "MessageNotFound", queue.ErrMessageGone},
		{404, "QueueNotFound", queue.ErrQueueMissing},
		{409, "QueueBeingDeleted", queue.ErrQueueBeingDeleted},
		{409, "QueueAlreadyExists", queue.ErrQueueExists},
		{503, "ServerBusy", queue.ErrThrottled},
		{503, "", queue.ErrThrottled},
		{429, "", queue.ErrThrottled},
		{500, "OperationTimedOut", queue.ErrOutcomeUnknown},
		{408, "", queue.ErrOutcomeUnknown},
		{502, "", queue.ErrOutcomeUnknown},
		{504, "", queue.ErrOutcomeUnknown},
		{500, "InternalError", queue.ErrUnavailable},
		{501, "", queue.ErrUnavailable},
		{409, "AccountBeingCreated", queue.ErrUnavailable},
		{400, "TlsVersionNotPermitted", queue.ErrUnavailable},
		{401, "NoAuthenticationInformation", queue.ErrUnauthorized},
		{403, "AuthenticationFailed", queue.ErrUnauthorized},
		{403, "AuthorizationPermissionMismatch", queue.ErrUnauthorized},
		{403, "", queue.ErrUnauthorized},
		{409, "QueueDisabled", queue.ErrUnauthorized},
		{413, "RequestBodyTooLarge", queue.ErrTooLarge},
		{413, "", queue.ErrTooLarge},
		{400, "MessageTooLarge", queue.ErrTooLarge},
		{400, "OutOfRangeQueryParameterValue", queue.ErrInvalid},
		{400, "", queue.ErrInvalid},
		{412, "ConditionNotMet", queue.ErrInvalid},
		{302, "", queue.ErrOutcomeUnknown},
		{206, "", queue.ErrOutcomeUnknown},
	} {
		text, header := "", []string(nil)
		if c.code != "" {
			text, header = fmt.Sprintf(body, c.code, someReceipt), []string{"x-ms-error-code", c.code}
		}
		for op, do := range operations(openCanned(t, responding(c.status, text, header...))) {
			err := do(t.Context())
			if !errors.Is(err, c.kind) {
				t.Errorf("%s: error for %d %s: got %v, want %v", op, c.status, c.code, err, c.kind)
				continue
			}
			known := written(t, err, op)
			if known.Status != c.status || known.Code != c.code || known.RequestID != "rid-1" {
				t.Errorf("%s: got %d %s with request id %q, want %d %s with rid-1", op, known.Status, known.Code, known.RequestID, c.status, c.code)
			}
			if c.code != "" && !strings.Contains(err.Error(), "The sentence") {
				t.Errorf("%s: got %v, want the service's message in it", op, err)
			}
			resp := (*azcore.ResponseError)(nil)
			if !errors.As(err, &resp) || resp.StatusCode != c.status {
				t.Errorf("%s: got %v, want an *azcore.ResponseError in it", op, err)
			} else if resp.RawResponse.Request.URL.RawQuery != "" {
				t.Errorf("%s: URL of the SDK's error: got %v, want it without the query", op, resp.RawResponse.Request.URL)
			}
			if (op == "update" || op == "delete") != (known.Message == someLease.ID) {
				t.Errorf("%s: message of the error: got %q, want the id for update and delete only", op, known.Message)
			}
		}
	}
}

func TestErrorText(t *testing.T) {
	q := openCanned(t, responding(404, "<Error><Code>QueueNotFound</Code><Message>The specified queue does not exist.\nRequestId:1</Message></Error>", "x-ms-error-code", "QueueNotFound"))
	err := q.Delete(t.Context(), someLease)
	const want = "delete on acct/orders of message 0f7a-1: queue does not exist (404 QueueNotFound, request rid-1): The specified queue does not exist; create it first"
	if err.Error() != want {
		t.Errorf("got  %v\nwant %v", err, want)
	}
}

// After an update or a delete, a 404 without a code does not say whether the message or the queue is
// missing.
func Test404WithoutCodeIsAmbiguous(t *testing.T) {
	for op, do := range operations(openCanned(t, responding(404, ""))) {
		err := do(t.Context())
		if missing := errors.Is(err, queue.ErrQueueMissing); missing == (op == "update" || op == "delete") || errors.Is(err, queue.ErrLeaseLost) {
			t.Errorf("%s: got %v, want ErrQueueMissing, or neither that nor ErrLeaseLost for update and delete", op, err)
		}
	}
}

// The wait that the service asks for is in the error of a request that it was too busy for.
func TestRetryAfterIsInTheError(t *testing.T) {
	for name, c := range map[string]struct {
		status int
		header string
		want   time.Duration
	}{
		"503":             {503, "7", 7 * time.Second},
		"429":             {429, "120", 2 * time.Minute},
		"a time long ago": {503, "Sat, 01 Jan 2000 00:00:00 GMT", 0},
		"a negative one":  {503, "-3", 0},
		"a huge one":      {503, "99999999999", (1<<31 - 1) * time.Second},
		"no header":       {503, "", 0},
		"no number":       {429, "soon", 0},
		"another status":  {500, "7", 0},
	} {
		for op, do := range operations(openCanned(t, responding(c.status, "", "Retry-After", c.header))) {
			known := (*queue.Error)(nil)
			if err := do(t.Context()); !errors.As(err, &known) || known.RetryAfter != c.want {
				t.Errorf("%s: %s: got %v with a wait of %v, want %v", op, name, err, known.RetryAfter, c.want)
			}
		}
	}
	synctest.Test(t, func(t *testing.T) {
		if got := azurestorage.RetryAfter(time.Now().Add(time.Minute).UTC().Format(http.TimeFormat)); got != time.Minute {
			t.Errorf("a time in a minute: got a wait of %v, want 1m0s", got)
		}
	})
}

// A proxy that refuses CONNECT has not sent the request, so that a send may be repeated.
func TestARefusedConnectSendsNothing(t *testing.T) {
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) }))
	defer proxy.Close()
	at, _ := url.Parse(proxy.URL)
	client := azurestorage.NewClient(1)
	client.Transport.(*http.Transport).Proxy = http.ProxyURL(at)
	lean, err := http1.New(&http1.Options{Proxy: http.ProxyURL(at)})
	if err != nil {
		t.Fatal(err)
	}
	defer lean.Close()
	for name, transport := range map[string]policy.Transporter{"net/http": client, "http1": lean} {
		q, err := Open("https://acct.queue.core.windows.net/?"+someSAS, "orders", &Options{Transport: transport})
		if err != nil {
			t.Fatal(err)
		}
		for op, do := range operations(q) {
			if err := do(t.Context()); !errors.Is(err, queue.ErrUnavailable) || errors.Is(err, queue.ErrOutcomeUnknown) || !strings.Contains(err.Error(), "403") {
				t.Errorf("%s: %s: got %v, want ErrUnavailable with the status of the proxy", name, op, err)
			}
		}
	}
}

// A server whose TLS is too old has got no request, so that a send may be repeated, whichever side finds out.
func TestAnOldTLSVersionSendsNothing(t *testing.T) {
	refusing := httptest.NewUnstartedServer(http.NotFoundHandler())
	refusing.TLS = &tls.Config{MaxVersion: tls.VersionTLS11} //nolint:gosec // the fault
	refusing.Config.ErrorLog = log.New(io.Discard, "", 0)
	refusing.StartTLS()
	defer refusing.Close()
	choosing, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer choosing.Close()
	go func() {
		for {
			conn, err := choosing.Accept()
			if err != nil {
				return
			}
			// A ServerHello of TLS 1.1, RFC 4346, section 7.4.1.3.
			hello := append([]byte{22, 3, 2, 0, 42, 2, 0, 0, 38, 3, 2}, make([]byte, 32)...)
			conn.Write(append(hello, 0, 0, 47, 0))
			io.Copy(io.Discard, conn)
			conn.Close()
		}
	}()
	lean, err := http1.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer lean.Close()
	for name, transport := range map[string]policy.Transporter{"net/http": azurestorage.NewClient(1), "http1": lean} {
		for who, address := range map[string]string{"the server": refusing.Listener.Addr().String(), "the client": choosing.Addr().String()} {
			q, err := Open("https://"+address+"/acct?"+someSAS, "orders", &Options{Transport: transport})
			if err != nil {
				t.Fatal(err)
			}
			for op, do := range operations(q) {
				if err := do(t.Context()); !errors.Is(err, queue.ErrUnavailable) || errors.Is(err, queue.ErrOutcomeUnknown) || !strings.Contains(err.Error(), "no common version of TLS") {
					t.Errorf("%s, %s ends the handshake: %s: got %v, want ErrUnavailable with a hint", name, who, op, err)
				}
			}
		}
	}
}

func TestTransportErrors(t *testing.T) {
	secretURL := func(r *http.Request, err error) error {
		return &url.Error{Op: "Get", URL: r.URL.String(), Err: err}
	}
	for name, c := range map[string]struct {
		err  error
		kind error
	}{
		"refused":      {&net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connection refused")}, queue.ErrUnavailable},
		"no such host": {&net.OpError{Op: "dial", Net: "tcp", Err: &net.DNSError{Err: "no such host", Name: "acct", IsNotFound: true}}, queue.ErrUnavailable},
		"proxy":        {&net.OpError{Op: "proxyconnect", Net: "tcp", Err: errors.New("refused")}, queue.ErrUnavailable},
		"certificate":  {&tls.CertificateVerificationError{Err: errors.New("unknown authority")}, queue.ErrUnavailable},
		"plain http":   {http.ErrSchemeMismatch, queue.ErrUnavailable},
		"reset":        {&net.OpError{Op: "read", Net: "tcp", Err: errors.New("connection reset by peer")}, queue.ErrOutcomeUnknown},
		"broken pipe":  {&net.OpError{Op: "write", Net: "tcp", Err: errors.New("broken pipe")}, queue.ErrOutcomeUnknown},
		"EOF":          {io.ErrUnexpectedEOF, queue.ErrOutcomeUnknown},
		"anything":     {errors.New("popreceipt=rece+ipt&sig=S3cret\nAccountKey=S3cret==;"), queue.ErrOutcomeUnknown},
	} {
		for op, do := range operations(openCanned(t, func(r *http.Request) (*http.Response, error) { return nil, secretURL(r, c.err) })) {
			err := do(t.Context())
			if !errors.Is(err, c.kind) || !errors.Is(err, c.err) {
				t.Errorf("%s: error for %s: got %v, want %v", op, name, err, c.kind)
			}
			known := written(t, err, op)
			if known.Status != 0 || errors.Is(c.kind, queue.ErrUnavailable) && known.Hint == "" {
				t.Errorf("%s: error for %s: got %v, want no status, and a hint if nothing was sent", op, name, err)
			}
		}
	}
}

// TestRefusedConnection: a real socket refuses the connection. Its error contains the whole address.
func TestRefusedConnection(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	l.Close()
	q, err := Open("http://"+address+"/acct?"+someSAS, "orders", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	for op, do := range operations(q) {
		err := do(t.Context())
		if !errors.Is(err, queue.ErrUnavailable) {
			t.Errorf("%s: got %v, want ErrUnavailable", op, err)
		}
		if known := written(t, err, op); !strings.Contains(known.Error(), "refused") {
			t.Errorf("%s: got %v, want refused", op, known)
		}
		operation := (*net.OpError)(nil)
		if !errors.As(err, &operation) {
			t.Errorf("%s: got %v, want a *net.OpError in it", op, err)
		}
	}
}

func TestMalformedResponses(t *testing.T) {
	for name, c := range map[string]struct {
		status int
		body   string
		header []string
		ops    string
	}{
		"no XML":         {200, "<", nil, "dequeue peek"},
		"bad time":       {200, "<QueueMessagesList><QueueMessage><MessageId>1</MessageId><InsertionTime>now</InsertionTime></QueueMessage></QueueMessagesList>", nil, "dequeue peek"},
		"bad count":      {200, "<QueueMessagesList><QueueMessage><DequeueCount>x</DequeueCount></QueueMessage></QueueMessagesList>", nil, "dequeue peek"},
		"not created":    {201, "", nil, "enqueue"},
		"nothing made":   {201, "<QueueMessagesList/>", nil, "enqueue"},
		"no id":          {201, "<QueueMessagesList><QueueMessage/></QueueMessagesList>", nil, "enqueue"},
		"two made":       {201, strings.Repeat("<QueueMessage><MessageId>1</MessageId></QueueMessage>", 2), nil, "enqueue"},
		"no new receipt": {204, "", nil, "update"},
		"bad date":       {204, "", []string{"Date", "today"}, "update clear drop set metadata create"},
		"no depth":       {200, "", nil, "properties"},
		"bad depth":      {200, "", []string{"x-ms-approximate-messages-count", "many"}, "properties"},
	} {
		for op, do := range operations(openCanned(t, responding(c.status, c.body, c.header...))) {
			if !strings.Contains(c.ops, op) {
				continue
			}
			if err := do(t.Context()); !errors.Is(err, queue.ErrOutcomeUnknown) {
				t.Errorf("%s: error for %s: got %v, want ErrOutcomeUnknown", op, name, err)
			} else {
				written(t, err, op)
			}
		}
	}
}

// Missing fields of a response are zero values, and a message without a receipt is skipped.
func TestIncompleteMessages(t *testing.T) {
	const body = "<QueueMessagesList><QueueMessage/>" +
		"<QueueMessage><MessageId>1</MessageId></QueueMessage>" +
		"<QueueMessage><PopReceipt>r</PopReceipt></QueueMessage>" +
		"<QueueMessage><MessageId>2</MessageId><PopReceipt>r</PopReceipt></QueueMessage></QueueMessagesList>"
	q := openCanned(t, responding(200, body))
	batch, err := q.Dequeue(t.Context(), 32, time.Second)
	if err != nil || len(batch) != 1 || batch[0] != (queue.Message{Lease: queue.Lease{ID: "2", Receipt: "r"}}) {
		t.Errorf("dequeue: got %+v, %v; want the message with a receipt only", batch, err)
	}
	seen, err := q.Peek(t.Context(), 32)
	if err != nil || len(seen) != 2 || seen[1] != (queue.Message{Lease: queue.Lease{ID: "2"}}) {
		t.Errorf("peek: got %+v, %v; want both messages", seen, err)
	}
}

func FuzzResponse(f *testing.F) {
	f.Add(200, "<QueueMessagesList><QueueMessage><MessageId>1</MessageId><PopReceipt>r</PopReceipt><MessageText/></QueueMessage></QueueMessagesList>", "1")
	f.Add(201, "<QueueMessagesList><QueueMessage><MessageId>1</MessageId></QueueMessage></QueueMessagesList>", "")
	f.Add(400, "<Error><Code>X</Code><Message>m</Message></Error>", "")
	f.Fuzz(func(t *testing.T, status int, body, count string) {
		if status < 100 || status > 999 {
			return
		}
		for op, do := range operations(openCanned(t, responding(status, body, "x-ms-approximate-messages-count", count))) {
			if err := do(t.Context()); err != nil {
				known := (*queue.Error)(nil)
				if !errors.As(err, &known) || strings.Contains(err.Error(), "\n") {
					t.Errorf("%s: got %q, want a *queue.Error on one line", op, err)
				}
			}
		}
	})
}
