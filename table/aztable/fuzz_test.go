package aztable

import (
	"bytes"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"

	"github.com/millrace/millrace/internal/azurestorage"
	"github.com/millrace/millrace/table"
)

func newAnswer(status int, content []byte) *answer {
	h := http.Header{azurestorage.RequestIDHeader: {"id"}}
	return &answer{Response: &http.Response{StatusCode: status, Header: h, Request: httptest.NewRequest(http.MethodPost, "http://x/$batch", nil)}, body: content}
}

// FuzzGroupResponse: whatever comes, it is read to versions of all changes or refused.
func FuzzGroupResponse(f *testing.F) {
	changes := []table.Change{table.Inserting(table.Entity{}), table.Deleting(table.Key{}, table.Any)}
	f.Add([]byte("--a\r\n\r\n--b\r\n\r\nHTTP/1.1 204 No Content\r\nETag: x\r\n\r\n\r\n--b\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n\r\n--b--\r\n\r\n--a--\r\n"))
	f.Add([]byte("--a\r\n\r\n--b\r\n\r\nHTTP/1.1 409 Conflict\r\n\r\n{\"odata.error\":{\"message\":{\"value\":\"1:x\"}}}\r\n--b--\r\n\r\n--a--\r\n"))
	f.Add([]byte("no line end"))
	f.Add([]byte(""))
	f.Fuzz(func(t *testing.T, content []byte) {
		parts, err := newAnswer(http.StatusAccepted, content).parts()
		foreign := (*azurestorage.ForeignError)(nil)
		if err != nil {
			if !errors.As(err, &foreign) {
				t.Errorf("the error is %v", err)
			}
			return
		}
		if at := slices.IndexFunc(parts, part.refused); at >= 0 {
			err := newAnswer(http.StatusAccepted, nil).refusal(parts[at])
			if resp := (*azcore.ResponseError)(nil); !errors.As(err, &resp) {
				t.Error("a refusal is no error of the service")
			}
			refusedKey(err, changes)
			return
		}
		etags, err := readETags(parts, changes)
		if err == nil && (len(etags) != 2 || etags[0] == "" || etags[1] != "") || err != nil && !errors.As(err, &foreign) {
			t.Errorf("%q, %v", etags, err)
		}
	})
}

// FuzzEntity: whatever is read as an entity is written and read as the same.
func FuzzEntity(f *testing.F) {
	f.Add([]byte(`{"odata.etag":"e","PartitionKey":"p","RowKey":"r","Timestamp":"2026-11-23T02:40:00Z","A":1,"B":1.0,"C":"9","C@odata.type":"Edm.Int64","D":true,"E":"AA==","E@odata.type":"Edm.Binary"}`))
	f.Add([]byte(`{"odata.etag":"e","PartitionKey":"p","RowKey":"","Timestamp":"2026-11-23T02:40:00.1234567Z","A":"2026-11-23T02:40:00.1Z","A@odata.type":"Edm.DateTime","G":"c9da6455-213d-42c9-9a79-3e9149a57833","G@odata.type":"Edm.Guid"}`))
	f.Add([]byte(`{}`))
	f.Add([]byte(`[1e999`))
	f.Fuzz(func(t *testing.T, content []byte) {
		e, err := read(content)
		if err != nil || e.Check() != nil {
			return
		}
		written, err := encode(e)
		if err != nil {
			t.Fatal(err)
		}
		// The service adds the version and the time.
		written = append(bytes.TrimSuffix(written, []byte("}")), `,"odata.etag":"e","Timestamp":"2026-11-23T02:40:00Z"}`...)
		again, err := read(written)
		if err != nil {
			t.Fatalf("%s is not read: %v", written, err)
		}
		if second, err := encode(again); err != nil || again.Key != e.Key || len(again.Properties) != len(e.Properties) {
			t.Errorf("%s became %s, %v", written, second, err)
		}
		for name, value := range e.Properties {
			if !table.Equal(name, value).Match(again) {
				t.Errorf("%s: %#v became %#v", name, value, again.Properties[name])
			}
		}
	})
}

func read(content []byte) (table.Entity, error) {
	var document map[string]any
	if err := newAnswer(http.StatusOK, content).decode(&document); err != nil {
		return table.Entity{}, err
	}
	return newEntity(document)
}

// FuzzToken: whatever the service's place is, its token leads back to it, and to no other.
func FuzzToken(f *testing.F) {
	f.Add("1!8!cA--", "1!8!YQ--", "x")
	f.Add("", "r", "")
	f.Add("a\x00b", "\n", "AAAA")
	f.Fuzz(func(t *testing.T, partition, row, other string) {
		s := &Table{name: "Channels"}
		q, p := table.Query{Partition: "p"}, place{partition, row}
		q.Token = s.newToken(q, p)
		got, err := s.readToken(q)
		if p.valid() != (err == nil) || err == nil && got != p {
			t.Errorf("%q became %q, %v", p, got, err)
		}
		if q.Token != table.Token(other) {
			q.Token = table.Token(other)
			if got, err := s.readToken(q); err == nil {
				t.Errorf("%q is the token of %q", other, got)
			}
		}
	})
}
