package millrace

import (
	"os"
	"os/signal"
)

// Package os/signal starts its goroutines when it is used for the first time. If that is in a
// testing/synctest bubble they belong to the bubble: the runtime ends the process, or the test
// hangs, and neither says why. So they are started here, that a whole program, [Run] included,
// can be tested in a bubble.
func init() {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt)
	signal.Stop(signals)
}
