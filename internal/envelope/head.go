package envelope

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/millrace/millrace/codec"
	"github.com/millrace/millrace/internal/bodytext"
)

// Head is the metadata that an envelope carries. The zero value carries none.
type Head struct {
	// ID is the id of the job. It stays the same when its message is moved or sent again,
	// unlike the service's message id. Empty if none was given.
	ID string

	// ContentType is the media type of the body, such as "application/json". Empty if not
	// given.
	ContentType string

	// Enqueued is when the producer sent the job, by its clock, in milliseconds. Zero if not
	// given.
	Enqueued time.Time

	// Attempts is the number of recorded failures.
	Attempts int

	// Settled is the number of deliveries accounted for: all up to the last that was given back
	// with a record of its handler's result, and each later one that was given back before a
	// handler started.
	Settled int64

	// Starts is the number of handler starts recorded since the last recorded settlement or
	// saved progress. The workers of the earlier ones may have died. Of a group whose items take
	// turns, see Started, a round counts as one.
	Starts int

	// Fingerprint is equal for jobs whose last recorded failure had the same error, but for the
	// numbers in it. Empty if nothing failed, or if the message had no room for it.
	Fingerprint string

	// Poison is why the message is poison, if it is and could not be moved: no handler sees it
	// any more. Empty otherwise.
	Poison string

	// Moved says of a message in the poison queue that has no room for a whole record why it is
	// poison, after how many attempts, when it expires, and where it came from. Package poison
	// writes and reads it. Empty otherwise.
	Moved string

	// Trace and TraceState are the W3C trace context of the producer. Empty if there is none.
	Trace      string
	TraceState string

	// Kind names the type of the job on a queue of several kinds. Only readers that understand
	// [Kinds] open a message with one. Empty if the queue has jobs of one kind.
	Kind string

	// Key is what the job belongs to, such as a customer or an order. Empty if not given.
	Key string

	// Dedupe is equal for jobs that are the same job sent twice. Empty if not given.
	Dedupe string

	// Claim is where the body is stored if the message does not carry it. Only readers that
	// understand [Claims] open a message with one. Empty otherwise.
	Claim string

	// Items is the number of jobs that the body is a [Group] of. Only readers that understand
	// [Groups] open a message with one. 0 if the body is one job.
	Items int

	// Done are the items of the group that need not be handled any more. Empty if none is known.
	Done ItemSet

	// Failed are the items of the group that are not handled any more because they failed for good.
	// When all others are done the message is poison. Empty if there is none.
	Failed ItemSet

	// Started are the items of the group whose turn in the present round has come, except those
	// that are done: a worker that held the message died or lost its lease, so it may have been one
	// of them that killed it. The others come first. Empty if no start was lost.
	Started ItemSet

	// Failure is why the first of Failed failed, for the poison queue, shortened by
	// [ShortFailure]. Empty if not known.
	Failure string

	// base64 reports that the body came in Base64 although XML could carry it as it is. It
	// stays so, because escaped it could be larger.
	base64 bool

	// unknown holds parameters of a later release of the same version, unchanged.
	unknown string
}

// Room is how many bytes a sealed text may still grow, escaped for XML, when attempts and starts
// are recorded in it, or in their place why and from where it was moved to the poison queue. A
// producer leaves them free, and for a group those that [Head.Room] says.
const Room = max(len(largestRecord), len(largestMoved)+maxQueueName) + len(separator)

// largestRecord and largestMoved are everything that is ever recorded, with every count at its
// maximum and & escaped for XML. The first parameter of an envelope has no separator, which makes
// Room five bytes larger than needed.
const (
	separator     = "&amp;"
	largestRecord = separator + "n=2147483647" + separator + "s=9223372036854775807" + separator + "st=2147483647" + separator + "px=undecodable"
	largestMoved  = separator + "pq=undecodable+2147483647+253402300799+"
	maxQueueName  = 63
)

// Room returns by how many bytes the text may still grow that already records h: what is left of
// the [Room] bytes, and of those that Done, Failed, Started and Failure of a group may take.
func (h Head) Room() int {
	room, used := Room, 0
	if h.Items > 0 {
		room += 3*(len(separator+"gd=")+encodedSetSize(setSize(h.Items))) + len(separator+"ge=") + maxFailure
	}
	if h.Failure != "" {
		used += len(separator+"ge=") + len(url.QueryEscape(h.Failure))
	}
	for _, set := range [...]ItemSet{h.Done, h.Failed, h.Started} {
		if set != "" {
			used += len(separator+"gd=") + encodedSetSize(len(set))
		}
	}
	count := func(key string, n int64) {
		if n != 0 {
			used += len(separator+"=") + len(key) + len(strconv.FormatInt(n, 10))
		}
	}
	count("n", int64(h.Attempts))
	count("s", h.Settled)
	count("st", int64(h.Starts))
	if h.Poison != "" {
		used += len(separator+"px=") + len(url.QueryEscape(h.Poison))
	}
	return max(room-used, 0)
}

