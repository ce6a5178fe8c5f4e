package aztable_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/millrace/millrace/table"
	"github.com/millrace/millrace/table/aztable"
)

func rowKey(row string) table.Key { return table.Key{Partition: "p", Row: row} }

func inserting(rows ...string) (changes []table.Change) {
	for _, row := range rows {
		changes = append(changes, table.Inserting(table.Entity{Key: rowKey(row)}))
	}
	return changes
}

// answerGroup makes the service answer groups with a document.
func answerGroup(s *fakeService, text string) {
	s.setFault(func(op string) fault {
		if op != opGroup {
			return fault{}
		}
		return fault{changed: func(r *http.Response) { r.Body = body(text) }}
	})
}

// groupDocument is what the service sends in response to a group.
func groupDocument(parts ...string) string {
	text := "--batchresponse_1\r\nContent-Type: multipart/mixed; boundary=changesetresponse_1\r\n\r\n"
	for _, part := range parts {
		text += "--changesetresponse_1\r\nContent-Type: application/http\r\nContent-Transfer-Encoding: binary\r\n\r\n" + part + "\r\n"
	}
	return text + "--changesetresponse_1--\r\n--batchresponse_1--\r\n"
}

const groupSuccess = "HTTP/1.1 204 No Content\r\nContent-ID: 0\r\nETag: W/\"1\"\r\n\r\n"

// TestTheErrorOfAGroupNamesTheChange by the number that precedes the service's words.
func TestTheErrorOfAGroupNamesTheChange(t *testing.T) {
	changes := inserting("a", "b", "c")
	for name, c := range map[string]struct {
		part string
		key  table.Key
		kind error
	}{
		"first":          {refusal(409, "EntityAlreadyExists", "0:"), rowKey("a"), table.ErrExists},
		"last":           {refusal(412, "UpdateConditionNotSatisfied", "2:"), rowKey("c"), table.ErrPreconditionFailed},
		"missing":        {refusal(404, "ResourceNotFound", "1:"), rowKey("b"), table.ErrMissing},
		"too large":      {refusal(413, "RequestBodyTooLarge", "1:"), rowKey("b"), table.ErrTooLarge},
		"no number":      {refusal(409, "EntityAlreadyExists", ""), table.Key{}, table.ErrExists},
		"beyond":         {refusal(409, "EntityAlreadyExists", "3:"), table.Key{}, table.ErrExists},
		"busy":           {refusal(503, "ServerBusy", "0:"), rowKey("a"), table.ErrUnavailable},
		"not a document": {"HTTP/1.1 409 Conflict\r\n\r\nno", table.Key{}, table.ErrInvalid},
		"no table":       {refusal(404, "TableNotFound", "0:"), rowKey("a"), table.ErrMissing},
	} {
		s := withEntity(t)
		answerGroup(s, groupDocument(c.part))
		if name == "no table" { // it is created, and still is not there
			c.kind = table.ErrUnavailable
		}
		_, err := s.open(t, "Channels", once).Apply(t.Context(), changes)
		known := (*table.Error)(nil)
		if !errors.As(err, &known) || !errors.Is(known.Kind, c.kind) || known.Key != c.key || known.RequestID != "some-id" || known.Status == 202 {
			t.Errorf("%s: %v", name, err)
		}
		if name == "last" && !strings.Contains(err.Error(), "): It is UpdateConditionNotSatisfied") {
			t.Errorf("%s: the service's words are not in %q", name, err)
		}
	}
	s := withEntity(t)
	known := (*table.Error)(nil)
	s.always(fault{changed: func(r *http.Response) { r.StatusCode, r.Body = 400, body(document("InvalidInput", "2:")) }})
	if _, err := s.open(t, "Channels", once).Apply(t.Context(), changes); !errors.As(err, &known) || known.Key != rowKey("c") {
		t.Errorf("a refusal of the whole that names one: %v", err)
	}
	answerGroup(s, groupDocument(refusal(409, "EntityAlreadyExists", "")))
	if _, err := s.open(t, "Channels", once).Apply(t.Context(), changes[:1]); !errors.As(err, &known) || known.Key != rowKey("a") {
		t.Errorf("a group of one: %v", err)
	}
}

