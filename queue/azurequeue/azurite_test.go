package azurequeue_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azqueue/v2"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azqueue/v2/sas"

	"github.com/millrace/millrace/emulator"
	"github.com/millrace/millrace/internal/azuritetest"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/azurequeue"
	"github.com/millrace/millrace/queue/driver"
)

// sign returns a signature for one queue, or for the whole account if its name is empty.
func sign(t *testing.T, name, permissions string, expiry time.Time) string {
	t.Helper()
	c, err := azqueue.NewSharedKeyCredential(azuritetest.Account, azuritetest.Key)
	if err != nil {
		t.Fatal(err)
	}
	var p sas.QueryParameters
	if name == "" {
		p, err = sas.AccountSignatureValues{Protocol: sas.ProtocolHTTPSandHTTP, ExpiryTime: expiry, Permissions: permissions, ResourceTypes: "sco"}.SignWithSharedKey(c)
	} else {
		p, err = sas.QueueSignatureValues{Protocol: sas.ProtocolHTTPSandHTTP, ExpiryTime: expiry, Permissions: permissions, QueueName: name}.SignWithSharedKey(c)
	}
	if err != nil {
		t.Fatal(err)
	}
	return p.Encode()
}

// Requirement Q-02.
func TestSharedAccessSignature(t *testing.T) {
	location := azuritetest.ConnectionString(t)
	_, endpoint, _ := strings.Cut(location, "QueueEndpoint=")
	endpoint = strings.TrimSuffix(endpoint, ";")
	later := time.Now().Add(time.Hour)

	admin := open(t, location, "signed")
	if err := admin.Create(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { admin.Drop(t.Context()) })
	whole, one := sign(t, "", "rwdlacup", later), sign(t, "signed", "raup", later)
	for name, location := range map[string]string{
		"address with the account's": endpoint + "?" + whole,
		"address with the queue's":   endpoint + "/?" + one,
		"address of the queue":       endpoint + "/signed?" + one,
		"connection string":          "QueueEndpoint=" + endpoint + ";SharedAccessSignature=" + one,
	} {
		q := open(t, location, "signed")
		if q.Name() != admin.Name() {
			t.Errorf("%s: name: got %v, want %v", name, q.Name(), admin.Name())
		}
		if _, err := q.Enqueue(t.Context(), "x", nil); err != nil {
			t.Errorf("%s: got the error %v, want none", name, err)
			continue
		}
		batch, err := q.Dequeue(t.Context(), 1, time.Minute)
		if err != nil || len(batch) != 1 {
			t.Fatalf("%s: dequeued: got %v, %v; want one message", name, batch, err)
		}
		l, err := q.Update(t.Context(), batch[0].Lease, "y", time.Minute)
		if err != nil {
			t.Errorf("%s: got the error %v, want none", name, err)
		}
		if err := q.Delete(t.Context(), l); err != nil {
			t.Errorf("%s: got the error %v, want none", name, err)
		}
	}

	for name, signature := range map[string]string{
		"expired":           sign(t, "signed", "raup", time.Now().Add(-time.Hour)),
		"for reading":       sign(t, "signed", "r", later),
		"for another queue": sign(t, "other", "raup", later),
		"forged":            strings.Replace(one, "sig=", "sig=AAAA", 1),
	} {
		_, err := open(t, endpoint+"?"+signature, "signed").Enqueue(t.Context(), "x", nil)
		if !errors.Is(err, queue.ErrUnauthorized) {
			t.Errorf("%s: got %v, want ErrUnauthorized", name, err)
			continue
		}
		known := (*queue.Error)(nil)
		if errors.As(err, &known); known.Status != 403 || known.Hint == "" || strings.Contains(err.Error(), signature) {
			t.Errorf("%s: got %v, want status 403 and a hint, without the signature", name, err)
		}
	}
	wrong := strings.Replace(location, azuritetest.Key, "d3Jvbmc=", 1)
	if _, err := open(t, wrong, "signed").Peek(t.Context(), 1); !errors.Is(err, queue.ErrUnauthorized) {
		t.Errorf("wrong key: got %v, want ErrUnauthorized", err)
	}
}

func open(t *testing.T, location, name string) *azurequeue.Queue {
	t.Helper()
	q, err := azurequeue.Open(location, name, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { q.Close() })
	return q
}

// Servers accept the largest text of the port in a put and an update, and return it.
//
// Requirement Q-07.
func TestServersAcceptTheLargestTexts(t *testing.T) {
	e, err := must(emulator.New(nil, nil)).Start("")
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	quotes := (driver.MaxRequest - driver.RequestSize("")) / len("&#34;")
	for server, location := range map[string]string{"the emulator": e.ConnectionString(), "Azurite": azuritetest.ConnectionString(t)} {
		q := open(t, location, "largest")
		if err := q.Create(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		for name, text := range map[string]string{
			"as it is": strings.Repeat("x", queue.MaxText),
			"escaped":  strings.Repeat(`"`, quotes) + strings.Repeat("x", driver.MaxRequest-driver.RequestSize(strings.Repeat(`"`, quotes))),
		} {
			if err := driver.CheckRequest(text, 0); err != nil {
				t.Fatal(err)
			}
			m, err := q.Enqueue(t.Context(), text, nil)
			if err != nil {
				t.Errorf("%s, %s: got the error %v, want none", server, name, err)
				continue
			}
			l, err := q.Update(t.Context(), m.Lease, text, 0)
			if err != nil {
				t.Errorf("%s, %s: got the error %v, want none", server, name, err)
			}
			if seen, err := q.Peek(t.Context(), 1); err != nil || len(seen) != 1 || seen[0].Text != text {
				t.Errorf("%s, %s: peeked: got %d messages, %v; want the text", server, name, len(seen), err)
			}
			if err := q.Delete(t.Context(), l); err != nil {
				t.Errorf("%s, %s: got the error %v, want none", server, name, err)
			}
			if _, err := q.Enqueue(t.Context(), text+"x", nil); !errors.Is(err, queue.ErrTooLarge) {
				t.Errorf("%s, %s: a byte more: got %v, want ErrTooLarge", server, name, err)
			}
		}
		if err := q.Drop(t.Context()); err != nil {
			t.Error(err)
		}
	}
}
