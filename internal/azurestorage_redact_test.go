package internal_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"

	"github.com/millrace/millrace/internal/azurestorage"
)

func TestWhatProvesWhoWeAreIsTakenOutOfTexts(t *testing.T) {
	for text, want := range map[string]string{
		"Authorization: SharedKey acct:S3cret== and":                  "Authorization: SharedKey REDACTED and",
		"SharedKeyLite acct:S3cret==":                                 "SharedKeyLite REDACTED",
		`{"authorization":"bearer ey.S3cret-_.x"}`:                    `{"authorization":"bearer REDACTED"}`,
		"<p>/q?sv=1&amp;sig=S3cret%3D&amp;sp=r</p>":                   "<p>/q?sv=1&amp;sig=REDACTED&amp;sp=r</p>",
		"to=https%3A%2F%2Fa%2Fq%3Fsv%3D1%26sig%3DS3cret%253D&x=1":     "to=https%3A%2F%2Fa%2Fq%3Fsv%3D1%26sig%3DREDACTED&x=1",
		"to=q%253fpopreceipt%253dS3cret&x=1":                          "to=q%253fpopreceipt%253dREDACTED&x=1",
		"Proxy-Authorization: Basic dXNlcjpT\nVia: p":                 "Proxy-Authorization: REDACTED Via: p",
		`Proxy-Authorization: Digest username="u", response="S3cret"`: "Proxy-Authorization: REDACTED",
		"h=proxy-authorization%3a%20Basic%20UzNjcmV0":                 "h=proxy-authorization%3aREDACTED",
		`invalid proxy address "http://u:S3cret@p:80"`:                `invalid proxy address "http://REDACTED@p:80"`,
		"the ring bearer, and a shared key":                           "the ring bearer, and a shared key",
		"https://acct.queue.core.windows.net:443/q@1":                 "https://acct.queue.core.windows.net:443/q@1",
	} {
		if got := (azurestorage.Location{}).Redact(text); got != want {
			t.Errorf("redact(%q) = %q, want %q", text, got, want)
		}
	}
}

// A server or a proxy may repeat a receipt in any form in which a URL can carry it.
func TestASecretIsTakenOutHoweverItIsEscaped(t *testing.T) {
	const receipt = "AgAA/AMA+AAA cret=="
	escaped := url.QueryEscape(receipt)
	for name, form := range map[string]string{
		"as it is":           receipt,
		"escaped":            escaped,
		"in lower case":      strings.NewReplacer("%2F", "%2f", "%2B", "%2b", "%3D", "%3d").Replace(escaped),
		"as a path":          url.PathEscape(receipt),
		"twice":              url.QueryEscape(escaped),
		"three times":        url.QueryEscape(url.QueryEscape(escaped)),
		"plus for a space":   strings.ReplaceAll(receipt, " ", "+"),
		"a space for a plus": strings.ReplaceAll(receipt, "+", " "),
		"in part":            strings.ReplaceAll(receipt, "=", "%3d"),
	} {
		if got, want := (azurestorage.Location{}).Redact("in "+form+" and %41", receipt), "in REDACTED and %41"; got != want {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
}

// The code of an error is a header that another server may have set.
func TestTheCodeOfAnErrorHasNoSecret(t *testing.T) {
	resp := &azcore.ResponseError{
		StatusCode: http.StatusBadRequest, ErrorCode: "Wrong-S3cret",
		RawResponse: &http.Response{Header: http.Header{"X-Ms-Error-Code": {"Wrong-S3cret"}}, Body: http.NoBody},
	}
	got := (azurestorage.Location{}).ResponseError(resp, func(*http.Response, []byte) string { return "" }, "S3cret")
	if text := got.Response.ErrorCode + got.Response.RawResponse.Header.Get("x-ms-error-code"); strings.Contains(text, "S3cret") {
		t.Errorf("the error keeps %q", text)
	}
	refused := &azcore.ResponseError{StatusCode: http.StatusBadRequest, ErrorCode: "sig=S3cret"}
	if f := (azurestorage.Location{}).Failure(t.Context(), t.Context(), 0, refused, azurestorage.Failures{}); f.Code != "sig=REDACTED" {
		t.Errorf("the failure has the code %q, want no secret", f.Code)
	}
}
