package codec_test

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/codec"
	"github.com/millrace/millrace/emulator"
	"github.com/millrace/millrace/internal/azuritetest"
	"github.com/millrace/millrace/producer"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/localqueue"
)

// The samples of JavaScript are what Microsoft's client sends, and it reads what is sent for other
// consumers: the package @azure/storage-queue in the directory that STORAGE_QUEUE_JS names, run with
// node. Without one of them the test skips, or fails when MILLRACE_REQUIRE contains storage-queue.
func TestTheSamplesAreWhatJavaScriptSends(t *testing.T) {
	node, modules := azuritetest.StorageQueueJS(t)
	engine := must(localqueue.New(nil))
	endpoint, err := must(emulator.New(engine, nil)).Start("")
	if err != nil {
		t.Fatal(err)
	}
	defer endpoint.Close()
	account := "devstoreaccount1"
	sent := engine.Queue(queue.Name{Account: account, Queue: "samples"})
	if err := sent.Create(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	for _, format := range []codec.Format{codec.Plain, codec.Base64} {
		replies := producer.New(engine.Queue(queue.Name{Account: account, Queue: "replies"}), &producer.Options[struct{ ID string }]{Format: format, Create: true})
		if _, err := replies.Send(t.Context(), struct{ ID string }{"7"}, nil); err != nil {
			t.Fatal(err)
		}
	}
	names := runSamples(t, node, map[string]any{"connection": endpoint.ConnectionString(), "modules": modules})
	batch, err := sent.Dequeue(t.Context(), queue.MaxBatch, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	came := map[string]bool{}
	for _, m := range batch {
		if want := sampleText(t, names[m.ID]); m.Text != want {
			t.Errorf("%s: the client sent %q, and the sample is %q", names[m.ID], m.Text, want)
		}
		came[names[m.ID]] = true
	}
	for _, one := range samples {
		if strings.HasPrefix(one.name, "javascript") && !came[one.name] {
			t.Errorf("%s was not sent", one.name)
		}
	}
}

// runSamples runs the script and returns the names of the samples that it sent.
func runSamples(t *testing.T, node string, settings map[string]any) map[queue.ID]string {
	t.Helper()
	encoded, err := json.Marshal(settings)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	command := exec.CommandContext(ctx, node, "testdata/samples.mjs")
	command.Env = append(os.Environ(), "MILLRACE_TEST="+string(encoded))
	var said, errorLog bytes.Buffer
	command.Stdout, command.Stderr = &said, &errorLog
	if err := command.Run(); err != nil {
		t.Fatalf("%v: %s", err, errorLog.String())
	}
	var names map[queue.ID]string
	if err := json.Unmarshal(said.Bytes(), &names); err != nil {
		t.Fatalf("it said %q: %v", said.String(), err)
	}
	return names
}

// must returns the value of a constructor that must not fail.
func must[T any](made T, err error) T {
	if err != nil {
		panic(err)
	}
	return made
}
