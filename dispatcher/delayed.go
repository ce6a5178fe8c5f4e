package dispatcher

import (
	"math/bits"
	"sync"
	"time"
)

// delayed counts messages that were given back until they are due. Those due at about the same time share a count: the times are
// rounded up to whole seconds, or for delays from 32 s on to a power of two of seconds that is at most a sixteenth of the
// delay. So there are at most 32 counts for each of the 16 powers up to the longest delay, and a message is
// counted up to a sixteenth of its delay too long. The zero value is ready to use.
type delayed struct {
	mu    sync.Mutex
	epoch time.Time       // start of second 0; guarded by mu
	due   map[int64]int64 // how many, by the second in which they are due; guarded by mu
	swept int64           // in this second what was due was last removed; guarded by mu
}

// add counts a message that is due after this delay.
func (d *delayed) add(delay time.Duration) {
	if delay <= 0 {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.due == nil {
		d.due, d.epoch = make(map[int64]int64), time.Now()
	}
	width := int64(1)
	if coarse := int64(delay/time.Second) / 16; coarse > 1 {
		width = 1 << (bits.Len64(uint64(coarse)) - 1)
	}
	due := time.Since(d.epoch) + delay
	second := int64((due + time.Second - 1) / time.Second)
	second = (second + width - 1) / width * width
	d.due[second]++
	d.sweep()
}

// count returns how many messages are not due yet.
func (d *delayed) count() (n int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.due == nil {
		return 0
	}
	d.sweep()
	for _, one := range d.due {
		n += one
	}
	return n
}

// sweep removes what is due, once a second. Requires mu.
func (d *delayed) sweep() {
	now := int64(time.Since(d.epoch) / time.Second)
	if now == d.swept {
		return
	}
	d.swept = now
	for second := range d.due {
		if second <= now {
			delete(d.due, second)
		}
	}
}

// Delayed returns how many messages this dispatcher has given back that are not due yet, such as retries and snoozes, and poison
// that it keeps hidden. It cannot know of those that were deleted since, such as by a purge. Times are rounded up: a message
// counts up to a second too long, or up to a sixteenth of its delay if that is longer.
func (d *Dispatcher) Delayed() int64 { return d.delayed.count() }
