package internal_test

import (
	"testing"

	"github.com/millrace/millrace/internal/azurestorage"
)

func TestMessagesOfErrorDocuments(t *testing.T) {
	for document, want := range map[string]struct {
		text   string
		change int
	}{
		"<Error><Code>X</Code><Message>3:Not now.\nRequestId:1</Message></Error>":                                                                    {"3:Not now", -1},
		`{"odata.error":{"code":"X","message":{"lang":"en-US","value":"Not now.\nRequestId:1"}}}`:                                                    {"Not now", -1},
		`{"odata.error":{"code":"X","message":{"lang":"en-US","value":"0:Not now.\nRequestId:1"}}}`:                                                  {"Not now", 0},
		`{"odata.error":{"code":"X","message":{"lang":"en-US","value":"99:The update condition specified in the request was not satisfied.\nR:1"}}}`: {"The update condition specified in the request was not satisfied", 99},
		`{"odata.error":{"code":"X","message":{"lang":"en-US","value":"1000:x"}}}`:                                                                   {"1000:x", -1},
		`{"odata.error":"x"}`: {"", -1},
		`{"error":{}}`:        {"", -1},
		`<html>log in</html>`: {"", -1},
		`not a document`:      {"", -1},
		``:                    {"", -1},
	} {
		if text, change := azurestorage.Message([]byte(document)); text != want.text || change != want.change {
			t.Errorf("%s: got %q, %d", document, text, change)
		}
	}
}
