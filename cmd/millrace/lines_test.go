package main

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"pgregory.net/rapid"
)

// TestLinesSplitAtLineFeeds: lines are the same however the reader splits the input.
func TestLinesSplitAtLineFeeds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringOf(rapid.SampledFrom([]rune("a\r\n\nü"))).Draw(t, "text")
		want := strings.Split(text, "\n")
		if last := len(want) - 1; want[last] == "" {
			want = want[:last]
		}
		for i := range want {
			want[i] = strings.TrimSuffix(want[i], "\r")
		}
		var got []string
		for line, err := range lines(context.Background(), iotest.OneByteReader(strings.NewReader(text))) {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, line)
		}
		if !slices.Equal(got, want) {
			t.Fatalf("lines of %q: got %q, want %q", text, got, want)
		}
	})
}

// TestLinesEndWithAnErrorOrTheContext: the iteration ends with the reader's error or with the context, also during a read.
func TestLinesEndWithAnErrorOrTheContext(t *testing.T) {
	broken := errors.New("broken")
	var got []string
	for line, err := range lines(t.Context(), io.MultiReader(strings.NewReader("a\nb"), iotest.ErrReader(broken))) {
		if err != nil && !errors.Is(err, broken) {
			t.Error(err)
		}
		got = append(got, line)
	}
	if !slices.Equal(got, []string{"a", ""}) { // the text before an error may be half a line
		t.Errorf("lines before an error: got %q, want a", got)
	}

	r, w := io.Pipe()
	defer w.Close() // for the goroutine that reads
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		_, _ = io.WriteString(w, "a\n")
		cancel()
	}()
	var last error
	for _, err := range lines(ctx, r) {
		last = err
	}
	if !errors.Is(last, context.Canceled) {
		t.Errorf("last error: got %v, want Canceled", last)
	}
}
