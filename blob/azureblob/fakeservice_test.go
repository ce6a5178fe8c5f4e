package azureblob_test

import (
	"bytes"
	"crypto/md5"
	"encoding/base64"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/millrace/millrace/blob/azureblob"
)

// fakeService is the Blob service as far as azureblob speaks to it, in process, with faults. Azurite
// passes the same tests: TestAzuriteConforms.
type fakeService struct {
	pageSize int           // of lists; 0 means 5,000
	ahead    time.Duration // of this machine's clock

	mu         sync.Mutex
	containers map[string]*fakeContainer // guarded by mu
	clock      int                       // makes ETags; guarded by mu
	ops        []string                  // operations that arrived; guarded by mu
	stored     int                       // bytes of bodies that took effect; guarded by mu
	fault      func(op string) fault     // nil for none; guarded by mu
}

// fault is what goes wrong with one request.
type fault struct {
	status      int    // of the response in place of the usual one
	code        string // with status
	lost        bool   // the request has no effect and no response
	cutRequest  int    // as lost, after so many bytes of the body, if it has as many
	unanswered  bool   // the request has its effect and no response
	cutResponse int    // the response ends after so many bytes of the body, if it has as many
	hangs       bool   // nothing comes until the context ends
	hangsLater  int    // as cutResponse, but it hangs there
	damaged     bool   // the first byte of the request's body is another
	login       bool   // the response is a login page with status 200
	before      func() // called first, without the lock

	// changed changes the header of a response, and returns its status.
	changed func(h http.Header) int
}

type fakeContainer struct {
	access string
	blobs  map[string]*fakeBlob // those of uploads that are not committed have no etag
}

type fakeBlob struct {
	etag        string
	content     []byte
	modified    time.Time
	metadata    map[string]string
	committed   []fakeBlock
	uncommitted map[string][]byte
}

type fakeBlock struct {
	id      string
	content []byte
}

var errCut = errors.New("the connection broke")

// newService returns a service with an empty container, that of someRef.
func newService() *fakeService {
	return &fakeService{containers: map[string]*fakeContainer{someRef.Container: {blobs: make(map[string]*fakeBlob)}}}
}

// setFault makes requests fail from now on.
func (s *fakeService) setFault(f func(op string) fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault = f
}

// arrived returns the operations that have arrived since the last call.
func (s *fakeService) arrived() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer func() { s.ops = nil }()
	return s.ops
}

// open returns a store that speaks to the service.
func (s *fakeService) open(t interface{ Fatal(...any) }, o azureblob.Options) *azureblob.Store {
	o.Transport = s
	if o.BlockSize == 0 {
		o.BlockSize = 1 << 10
	}
	store, err := azureblob.Open("UseDevelopmentStorage=true", &o)
	if err != nil {
		t.Fatal(err)
	}
	return store
}

// Do responds to a request.
func (s *fakeService) Do(r *http.Request) (*http.Response, error) {
	op, f := s.arrive(r)
	if f.before != nil {
		f.before()
	}
	headers := make(http.Header) // the SDK does not write all names as net/http does
	for name, values := range r.Header {
		headers[http.CanonicalHeaderKey(name)] = values
	}
	r = r.WithContext(r.Context()) // a copy
	r.Header = headers
	var content []byte
	if r.Body != nil {
		defer r.Body.Close()
		var err error
		if content, err = io.ReadAll(r.Body); err != nil {
			return nil, err
		}
	}
	if f.damaged && len(content) > 0 {
		content = bytes.Clone(content)
		content[0]++
	}
	switch {
	case f.hangs:
		<-r.Context().Done()
		return nil, r.Context().Err()
	case f.lost, f.cutRequest > 0 && len(content) >= f.cutRequest:
		return nil, errCut
	case f.login:
		return respond(r, 200, http.Header{"Content-Type": {"text/html"}}, "<html>log in</html>"), nil
	case f.status != 0:
		return refuse(r, f.status, f.code), nil
	}
	resp := s.handle(op, r, content)
	if f.changed != nil {
		resp.StatusCode = f.changed(resp.Header)
	}
	switch {
	case f.unanswered:
		return nil, errCut
	case f.cutResponse > 0 || f.hangsLater > 0:
		resp.Body = &cutBody{Reader: resp.Body, left: f.cutResponse + f.hangsLater, hangs: f.hangsLater > 0, r: r}
	}
	return resp, nil
}

