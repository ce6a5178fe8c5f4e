package listener

import "testing"

func TestThePeakOfLoopsIsKeptWhenFewerRun(t *testing.T) {
	pool := loopPool{changed: func(int) {}, bounds: Loops{Min: 1, Max: 8, Pause: -1}}
	pool.grow(8, func() {})
	for range 7 {
		pool.tryStop()
	}
	pool.grow(2, func() {})
	if active, peak, started := pool.counts(); active != 2 || peak != 8 || started != 9 {
		t.Errorf("got %d active, peak %d, %d started; want 2, 8, 9", active, peak, started)
	}
}
