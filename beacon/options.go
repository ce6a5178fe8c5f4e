package beacon

import (
	"time"

	"github.com/millrace/millrace/queue"
)

// Options say where an instance reports and how often. The zero value reports nowhere.
type Options struct {
	// Queue is the control queue. Defaults to none: the instance is not seen.
	Queue queue.Queue

	// Interval is how long lies between reports. Each is one request. Defaults to 10 s.
	Interval time.Duration

	// Instance identifies the instance. Defaults to the host's name, the process id and a random number.
	Instance string
}