// The limits that [Head.Check] holds, in bytes.
const (
	// MaxHeadText is the largest size of an id, a content type, a kind, a key, a dedupe key and a
	// claim.
	MaxHeadText = 256

	// MaxTraceState is the largest size of a trace state. W3C Trace Context lets whoever hands on
	// a longer one leave it out.
	MaxTraceState = 512
)

// Check refuses a head that should not be sent: a text over [MaxHeadText], not in UTF-8 or with a
// control character, a count outside its range, or a trace context that is none. Readers do not
// check, because what was sent must stay readable.
func (h Head) Check() error {
	for _, one := range [...]struct{ name, value string }{
		{"job id", h.ID}, {"content type", h.ContentType}, {"kind", h.Kind}, {"key", h.Key}, {"dedupe key", h.Dedupe}, {"claim", h.Claim},
	} {
		if err := checkHeadText(one.name, one.value); err != nil {
			return err
		}
	}
	if min(int64(h.Attempts), h.Settled, int64(h.Starts)) < 0 || max(h.Attempts, h.Starts) > math.MaxInt32 {
		return fmt.Errorf("the counts of the head, %d attempts, %d settled and %d starts, are not all within 0…%d",
			h.Attempts, h.Settled, h.Starts, math.MaxInt32)
	}
	if h.Items < 0 || h.Items > MaxItems {
		return fmt.Errorf("a group of %d items is outside 1…%d", h.Items, MaxItems)
	}
	if max(len(h.Done), len(h.Failed), len(h.Started)) > setSize(h.Items) {
		return fmt.Errorf("the items that are done, failed, or started are not all among the %d of the group", h.Items)
	}
	if len(url.QueryEscape(h.Failure)) > maxFailure {
		return fmt.Errorf("the failure %.40q… has %d bytes escaped, the limit is %d", h.Failure, len(url.QueryEscape(h.Failure)), maxFailure)
	}
	return h.checkTrace()
}

// checkHeadText refuses a text that is too long or that a log cannot show.
func checkHeadText(name, value string) error {
	if len(value) > MaxHeadText {
		return fmt.Errorf("the %s has %d bytes, the limit is %d", name, len(value), MaxHeadText)
	}
	if isPrintable(value) {
		return nil
	}
	for i, r := range value {
		if unicode.IsControl(r) {
			return fmt.Errorf("the %s %.40q has the control character %U at byte %d", name, value, r, i)
		}
	}
	if !utf8.ValidString(value) {
		return fmt.Errorf("the %s %.40q is not UTF-8", name, value)
	}
	return nil
}

// isPrintable reports whether s is printable ASCII, as most texts of a head are.
func isPrintable(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}

// checkTrace checks the form of the trace context as W3C Trace Context, sections 3.2 and 3.3,
// asks for.
func (h Head) checkTrace() error {
	if h.Trace != "" && !isTraceParent(h.Trace) {
		return fmt.Errorf("the trace parent %.60q is not of the form 00-<32 hex>-<16 hex>-<2 hex>, in lower case", h.Trace)
	}
	switch {
	case h.TraceState == "":
	case h.Trace == "":
		return errors.New("a trace state without a trace parent means nothing")
	case len(h.TraceState) > MaxTraceState:
		return fmt.Errorf("the trace state has %d bytes, the limit is %d", len(h.TraceState), MaxTraceState)
	case strings.ContainsFunc(h.TraceState, func(r rune) bool { return (r < ' ' || r > '~') && r != '\t' }):
		return fmt.Errorf("the trace state %.60q is not printable ASCII", h.TraceState)
	}
	return nil
}

// isTraceParent reports whether s is a traceparent of version 00, or of a later one, which may
// have more after another dash.
func isTraceParent(s string) bool {
	const size = len("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	if len(s) < size || s[:2] == "ff" || len(s) > size && (s[:2] == "00" || s[size] != '-' || len(s) > MaxHeadText) {
		return false
	}
	zeros := [4]bool{true, true, true, true}
	part := 0
	for i := range size {
		c := s[i]
		switch {
		case i == 2 || i == 35 || i == 52:
			if c != '-' {
				return false
			}
			part++
		case '0' <= c && c <= '9', 'a' <= c && c <= 'f':
			zeros[part] = zeros[part] && c == '0'
		default:
			return false
		}
	}
	return !zeros[1] && !zeros[2] // ids of zeros are no ids
}

