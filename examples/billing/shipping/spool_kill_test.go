package shipping

import (
	"bufio"
	"context"
	"fmt"
	"iter"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/millrace/millrace/examples/billing/records"
)

// consolidateForever is set in a process that consolidates in this folder until it is killed.
const consolidateForever = "SHIPPING_TEST_CONSOLIDATE"

// consolidateUntilKilled consolidates without an end.
func consolidateUntilKilled(folder string) {
	endless := func(yield func(records.Record) bool) {
		for n := 0; ; n++ {
			if n == 200_000 { // several writes
				fmt.Println("half-written")
			}
			if !yield(record(today, n%80_000)) {
				return
			}
		}
	}
	_, err := Consolidate(context.Background(), folder, slices.Values([]Source{Records("endless", iter.Seq[records.Record](endless))}), nil)
	fmt.Println(err)
	os.Exit(1)
}

// A process that is killed while it writes leaves nothing that becomes part of a batch, and its folder is free.
func TestAKilledConsolidationBeginsAnew(t *testing.T) {
	folder := t.TempDir()
	killed := exec.CommandContext(t.Context(), os.Args[0])
	killed.Env = append(os.Environ(), consolidateForever+"="+folder)
	out, err := killed.StdoutPipe()
	if err == nil {
		err = killed.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "half-written\n" {
		t.Fatalf("child process: got %q, %v", line, err)
	}
	if _, err := Consolidate(t.Context(), folder, none, nil); err == nil {
		t.Error("folder of another process: got no error")
	}
	if err := killed.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = killed.Wait() // it was killed
	if info, err := os.Stat(filepath.Join(folder, today+daySuffix)); err != nil || info.Size() == 0 {
		t.Fatalf("half-written file: got %v, %v", info, err)
	}
	want := batches(t, spoolOf(t, Records("f", daily(today, 0, 3))))
	s, err := Consolidate(t.Context(), folder, slices.Values([]Source{Records("f", daily(today, 0, 3))}), nil)
	if err != nil {
		t.Fatal(err)
	}
	got := batches(t, s)
	if len(got) != 1 {
		t.Fatalf("batches: got %d, want 1", len(got))
	}
	checkSame(t, &got[0].Manifest, &want[0].Manifest)
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

func none(func(Source) bool) {}
