package aztable

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/streaming"

	"github.com/millrace/millrace/internal/azurestorage"
	"github.com/millrace/millrace/table"
)

// The names of types and annotations are those of "Payload format for Table service operations".
const (
	edmBinary   = "Edm.Binary"
	edmBoolean  = "Edm.Boolean"
	edmDateTime = "Edm.DateTime"
	edmDouble   = "Edm.Double"
	edmGUID     = "Edm.Guid"
	edmInt32    = "Edm.Int32"
	edmInt64    = "Edm.Int64"
	edmString   = "Edm.String"

	typeSuffix = "@odata.type"
	etagName   = "odata.etag"

	partitionName = "PartitionKey"
	rowName       = "RowKey"
	timeName      = "Timestamp"
)

const timeFormat = "2006-01-02T15:04:05.0000000Z"

// encode returns an entity as the service takes it.
func encode(e table.Entity) ([]byte, error) {
	document := map[string]any{partitionName: e.Partition, rowName: e.Row}
	for name, value := range e.Clone().Properties {
		kind := ""
		switch v := value.(type) {
		case int64:
			kind, value = edmInt64, strconv.FormatInt(v, 10)
		case float64:
			kind = edmDouble // without it, 5.0 were an integer
		case time.Time:
			kind, value = edmDateTime, v.Format(timeFormat)
		case []byte:
			kind = edmBinary // encoding/json writes Base64
		case table.GUID:
			kind = edmGUID
		}
		document[name] = value
		if kind != "" {
			document[name+typeSuffix] = kind
		}
	}
	return json.Marshal(document)
}

// decode reads a JSON document, with numbers as they are written: only that tells a double from an integer.
func decode(document []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(document))
	d.UseNumber()
	if d.Decode(into) != nil {
		return &azurestorage.ForeignError{Lacks: "JSON document"}
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return &azurestorage.ForeignError{Lacks: "end of its JSON document"}
	}
	return nil
}

// newEntity reads an entity of a response. It fails with a [*azurestorage.ForeignError] if a part is missing that the
// service always sends.
func newEntity(document map[string]any) (table.Entity, error) {
	partition, isPartition := document[partitionName].(string)
	row, isRow := document[rowName].(string)
	etag, _ := document[etagName].(string)
	modified, isTime := readTime(document[timeName])
	switch {
	case !isPartition || !isRow:
		return table.Entity{}, &azurestorage.ForeignError{Lacks: "key of the entity"}
	case etag == "":
		return table.Entity{}, &azurestorage.ForeignError{Lacks: "ETag of the entity"}
	case !isTime:
		return table.Entity{}, &azurestorage.ForeignError{Lacks: "time of the entity"}
	}
	e := table.Entity{Key: table.Key{Partition: partition, Row: row}, Properties: map[string]any{}, ETag: table.ETag(etag), Modified: modified.UTC()}
	for name, raw := range document {
		if raw == nil || strings.Contains(name, "odata.") || name == partitionName || name == rowName || name == timeName {
			continue // null is the absence of a property
		}
		kind, _ := document[name+typeSuffix].(string)
		value, ok := readValue(kind, raw)
		if !ok {
			return table.Entity{}, &azurestorage.ForeignError{Lacks: "value of its type for the property " + strconv.Quote(name)}
		}
		e.Properties[name] = value
	}
	return e.Clone(), nil
}

// readValue returns a property whose JSON value is raw. kind is its annotation, "" for the types that need none.
func readValue(kind string, raw any) (value any, ok bool) {
	text, isText := raw.(string)
	number, isNumber := raw.(json.Number)
	switch kind {
	case "":
		if isNumber {
			return readNumber(number)
		}
		_, isBool := raw.(bool)
		return raw, isText || isBool
	case edmString:
		return text, isText
	case edmGUID:
		return table.GUID(text), isText
	case edmBoolean:
		value, ok = raw.(bool)
		return value, ok
	case edmBinary:
		value, err := base64.StdEncoding.DecodeString(text)
		return value, isText && err == nil
	case edmDateTime:
		return readTime(raw)
	}
	if !isNumber { // NaN and the infinities are always strings, and so are 64 bits
		number = json.Number(text)
	}
	switch kind {
	case edmDouble:
		value, err := strconv.ParseFloat(string(number), 64)
		return value, err == nil
	case edmInt32:
		value, err := strconv.ParseInt(string(number), 10, 32)
		return int32(value), err == nil //nolint:gosec // it has 32 bits
	case edmInt64:
		value, err := strconv.ParseInt(string(number), 10, 64)
		return value, err == nil
	}
	return nil, false
}

