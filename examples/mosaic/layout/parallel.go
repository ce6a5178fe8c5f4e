package layout

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
)

// eachRow calls the functions that start returns with every row, on all processors. start is called once for each of them.
// It fails only with the cause of ctx.
func eachRow(ctx context.Context, rows int, start func() func(y int)) error {
	var next atomic.Int64
	var wg sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), rows) {
		wg.Go(func() {
			row := start()
			for y := int(next.Add(1)) - 1; y < rows && ctx.Err() == nil; y = int(next.Add(1)) - 1 {
				row(y)
			}
		})
	}
	wg.Wait()
	return context.Cause(ctx)
}
