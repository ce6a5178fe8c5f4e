package paired

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/millrace/millrace/queue"
)

// DefaultBacklogs is how many backlog queues there are unless the options say otherwise.
const DefaultBacklogs = 10

// MaxBacklogs is the largest number of backlog queues.
const MaxBacklogs = 100

// backlogSuffix returns the suffix of the backlog queue with this index, such as "-backlog-07".
func backlogSuffix(i int) string { return fmt.Sprintf("-backlog-%02d", i) }

// backlogQueues returns the first n backlog queues of the secondary queue. It sends no request.
func backlogQueues(secondary queue.Queue, n int) []queue.Queue {
	all := make([]queue.Queue, n)
	for i := range all {
		all[i] = secondary.Sibling(backlogSuffix(i))
	}
	return all
}

// record is what a message in a backlog queue says of itself, before the text with which it was sent:
//
//	backlog/1 orders 3600⏎text
//
// The text is whole, its head included. The record names no life: the message has it in the backlog
// queue too, so that the service drops it there when it expires. It says no instant either: both what
// is left of the delay and what is left of the life follow from the times that the secondary account
// returns, so that no other clock matters. The record is no larger than what producers leave free for
// attempts: what they send always fits.
type record struct {
	queue string        // name of the primary queue
	delay time.Duration // since the backlog queue accepted it; whole seconds
}

const (
	recordPrefix  = "backlog/"
	recordVersion = "1"
)

// errNewerRecord means that a newer program put the message into the backlog queue, and one such must
// bring it home.
var errNewerRecord = errors.New("a newer program is needed to read it")

func (r record) seal(text string) string {
	return recordPrefix + recordVersion + " " + r.queue + " " + strconv.FormatInt(queue.Seconds(r.delay), 10) + "\n" + text
}

// openRecord returns the record and the text of a message in a backlog queue.
func openRecord(sealed string) (record, string, error) {
	line, text, found := strings.Cut(sealed, "\n")
	version, isRecord := strings.CutPrefix(line, recordPrefix)
	version, fields, _ := strings.Cut(version, " ")
	switch {
	case !isRecord || !found:
		return record{}, "", fmt.Errorf("the text has no record of a backlog queue, it begins with %.60q", line)
	case version != recordVersion:
		return record{}, "", fmt.Errorf("the record has version %.20q: %w", version, errNewerRecord)
	}
	name, seconds, _ := strings.Cut(fields, " ")
	if err := queue.CheckName(name); err != nil {
		return record{}, "", fmt.Errorf("the record %.90q names no queue: %w", line, err)
	}
	n, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil || n < 0 || n > int64(queue.MaxVisibility/time.Second) {
		return record{}, "", fmt.Errorf("the record %.90q has no delay in seconds, 0…%d", line, int64(queue.MaxVisibility/time.Second))
	}
	return record{name, time.Duration(n) * time.Second}, text, nil
}

// serviceTime returns the time by the clock of the service that returned the message, so long after it
// was dequeued with this visibility.
func serviceTime(m queue.Message, visibility, after time.Duration) time.Time {
	return m.Until.Add(after - time.Duration(queue.Seconds(visibility))*time.Second)
}

// options returns what is left of the delay and of the life, with which m, as the backlog queue returned
// it, goes home at this time of the backlog queue's service. The life is longer than the delay, and at
// least a second: a message that expires right now lives that much longer, instead of being lost.
func (r record) options(m queue.Message, now time.Time) *queue.EnqueueOptions {
	o := &queue.EnqueueOptions{Delay: min(max(m.Inserted.Add(r.delay).Sub(now), 0), r.delay), TTL: queue.Forever}
	if m.Expires.UTC().Year() < 9999 {
		o.TTL = max(m.Expires.Sub(now), queue.MinTTL)
		if queue.Seconds(o.Delay) >= queue.Seconds(o.TTL) {
			o.TTL = time.Duration(queue.Seconds(o.Delay)+1) * time.Second
		}
	}
	return o
}
