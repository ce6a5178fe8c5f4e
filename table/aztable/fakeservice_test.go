package aztable_test

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"net/textproto"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/millrace/millrace/table"
	"github.com/millrace/millrace/table/aztable"
)

// fakeService is the Table service as far as aztable speaks to it, in process, with faults. It keeps entities in
// table.Memory, whose pages end where the service's do. Azurite passes the same suite: TestAzuriteConforms.
type fakeService struct {
	mu     sync.Mutex
	tables map[string]table.Store // by name in lower case; guarded by mu
	ops    []string               // operations that arrived; guarded by mu
	fault  func(op string) fault  // nil for none; guarded by mu
}

// fault is what goes wrong with one request.
type fault struct {
	status     int    // of the response in place of the usual one
	code       string // with status
	err        error  // the request has no effect and fails with this
	unanswered bool   // the request has its effect and no response
	hangs      bool   // nothing comes until the context ends
	login      bool   // the response is a login page with status 200
	before     func() // called first, without the lock

	// changed changes a response.
	changed func(r *http.Response)
}

var errCut = errors.New("the connection broke")

func newService() *fakeService { return &fakeService{tables: map[string]table.Store{}} }

// setFault makes requests fail from now on.
func (s *fakeService) setFault(f func(op string) fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault = f
}

// always makes every request fail in the same way.
func (s *fakeService) always(f fault) { s.setFault(func(string) fault { return f }) }

// arrived returns the operations that have arrived since the last call.
func (s *fakeService) arrived() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer func() { s.ops = nil }()
	return strings.Join(s.ops, ", ")
}

// open returns a table of the service.
func (s *fakeService) open(t interface{ Fatal(...any) }, name string, o aztable.Options) *aztable.Table {
	o.Transport = s
	opened, err := aztable.Open("UseDevelopmentStorage=true", name, &o)
	if err != nil {
		t.Fatal(err)
	}
	return opened
}

// Do responds to a request.
func (s *fakeService) Do(r *http.Request) (*http.Response, error) {
	op, f := s.arrive(r)
	if f.before != nil {
		f.before()
	}
	var content []byte
	if r.Body != nil {
		defer r.Body.Close()
		var err error
		if content, err = io.ReadAll(r.Body); err != nil {
			return nil, err
		}
	}
	switch {
	case f.hangs:
		<-r.Context().Done()
		return nil, r.Context().Err()
	case f.err != nil:
		return nil, f.err
	case f.login:
		return respond(r, http.StatusOK, http.Header{"Content-Type": {"text/html"}}, "<html>log in</html>"), nil
	case f.status != 0:
		return refuse(r, f.status, f.code), nil
	}
	resp := s.handle(op, r, content)
	resp.Header.Set("X-Ms-Request-Id", "some-id")
	if f.changed != nil {
		f.changed(resp)
	}
	if f.unanswered {
		return nil, errCut
	}
	return resp, nil
}

// The operations.
const (
	opCreate = "create"
	opInsert = "insert"
	opUpdate = "update"
	opDelete = "delete"
	opGet    = "get"
	opQuery  = "query"
	opGroup  = "group"
)

func opOf(r *http.Request) string {
	path := r.URL.Path
	switch {
	case strings.HasSuffix(path, "/$batch"):
		return opGroup
	case strings.HasSuffix(path, "/Tables"):
		return opCreate
	case r.Method == http.MethodPost:
		return opInsert
	case r.Method == http.MethodPut:
		return opUpdate
	case r.Method == http.MethodDelete:
		return opDelete
	case strings.HasSuffix(path, "()"):
		return opQuery
	}
	return opGet
}

func (s *fakeService) arrive(r *http.Request) (op string, f fault) {
	op = opOf(r)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ops = append(s.ops, op)
	if s.fault != nil {
		f = s.fault(op)
	}
	return op, f
}