// recognize returns the body of a text without an envelope, and how the text carries it, as
// [codec.Auto] reads it.
func recognize(text string) ([]byte, codec.Format) {
	body := []byte(text)
	// A text that begins like this is not Base64, so it is the body, valid or not. This saves
	// every JSON message a second parse.
	if beginsWith(text, `{["-<`) || json.Valid(bodytext.WithoutMark(body)) {
		return body, codec.Plain
	}
	if inner, err := base64.StdEncoding.DecodeString(strings.TrimSpace(text)); err == nil && (json.Valid(bodytext.WithoutMark(inner)) || isXML(inner)) {
		return inner, codec.Base64
	}
	return body, codec.Plain
}

// beginsWith reports whether the first character of text, after a byte order mark and white
// space, is one of these.
func beginsWith(text, characters string) bool {
	text = strings.TrimLeft(strings.TrimPrefix(text, "\uFEFF"), bodytext.JSONSpace)
	return text != "" && strings.IndexByte(characters, text[0]) >= 0
}

// isXML reports whether the body is a well-formed XML document.
func isXML(body []byte) bool { return beginsWith(string(body), "<") && bodytext.CheckXML(body) == nil }

// Explain adds to err, with which the text of a message could not be opened or its body not be
// decoded, how the text was read: with [codec.Auto] the forms that were tried and why it is in none
// of them; with another format, whether Auto reads it. The result wraps err. An envelope needs no
// explanation, nor does a [codec.ErrNewer]: then it is err.
func Explain(text string, f codec.Format, err error) error {
	if err == nil || errors.Is(err, codec.ErrNewer) || strings.HasPrefix(text, prefix) {
		return err
	}
	body, recognized := recognize(text)
	form := formOf(body)
	if form != "" && recognized == codec.Base64 {
		form = "Base64 of " + form
	}
	switch {
	case f != codec.Auto && form != "" && f != recognized:
		return fmt.Errorf("%w; Format is %v, but the text is %s: Auto reads that", err, f, form)
	case f != codec.Auto:
		return fmt.Errorf("%w; the text was read as %v, which is the Format that is set", err, f)
	case form != "":
		return fmt.Errorf("%w; the text has no envelope and is %s", err, form)
	}
	return fmt.Errorf("%w; the text was tried as an envelope (it does not begin with %q), as JSON (%w), and as Base64 (%w)",
		err, prefix, jsonError(body), base64Error(text))
}

// formOf says what a body is, or "" if it is neither JSON nor XML.
func formOf(body []byte) string {
	body = bodytext.WithoutMark(body)
	switch {
	case json.Valid(body):
		var text string
		if json.Unmarshal(body, &text) == nil && beginsWith(text, `{[`) && json.Valid([]byte(text)) {
			return "a JSON string that holds JSON: its sender encoded it twice"
		}
		return "JSON"
	case isXML(body):
		return "XML"
	}
	return ""
}

func jsonError(body []byte) error {
	if len(body) == 0 {
		return errors.New("it is empty")
	}
	var value json.RawMessage
	err := json.Unmarshal(bodytext.WithoutMark(body), &value)
	if syntax := (*json.SyntaxError)(nil); errors.As(err, &syntax) {
		return fmt.Errorf("%w, at byte %d", err, syntax.Offset)
	}
	return err
}

// base64Error returns why a text is not Base64 of JSON or XML.
func base64Error(text string) error {
	body, err := base64.StdEncoding.DecodeString(strings.TrimSpace(text))
	switch {
	case err != nil:
		return err
	case len(body) == 0:
		return errors.New("it is empty")
	case isUTF16(body):
		return errors.New("it decodes to what looks like UTF-16, not UTF-8")
	case beginsWith(string(body), "<"):
		return fmt.Errorf("it decodes to no XML: %w", bodytext.CheckXML(body))
	}
	return fmt.Errorf("it decodes to no JSON: %w", jsonError(body))
}

// isUTF16 reports whether the body looks like UTF-16: it has its byte order mark, or begins with
// an ASCII character in two bytes.
func isUTF16(body []byte) bool {
	if len(body) < 2 || len(body)%2 != 0 {
		return false
	}
	a, b := body[0], body[1]
	return a == 0xFF && b == 0xFE || a == 0xFE && b == 0xFF || (a == 0) != (b == 0)
}