// readNumber reads a number without an annotation: a double if it has a point or an exponent, and otherwise an int32.
func readNumber(n json.Number) (value any, ok bool) {
	if strings.ContainsAny(string(n), ".eE") {
		return readValue(edmDouble, n)
	}
	return readValue(edmInt32, n)
}

func readTime(raw any) (time.Time, bool) {
	text, _ := raw.(string)
	value, err := time.Parse(time.RFC3339Nano, text)
	return value, err == nil
}

// wire is the first policy of aztables' pipeline. It writes what aztables v1.4.1 cannot say, and takes the responses
// before aztables reads them. Of a response aztables keeps too little: it reads every number as a float64, so that 5.0
// comes back as the integer 5; it drops the versions of a group; and it panics over the response to a group that has no
// line end.
type wire struct{}

// Do implements [policy.Policy].
func (wire) Do(req *policy.Request) (*http.Response, error) {
	if err := prepare(req); err != nil {
		return nil, err
	}
	resp, err := req.Next()
	if err != nil {
		return nil, err
	}
	if resp.StatusCode >= http.StatusMultipleChoices {
		return nil, runtime.NewResponseError(resp)
	}
	body, err := runtime.Payload(resp) // the pipeline has read it
	if err != nil {
		return nil, err
	}
	return nil, &answer{Response: resp, body: body}
}

// prepare completes a request before it is signed.
func prepare(req *policy.Request) error {
	r := req.Raw()
	r.URL.RawPath = strings.ReplaceAll(r.URL.EscapedPath(), "+", "%2B") // some servers read it as a space
	switch {
	case r.Method != http.MethodPost:
		return nil
	case !strings.HasSuffix(r.URL.Path, "/$batch"):
		r.Header.Set("Prefer", "return-no-content") // or the service sends the entity back
		return nil
	}
	body, err := io.ReadAll(req.Body())
	if err != nil {
		return fmt.Errorf("read the group: %w", err)
	}
	return req.SetBody(streaming.NopCloser(bytes.NewReader(quoteKeys(body))), r.Header.Get("Content-Type"))
}

// quoteKeys doubles the quotes in the keys of the addresses in a group, as OData demands. aztables does so for single
// changes alone.
func quoteKeys(group []byte) []byte {
	if !bytes.Contains(group, []byte("%27")) && !bytes.Contains(group, []byte("+")) {
		return group
	}
	lines := bytes.SplitAfter(group, []byte("\n"))
	for i, line := range lines {
		// Headers have a colon and entities are JSON on one line, so that no other line begins like this.
		if bytes.HasPrefix(line, []byte("PUT ")) || bytes.HasPrefix(line, []byte("DELETE ")) {
			path, query, signed := bytes.Cut(line, []byte("?"))
			path = bytes.ReplaceAll(path, []byte("%27"), []byte("%27%27"))
			path = bytes.ReplaceAll(path, []byte("+"), []byte("%2B"))
			if signed {
				path = append(append(path, '?'), query...)
			}
			lines[i] = path
		}
	}
	return bytes.Join(lines, nil)
}

// answer is a response with a success status, with its whole body. It leaves the pipeline as an error, because aztables
// returns errors unchanged.
type answer struct {
	*http.Response
	body []byte
}

func (*answer) Error() string { return "the response was taken" }

// NonRetriable tells azcore not to retry.
func (*answer) NonRetriable() {}

// check refuses a response that is not the service's answer to a request that it answers with one of the statuses.
func (a *answer) check(statuses ...int) error {
	if a.Header.Get(azurestorage.RequestIDHeader) == "" {
		return &azurestorage.ForeignError{Lacks: "request id"}
	}
	if !runtime.HasStatusCode(a.Response, statuses...) {
		return &azurestorage.ForeignError{Lacks: "status of success"}
	}
	return nil
}

// decode reads the JSON document of a response. One without the types of properties is refused, because a 64-bit
// number would then be a string.
func (a *answer) decode(into any) error {
	if strings.Contains(a.Header.Get("Content-Type"), "odata=nometadata") {
		return &azurestorage.ForeignError{Lacks: "types of the properties"}
	}
	return decode(a.body, into)
}