// handle does what was asked for.
func (s *fakeService) handle(op string, r *http.Request, content []byte) *http.Response {
	switch op {
	case opCreate:
		return s.create(r, content)
	case opGroup:
		return s.group(r, content)
	}
	name, k, err := parsePath(r)
	t := s.table(name)
	switch {
	case err != nil:
		return refuse(r, 400, "InvalidInput")
	case t == nil:
		return refuse(r, 404, "TableNotFound")
	case op == opQuery:
		return s.query(t, r)
	case op == opGet:
		e, err := t.Get(r.Context(), k)
		if err != nil {
			return refuseFor(r, err)
		}
		text, _ := json.Marshal(toWire(e))
		return respond(r, 200, http.Header{"ETag": {string(e.ETag)}, "Content-Type": {"application/json;odata=minimalmetadata"}}, string(text))
	}
	c, err := parseChange(op, r, k, content)
	if err != nil {
		return refuse(r, 400, "InvalidInput")
	}
	etags, err := t.Apply(r.Context(), []table.Change{c})
	if err != nil {
		return refuseFor(r, err)
	}
	h := http.Header{}
	if etags[0] != "" {
		h.Set("ETag", string(etags[0]))
	}
	return respond(r, http.StatusNoContent, h, "")
}

func (s *fakeService) table(name string) table.Store {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tables[strings.ToLower(name)]
}

func (s *fakeService) create(r *http.Request, content []byte) *http.Response {
	var document struct{ TableName string }
	if json.Unmarshal(content, &document) != nil || document.TableName == "" {
		return refuse(r, 400, "InvalidInput")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	name := strings.ToLower(document.TableName)
	if s.tables[name] != nil {
		return refuse(r, 409, "TableAlreadyExists")
	}
	s.tables[name] = table.Memory(name)
	return respond(r, http.StatusNoContent, nil, "")
}

// parsePath returns the table and the entity in an address. The service decodes the escapes first.
func parsePath(r *http.Request) (name string, k table.Key, err error) {
	path := strings.TrimPrefix(r.URL.Path, "/devstoreaccount1/")
	name, rest, isEntity := strings.Cut(path, "(PartitionKey=")
	name = strings.TrimSuffix(name, "()")
	if !isEntity {
		return name, table.Key{}, nil
	}
	partition, rest, err := cutLiteral(rest)
	if err != nil {
		return "", table.Key{}, err
	}
	rest, found := strings.CutPrefix(rest, ",RowKey=")
	row, rest, err := cutLiteral(rest)
	if !found || rest != ")" {
		err = errors.New("not an entity")
	}
	return name, table.Key{Partition: partition, Row: row}, err
}

// cutLiteral returns the string literal that a text begins with, without its quotes, and what follows.
func cutLiteral(text string) (value, rest string, err error) {
	text, found := strings.CutPrefix(text, "'")
	if !found {
		return "", "", errors.New("no string")
	}
	for {
		part, after, found := strings.Cut(text, "'")
		if !found {
			return "", "", errors.New("the string does not end")
		}
		value += part
		if text, found = strings.CutPrefix(after, "'"); !found {
			return value, after, nil
		}
		value += "'"
	}
}

// header returns a header of a request, whose name the SDK does not write as net/http does.
func header(r *http.Request, name string) string {
	for n, values := range r.Header {
		if strings.EqualFold(n, name) {
			return values[0]
		}
	}
	return ""
}

func parseChange(op string, r *http.Request, k table.Key, content []byte) (table.Change, error) {
	etag := table.ETag(header(r, "If-Match"))
	if op == opDelete {
		return table.Deleting(k, etag), nil
	}
	e, err := fromWire(content)
	if err != nil {
		return table.Change{}, err
	}
	if op == opInsert {
		if header(r, "Prefer") != "return-no-content" {
			return table.Change{}, errors.New("the entity would be sent back")
		}
		return table.Inserting(e), nil
	}
	if e.Key != k {
		return table.Change{}, errors.New("the address is of another entity than the content")
	}
	e.ETag = etag
	return table.Updating(e), nil
}

// group applies the changes of an entity group transaction, and responds as the service does.
func (s *fakeService) group(r *http.Request, content []byte) *http.Response {
	var changes []table.Change
	name := ""
	err := eachPart(header(r, "Content-Type"), content, func(part []byte) error {
		inner, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(part)))
		if err != nil {
			return err
		}
		// The SDK writes no length: what follows the header is the body.
		_, body, _ := bytes.Cut(part, []byte("\r\n\r\n"))
		var k table.Key
		if name, k, err = parsePath(inner); err != nil {
			return err
		}
		c, err := parseChange(opOf(inner), inner, k, body)
		changes = append(changes, c)
		return err
	})
	if err != nil {
		return refuse(r, 400, "InvalidInput")
	}
	t := s.table(name)
	if t == nil {
		return respondGroup(r, []string{refusal(404, "TableNotFound", "0:")})
	}
	etags, err := t.Apply(r.Context(), changes)
	if err != nil {
		known := (*table.Error)(nil)
		errors.As(err, &known)
		for i, c := range changes {
			if c.Entity().Key == known.Key {
				status, code := codeFor(err)
				return respondGroup(r, []string{refusal(status, code, fmt.Sprintf("%d:", i))})
			}
		}
		return refuse(r, 400, "InvalidInput")
	}
	var parts []string
	for _, etag := range etags {
		part := "HTTP/1.1 204 No Content\r\nX-Content-Type-Options: nosniff\r\nDataServiceVersion: 1.0;\r\n"
		if etag != "" {
			part += "ETag: " + string(etag) + "\r\n"
		}
		parts = append(parts, part+"\r\n")
	}
	return respondGroup(r, parts)
}

