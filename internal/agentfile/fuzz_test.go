package agentfile

import (
	"errors"
	"reflect"
	"regexp"
	"strings"
	"testing"
)

// kept matches a secret with its value.
var kept = regexp.MustCompile(`(?i)\b(sig|accountkey|sharedaccesssignature)=[^\s"'\\]{3}`)

// FuzzParse: any text is a file or an error with lines of that text; what is read obeys the rules, and no error repeats a
// secret.
func FuzzParse(f *testing.F) {
	f.Add(everything)
	f.Fuzz(func(t *testing.T, text string) {
		got, err := Parse("agent.yaml", []byte(text))
		if failed := (*Error)(nil); errors.As(err, &failed) {
			checkProblems(t, failed, text)
			return
		}
		if err != nil {
			t.Fatalf("got the error %T, want *Error", err)
		}
		if again, err := Parse("agent.yaml", []byte(text)); err != nil || !reflect.DeepEqual(got, again) {
			t.Errorf("parsed again: got %+v, %v; want %+v", again, err, got)
		}
		checkPools(t, got)
	})
}

func checkProblems(t *testing.T, failed *Error, text string) {
	t.Helper()
	last := 0
	for _, one := range failed.Problems {
		if one.Line < last || one.Line > 2+strings.Count(text, "\n")+strings.Count(text, "\r")+strings.Count(text, "\u0085")+strings.Count(text, "\u2028")+strings.Count(text, "\u2029") || one.Text == "" {
			t.Errorf("got the problem %+v after line %d, want lines of the text in order", one, last)
		}
		last = one.Line
	}
	if len(failed.Problems) == 0 || kept.MatchString(failed.Error()) {
		t.Errorf("got %v, want problems without secrets", failed)
	}
}

func checkPools(t *testing.T, f *File) {
	t.Helper()
	if len(f.Pools) == 0 || f.Interval < 0 {
		t.Errorf("got %+v, want pools and an interval that is not negative", f)
	}
	for _, p := range f.Pools {
		if !names.MatchString(p.Name) || len(p.Queues) == 0 || p.Policy.Check() != nil {
			t.Errorf("got %+v, want a name, queues and a policy that is right", p)
		}
		if p.Processes != nil && (f.Folder == "" || len(p.Processes.Command) == 0) {
			t.Errorf("got the processes %+v with the folder %q, want both set", p.Processes, f.Folder)
		}
	}
}
