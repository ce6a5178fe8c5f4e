package gather_test

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/millrace/millrace/blob"
	"github.com/millrace/millrace/blob/gather"
)

// Three workers make the parts of a batch, one of them twice. Whoever finds all parts there adds them up.
func Example() {
	ctx := context.Background()
	g, err := gather.New(blob.Memory(), "batches", nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	const batch, parts = "2026-11-21", 3
	sumUp := func(ctx context.Context) ([]byte, error) {
		sum := 0
		for part, err := range g.Parts(ctx, batch, parts) {
			if err != nil {
				return nil, err
			}
			text, err := io.ReadAll(part)
			if err != nil {
				return nil, err
			}
			n, err := strconv.Atoi(string(text))
			if err != nil {
				return nil, err
			}
			sum += n
		}
		return []byte(strconv.Itoa(sum)), nil
	}
	// The handler of a message of the batch.
	handle := func(part int, result string) error {
		if err := g.Put(ctx, batch, part, strings.NewReader(result)); err != nil {
			return err
		}
		done, err := g.Complete(ctx, batch, parts)
		if err != nil || !done {
			return err
		}
		end, err := g.Once(ctx, batch, sumUp)
		if err != nil {
			return err
		}
		fmt.Printf("after part %d: %s, first: %v\n", part, end.Result, end.First)
		return g.Sweep(ctx, batch)
	}
	for _, part := range []int{2, 0, 2, 1, 0} { // part 2 is delivered twice, and part 0 comes again, late
		if err := handle(part, strconv.Itoa(100*part)); err != nil {
			fmt.Println(err)
		}
	}
	// Output:
	// after part 1: 300, first: true
	// after part 0: 300, first: false
}