// TestABusyServiceIsAskedAgainForAGroup, also if it says so within its response.
func TestABusyServiceIsAskedAgainForAGroup(t *testing.T) {
	busy := fault{changed: func(r *http.Response) { r.Body = body(groupDocument(refusal(503, "ServerBusy", "0:"))) }}
	for name, c := range map[string]struct {
		first, then fault
		kind        error
	}{
		"outside":        {fault{status: 503, code: "ServerBusy"}, fault{}, nil},
		"inside":         {busy, fault{}, table.ErrExists}, // the service in process has made the changes
		"then forbidden": {busy, fault{status: 403, code: "AuthenticationFailed"}, table.ErrUnauthorized},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := withEntity(t)
			n := 0
			s.setFault(func(string) fault {
				if n++; n == 1 {
					return c.first
				}
				return c.then
			})
			_, err := s.open(t, "Channels", aztable.Options{}).Apply(t.Context(), inserting("a"))
			if !errors.Is(err, c.kind) || n != 2 {
				t.Errorf("%s: after %d requests: %v", name, n, err)
			}
			known := (*table.Error)(nil)
			if errors.As(err, &known) && known.Status == 403 && known.Key != (table.Key{}) {
				t.Errorf("%s: the error names the change that failed before: %v", name, err)
			}
		})
	}
}

// TestResponsesToAGroupThatAreNone are of unknown outcome, and none stops the process.
func TestResponsesToAGroupThatAreNone(t *testing.T) {
	for name, text := range map[string]string{
		"nothing":           "",
		"one line":          "no line end",
		"a line":            "\n",
		"JSON":              `{"odata.error":{"code":"X","message":{"value":"y"}}}`,
		"login page":        "<html>\nlog in\n</html>",
		"no parts":          groupDocument(),
		"too few":           groupDocument(groupSuccess),
		"too many":          groupDocument(groupSuccess, groupSuccess, groupSuccess),
		"no version":        groupDocument(groupSuccess, "HTTP/1.1 204 No Content\r\n\r\n"),
		"not HTTP":          groupDocument(groupSuccess, "hello"),
		"cut":               groupDocument(groupSuccess, groupSuccess)[:300],
		"cut early":         groupDocument(groupSuccess, groupSuccess)[:60],
		"no boundary":       "--\r\n\r\n",
		"a long boundary":   "--" + strings.Repeat("b", 100_000) + "\r\n",
		"no inner boundary": "--a\r\n\r\nx\r\n--a--\r\n",
		"an empty part":     "--a\r\n\r\n\r\n--a--\r\n",
		"chunked":           groupDocument(groupSuccess, "HTTP/1.1 200 OK\r\nETag: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"),
	} {
		s := withEntity(t)
		answerGroup(s, text)
		etags, err := s.open(t, "Channels", once).Apply(t.Context(), inserting("a", "b"))
		if !errors.Is(err, table.ErrUnavailable) || etags != nil || !strings.Contains(err.Error(), "the response has no") {
			t.Errorf("%s: %q, %v", name, etags, err)
		}
		if got := s.arrived(); got != "group" {
			t.Errorf("%s: sent %q", name, got)
		}
	}
}

// TestEveryKeyInAGroup: keys with what addresses and multipart documents have a use for.
func TestEveryKeyInAGroup(t *testing.T) {
	s := newService()
	channels := s.open(t, "Channels", once)
	for i, text := range []string{
		"'", "''", "it's", "%27", "%2527", "+", "a+b", "%2B", "PUT x", "DELETE ", " HTTP 1.1", "--batch_", "({[,;=&$@!*:]})", "ü€🙂", "a b", "'?'", ".", "..",
	} {
		text = strings.ReplaceAll(text, "?", "")
		k := table.Key{Partition: fmt.Sprint(i, text), Row: text}
		etags, err := channels.Apply(t.Context(), []table.Change{table.Inserting(table.Entity{Key: k, Properties: map[string]any{"V": text + "\r\nPUT %27 x"}})})
		if err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		etags, err = channels.Apply(t.Context(), []table.Change{table.Updating(table.Entity{Key: k, Properties: map[string]any{"V": "%27+\nDELETE %27+"}, ETag: etags[0]})})
		if err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		if got, err := channels.Get(t.Context(), k); err != nil || got.Text("V") != "%27+\nDELETE %27+" || got.ETag != etags[0] {
			t.Errorf("%q: %v, %v", text, got, err)
		}
		if _, err = channels.Apply(t.Context(), []table.Change{table.Deleting(k, etags[0])}); err != nil {
			t.Errorf("%q: %v", text, err)
		}
	}
}
