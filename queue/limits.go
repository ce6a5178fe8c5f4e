package queue

import "time"

// The limits of the service, from the Queue service REST API.
const (
	// MaxBatch is the largest number of messages of one dequeue or peek.
	MaxBatch = 32

	// MaxText is the largest message text in bytes of UTF-8, as sent: 64 KiB. Base64 leaves 48
	// KiB of it.
	MaxText = 64 << 10

	// MaxVisibility is the longest visibility timeout and delay: seven days.
	MaxVisibility = 7 * 24 * time.Hour

	// Forever as a TTL means that a message never expires. It is -1 as on the wire, and no valid
	// duration.
	Forever time.Duration = -1
)