// eachPart calls do with the parts of the parts of a document.
func eachPart(contentType string, content []byte, do func([]byte) error) error {
	_, parameters, err := mime.ParseMediaType(contentType)
	if err != nil {
		return err
	}
	parts := multipart.NewReader(bytes.NewReader(content), parameters["boundary"])
	for {
		part, err := parts.NextPart()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		body, err := io.ReadAll(part)
		if err != nil {
			return err
		}
		if kind := part.Header.Get("Content-Type"); strings.HasPrefix(kind, "multipart/") {
			err = eachPart(kind, body, do)
		} else {
			err = do(body)
		}
		if err != nil {
			return err
		}
	}
}

func respondGroup(r *http.Request, parts []string) *http.Response {
	var inner, outer bytes.Buffer
	w := multipart.NewWriter(&inner)
	for _, part := range parts {
		p, _ := w.CreatePart(textproto.MIMEHeader{"Content-Type": {"application/http"}, "Content-Transfer-Encoding": {"binary"}})
		io.WriteString(p, part)
	}
	w.Close()
	o := multipart.NewWriter(&outer)
	p, _ := o.CreatePart(textproto.MIMEHeader{"Content-Type": {"multipart/mixed; boundary=" + w.Boundary()}})
	p.Write(inner.Bytes())
	o.Close()
	return respond(r, http.StatusAccepted, http.Header{"Content-Type": {"multipart/mixed; boundary=" + o.Boundary()}}, outer.String())
}

// The service's words for where a page begins.
const placePrefix = "1!"

func (s *fakeService) query(t table.Store, r *http.Request) *http.Response {
	parameters := r.URL.Query()
	q, err := parseFilter(parameters.Get("$filter"))
	if err != nil {
		return refuse(r, 400, "InvalidInput")
	}
	if top := parameters.Get("$top"); top != "" {
		if q.Top, err = strconv.Atoi(top); err != nil {
			return refuse(r, 400, "InvalidInput")
		}
	}
	if next := parameters.Get("NextPartitionKey"); next != "" {
		next, found := strings.CutPrefix(next, placePrefix)
		if !found || parameters.Get("NextRowKey") != "1!row" {
			return refuse(r, 400, "InvalidInput")
		}
		q.Token = table.Token(next)
	}
	page, err := t.Query(r.Context(), q)
	if err != nil {
		return refuseFor(r, err)
	}
	list := []map[string]any{}
	for _, e := range page.Entities {
		list = append(list, toWire(e))
	}
	text, _ := json.Marshal(map[string]any{"odata.metadata": "http://x/$metadata#t", "value": list})
	h := http.Header{"Content-Type": {"application/json;odata=minimalmetadata;streaming=true;charset=utf-8"}}
	if page.Next != "" {
		h.Set("x-ms-continuation-NextPartitionKey", placePrefix+string(page.Next))
		h.Set("x-ms-continuation-NextRowKey", "1!row")
	}
	return respond(r, 200, h, string(text))
}

