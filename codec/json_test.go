package codec_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/codec"
)

// ownNull decodes null itself.
type ownNull struct{ wasNull bool }

func (o *ownNull) UnmarshalJSON(b []byte) error { o.wasNull = string(b) == "null"; return nil }

// embeds has the method of what it embeds.
type embeds struct{ ownNull }

// A null is poison unless T can hold it: a struct of zeros is a job that nobody sent.
func TestANullIsReadOnlyByTypesThatCanHoldIt(t *testing.T) {
	held := func(name string, err error) {
		t.Helper()
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	refused := func(name string, err error) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), name+": the body is null, which this type cannot hold") {
			t.Errorf("%s: got %v", name, err)
		}
	}
	for _, null := range []string{"null", " null\r\n\t", "\uFEFFnull"} {
		held("pointer", decodes[*order](null))
		held("map", decodes[map[string]int](null))
		held("slice", decodes[[]order](null))
		held("interface", decodes[any](null))
		held("json.RawMessage", decodes[json.RawMessage](null))
		held("UnmarshalJSON", decodes[ownNull](null))
		held("embedded UnmarshalJSON", decodes[embeds](null))
		held("time.Time", decodes[time.Time](null))
		refused("codec_test.order", decodes[order](null))
		refused("string", decodes[string](null))
		refused("int", decodes[int](null))
		refused("bool", decodes[bool](null))
		refused("[2]int", decodes[[2]int](null))
	}
	if got, err := codec.JSON[ownNull]().Decode([]byte("null")); err != nil || !got.wasNull {
		t.Errorf("got %+v, %v", got, err)
	}
	held("a null inside", decodes[order](`{"Note":null}`))
	held("the string", decodes[string](`"null"`))
}

func decodes[T any](body string) error {
	_, err := codec.JSON[T]().Decode([]byte(body))
	return err
}

// The type is named also where the value is a nil interface.
func TestErrorsNameTheType(t *testing.T) {
	if err := decodes[error](`{}`); err == nil || !strings.Contains(err.Error(), "as error:") {
		t.Errorf("got %v", err)
	}
	if _, err := codec.JSON[any]().Encode(make(chan int)); err == nil || !strings.Contains(err.Error(), "encode interface {}") {
		t.Errorf("got %v", err)
	}
}
