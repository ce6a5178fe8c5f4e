//go:build unix

package processes_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"

	"github.com/millrace/millrace/scaling/agent/processes"
)

// lines passes on what was written, one line at a time.
type lines chan string

func (l lines) Write(p []byte) (int, error) {
	for line := range strings.Lines(string(p)) {
		l <- line
	}
	return len(p), nil
}

// Two instances of a worker. What they print comes with their numbers. A worker finishes its jobs when it gets SIGTERM.
func ExampleProcesses() {
	folder, err := os.MkdirTemp("", "instances-")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(folder)
	output := make(lines, 10)
	worker := `trap 'echo the job is done; exit' TERM; echo working; while :; do sleep 0.1; done`
	p, err := processes.New(&processes.Options{
		Command: []string{"sh", "-c", worker},
		Folder:  folder,
		Output:  output,
		Logger:  slog.New(slog.DiscardHandler),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	for n := range 2 {
		if err := p.Scale(ctx, n+1); err != nil {
			fmt.Println(err)
		}
		fmt.Print(<-output)
	}
	fmt.Println(p.Instances(ctx))
	if err := p.Scale(ctx, 1); err != nil { // the youngest ends
		fmt.Println(err)
	}
	fmt.Print(<-output)
	fmt.Println(p.Drain(ctx))
	fmt.Print(<-output)
	// Output:
	// [1] working
	// [2] working
	// 2 <nil>
	// [2] the job is done
	// <nil>
	// [1] the job is done
}