// toWire returns an entity as the service sends it.
func toWire(e table.Entity) map[string]any {
	m := map[string]any{"odata.etag": e.ETag, "PartitionKey": e.Partition, "RowKey": e.Row, "Timestamp": e.Modified.Format(time.RFC3339Nano)}
	for name, value := range e.Properties {
		kind := ""
		switch v := value.(type) {
		case float64:
			text := strconv.FormatFloat(v, 'g', -1, 64)
			if !strings.ContainsAny(text, ".e") {
				text += ".0"
			}
			value = json.RawMessage(text)
		case int64:
			kind, value = "Edm.Int64", strconv.FormatInt(v, 10)
		case time.Time:
			kind, value = "Edm.DateTime", v.Format(time.RFC3339Nano)
		case []byte:
			kind = "Edm.Binary"
		case table.GUID:
			kind = "Edm.Guid"
		}
		m[name] = value
		if kind != "" {
			m[name+"@odata.type"] = kind
		}
	}
	return m
}

func fromWire(content []byte) (table.Entity, error) {
	var m map[string]any
	d := json.NewDecoder(bytes.NewReader(content))
	d.UseNumber()
	if err := d.Decode(&m); err != nil {
		return table.Entity{}, err
	}
	e := table.Entity{Properties: map[string]any{}}
	e.Partition, _ = m["PartitionKey"].(string)
	e.Row, _ = m["RowKey"].(string)
	for name, value := range m {
		if strings.Contains(name, "@") || name == "PartitionKey" || name == "RowKey" {
			continue
		}
		text := fmt.Sprint(value)
		var err error
		switch m[name+"@odata.type"] {
		case "Edm.Int64":
			value, err = strconv.ParseInt(text, 10, 64)
		case "Edm.Double":
			value, err = strconv.ParseFloat(text, 64)
		case "Edm.DateTime":
			value, err = time.Parse("2006-01-02T15:04:05.0000000Z", text)
		case "Edm.Binary":
			value, err = base64.StdEncoding.DecodeString(text)
		case "Edm.Guid":
			value = table.GUID(text)
		case nil:
			if _, isNumber := value.(json.Number); isNumber {
				var n int64
				n, err = strconv.ParseInt(text, 10, 32)
				value = int32(n)
			}
		default:
			err = errors.New("unknown type")
		}
		if err != nil {
			return table.Entity{}, err
		}
		e.Properties[name] = value
	}
	return e, nil
}

// codeFor returns the status and the storage error code for an error of the memory.
func codeFor(err error) (int, string) {
	switch {
	case errors.Is(err, table.ErrMissing):
		return 404, "ResourceNotFound"
	case errors.Is(err, table.ErrExists):
		return 409, "EntityAlreadyExists"
	case errors.Is(err, table.ErrPreconditionFailed):
		return 412, "UpdateConditionNotSatisfied"
	case errors.Is(err, table.ErrTooLarge):
		return 400, "EntityTooLarge"
	}
	return 400, "InvalidInput"
}

func refuseFor(r *http.Request, err error) *http.Response {
	status, code := codeFor(err)
	return refuse(r, status, code)
}

// document is the service's error document.
func document(code, index string) string {
	text, _ := json.Marshal(map[string]any{"odata.error": map[string]any{"code": code, "message": map[string]string{
		"lang": "en-US", "value": index + "It is " + code + ".\nRequestId:some-id\nTime:now",
	}}})
	return string(text)
}

// refusal is a response within the response to a group.
func refusal(status int, code, index string) string {
	return fmt.Sprintf("HTTP/1.1 %d Failed\r\nContent-Type: application/json;odata=minimalmetadata\r\n\r\n%s\r\n", status, document(code, index))
}

// refuse returns an error response; without a code, one of a proxy.
func refuse(r *http.Request, status int, code string) *http.Response {
	if code == "" {
		return respond(r, status, http.Header{"Content-Type": {"text/html"}}, "<html>proxy</html>")
	}
	return respond(r, status, http.Header{"Content-Type": {"application/json"}, "X-Ms-Request-Id": {"some-id"}}, document(code, ""))
}

func respond(r *http.Request, status int, h http.Header, body string) *http.Response {
	header := http.Header{"Date": {time.Now().UTC().Format(http.TimeFormat)}}
	for name, values := range h {
		header[http.CanonicalHeaderKey(name)] = values
	}
	return &http.Response{
		StatusCode: status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: header,
		Body: io.NopCloser(strings.NewReader(body)), ContentLength: int64(len(body)), Request: r,
	}
}