func (s *fakeService) arrive(r *http.Request) (op string, f fault) {
	op = r.Method
	if c := r.URL.Query().Get("comp"); c != "" {
		op += " " + c
	}
	if r.URL.Query().Get("restype") == "container" {
		op += " container"
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ops = append(s.ops, op)
	if s.fault != nil {
		f = s.fault(op)
	}
	return op, f
}

// cutBody is a body whose connection breaks or hangs.
type cutBody struct {
	io.Reader
	left  int
	hangs bool
	r     *http.Request
}

func (c *cutBody) Read(p []byte) (int, error) {
	if c.left == 0 && c.hangs {
		<-c.r.Context().Done()
		return 0, c.r.Context().Err()
	}
	if c.left == 0 {
		return 0, errCut
	}
	n, err := c.Reader.Read(p[:min(len(p), c.left)])
	c.left -= n
	return n, err
}

func (*cutBody) Close() error { return nil }

// handle does what was asked for.
func (s *fakeService) handle(op string, r *http.Request, content []byte) *http.Response {
	s.mu.Lock()
	defer s.mu.Unlock()
	path := strings.SplitN(strings.TrimPrefix(r.URL.Path, "/devstoreaccount1/"), "/", 2)
	c := s.containers[path[0]]
	if op == "PUT container" {
		if c != nil {
			return refuse(r, 409, "ContainerAlreadyExists")
		}
		s.containers[path[0]] = &fakeContainer{blobs: make(map[string]*fakeBlob)}
		return s.respond(r, http.StatusCreated, nil, "")
	}
	if c == nil {
		return refuse(r, 404, "ContainerNotFound")
	}
	if sum := r.Header.Get("Content-MD5"); sum != "" {
		if got := md5.Sum(content); base64.StdEncoding.EncodeToString(got[:]) != sum {
			return refuse(r, 400, "Md5Mismatch")
		}
	}
	if len(path) == 1 {
		return s.answerContainer(op, c, r)
	}
	b := c.blobs[path[1]]
	if op == "PUT" || op == "PUT block" || op == "PUT blocklist" {
		if b == nil {
			b = &fakeBlob{}
		}
		resp := s.write(op, b, r, content)
		if resp.StatusCode == http.StatusCreated {
			c.blobs[path[1]] = b
			s.stored += len(content)
		}
		return resp
	}
	if b == nil || b.etag == "" && op != "GET blocklist" {
		return refuse(r, 404, "BlobNotFound")
	}
	if match := r.Header.Get("If-Match"); match != "" && match != b.etag {
		return refuse(r, 412, "ConditionNotMet")
	}
	switch op {
	case "GET", "HEAD":
		return s.read(b, r)
	case "DELETE":
		delete(c.blobs, path[1])
		return s.respond(r, 202, nil, "")
	case "GET blocklist":
		return s.blockList(b, r)
	}
	return refuse(r, 400, "UnsupportedHttpVerb")
}

func (s *fakeService) write(op string, b *fakeBlob, r *http.Request, content []byte) *http.Response {
	if op == "PUT block" {
		id := r.URL.Query().Get("blockid")
		for other := range b.uncommitted {
			if len(other) != len(id) {
				return refuse(r, 400, "InvalidBlobOrBlock")
			}
		}
		if b.uncommitted == nil {
			b.uncommitted = make(map[string][]byte)
		}
		b.uncommitted[id] = content
		return s.respond(r, http.StatusCreated, nil, "")
	}
	if r.Header.Get("If-None-Match") == "*" && b.etag != "" {
		return refuse(r, 409, "BlobAlreadyExists")
	}
	var blocks []fakeBlock
	if op == "PUT blocklist" {
		var list struct{ Latest []string }
		if xml.Unmarshal(content, &list) != nil {
			return refuse(r, 400, "InvalidXmlDocument")
		}
		content = nil
		for _, id := range list.Latest {
			data, ok := b.uncommitted[id]
			if i := slices.IndexFunc(b.committed, func(k fakeBlock) bool { return k.id == id }); !ok && i >= 0 {
				data, ok = b.committed[i].content, true
			}
			if !ok {
				return refuse(r, 400, "InvalidBlockList")
			}
			blocks = append(blocks, fakeBlock{id, data})
			content = append(content, data...)
		}
	}
	s.clock++
	*b = fakeBlob{etag: fmt.Sprintf(`"0x%d"`, s.clock), content: content, modified: s.now(), metadata: make(map[string]string), committed: blocks}
	for name, values := range r.Header {
		if name, ok := strings.CutPrefix(strings.ToLower(name), "x-ms-meta-"); ok {
			b.metadata[name] = values[0]
		}
	}
	return s.respond(r, http.StatusCreated, http.Header{"Etag": {b.etag}}, "")
}

func (s *fakeService) read(b *fakeBlob, r *http.Request) *http.Response {
	h := http.Header{"Etag": {b.etag}, "Last-Modified": {b.modified.Format(http.TimeFormat)}}
	for name, value := range b.metadata {
		h.Set("X-Ms-Meta-"+name, value)
	}
	status, content := 200, b.content
	asked := r.Header.Get("X-Ms-Range") + r.Header.Get("Range")
	if from, ok := strings.CutSuffix(strings.TrimPrefix(asked, "bytes="), "-"); ok {
		n, err := strconv.Atoi(from)
		if err != nil || n >= len(content) {
			return refuse(r, 416, "InvalidRange")
		}
		h.Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", n, len(content)-1, len(content)))
		status, content = 206, content[n:]
	}
	h.Set("Content-Length", strconv.Itoa(len(content)))
	if r.Method == http.MethodHead {
		content = nil
	}
	return s.respond(r, status, h, string(content))
}

func (s *fakeService) blockList(b *fakeBlob, r *http.Request) *http.Response {
	h := http.Header{}
	if b.etag != "" {
		h.Set("Etag", b.etag)
	}
	var list strings.Builder
	list.WriteString("<BlockList><CommittedBlocks>")
	for _, k := range b.committed {
		fmt.Fprintf(&list, "<Block><Name>%s</Name><Size>%d</Size></Block>", k.id, len(k.content))
	}
	list.WriteString("</CommittedBlocks><UncommittedBlocks>")
	for id, content := range b.uncommitted {
		fmt.Fprintf(&list, "<Block><Name>%s</Name><Size>%d</Size></Block>", id, len(content))
	}
	list.WriteString("</UncommittedBlocks></BlockList>")
	return s.respond(r, 200, h, list.String())
}

func (s *fakeService) answerContainer(op string, c *fakeContainer, r *http.Request) *http.Response {
	h := http.Header{"Etag": {`"0x0"`}, "Last-Modified": {s.now().Format(http.TimeFormat)}}
	switch op {
	case "GET acl container":
		if c.access != "" {
			h.Set("X-Ms-Blob-Public-Access", c.access)
		}
		return s.respond(r, 200, h, "<SignedIdentifiers></SignedIdentifiers>")
	case "PUT acl container":
		c.access = r.Header.Get("X-Ms-Blob-Public-Access")
		return s.respond(r, 200, h, "")
	case "GET list container":
		return s.list(c, r)
	}
	return refuse(r, 400, "UnsupportedHttpVerb")
}

func (s *fakeService) list(c *fakeContainer, r *http.Request) *http.Response {
	q := r.URL.Query()
	var page strings.Builder
	fmt.Fprintf(&page, `<EnumerationResults ServiceEndpoint="http://fake/" ContainerName="c"><Blobs>`)
	n, next := 0, ""
	for _, name := range slices.Sorted(maps.Keys(c.blobs)) {
		b := c.blobs[name]
		if !strings.HasPrefix(name, q.Get("prefix")) || name < q.Get("marker") || b.etag == "" {
			continue
		}
		if s.pageSize > 0 && n == s.pageSize {
			next = name
			break
		}
		n++
		fmt.Fprintf(&page, "<Blob><Name>%s</Name><Properties><Last-Modified>%s</Last-Modified><Etag>%s</Etag><Content-Length>%d</Content-Length></Properties><Metadata>",
			name, b.modified.Format(http.TimeFormat), strings.Trim(b.etag, `"`), len(b.content))
		for name, value := range b.metadata {
			fmt.Fprintf(&page, "<%s>", name)
			xml.EscapeText(&page, []byte(value))
			fmt.Fprintf(&page, "</%s>", name)
		}
		page.WriteString("</Metadata></Blob>")
	}
	fmt.Fprintf(&page, "</Blobs><NextMarker>%s</NextMarker></EnumerationResults>", next)
	return s.respond(r, 200, http.Header{"Content-Type": {"application/xml"}}, page.String())
}

// now is the time by the service's clock.
func (s *fakeService) now() time.Time { return time.Now().Add(s.ahead).UTC() }

// respond is a response with what the service always sends.
func (s *fakeService) respond(r *http.Request, status int, h http.Header, body string) *http.Response {
	if h == nil {
		h = http.Header{"Etag": {`"0x0"`}, "Last-Modified": {s.now().Format(http.TimeFormat)}}
	}
	h.Set("Date", s.now().Format(http.TimeFormat))
	h.Set("X-Ms-Request-Id", "fake-1")
	h.Set("X-Ms-Version", "2026-04-06")
	return respond(r, status, h, body)
}

// refuse is an error response of the service, or a proxy's without a code.
func refuse(r *http.Request, status int, code string) *http.Response {
	h := http.Header{"X-Ms-Request-Id": {"fake-2"}, "X-Ms-Error-Code": {code}, "Content-Type": {"application/xml"}}
	body := fmt.Sprintf("<Error><Code>%s</Code><Message>It is %s.\nRequestId:fake-2\nTime:now</Message></Error>", code, code)
	if code == "" {
		h, body = http.Header{}, ""
	}
	if r.Method == http.MethodHead {
		body = ""
	}
	return respond(r, status, h, body)
}

func respond(r *http.Request, status int, h http.Header, body string) *http.Response {
	return &http.Response{StatusCode: status, Status: http.StatusText(status), Header: h, Body: io.NopCloser(strings.NewReader(body)), ContentLength: int64(len(body)), Request: r}
}
