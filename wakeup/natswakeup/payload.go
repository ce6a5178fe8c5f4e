package natswakeup

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/millrace/millrace/queue"
)

// version is that of the payload. Others are ignored.
const version = 1

// maxPayload bounds what is read; ours have about 100 bytes.
const maxPayload = 512

// maxHops bounds how often an event is handed on. NATS chooses at random, the sender of More included:
// if one other process is ready, so many choices miss it once in a million times.
const maxHops = 20

// maxSkew is how far the clock of a publisher may be ahead.
const maxSkew = time.Hour

// payload is the body of a message. The queue is in the subject.
type payload struct {
	Version int       `json:"v"`
	Bytes   int64     `json:"bytes,omitempty"`
	Due     time.Time `json:"due,omitzero"`
	From    string    `json:"from,omitempty"` // the transport that asked for another process
	Hops    int       `json:"hops,omitempty"` // how often it was handed on
}

func (p payload) encode() ([]byte, error) {
	p.Version = version
	data, err := json.Marshal(p)
	if err != nil {
		return nil, fmt.Errorf("encode the event: %w", err)
	}
	return data, nil
}

// decode refuses what no publisher of ours sends.
func decode(data []byte) (payload, error) {
	var p payload
	if len(data) > maxPayload {
		return p, fmt.Errorf("%d bytes", len(data))
	}
	if err := json.Unmarshal(data, &p); err != nil {
		return p, err
	}
	switch {
	case p.Version != version:
		return p, fmt.Errorf("version %d", p.Version)
	case p.Bytes < 0 || p.Hops < 0 || p.Hops > maxHops:
		return p, errors.New("a number is out of range")
	case time.Until(p.Due) > queue.MaxVisibility+maxSkew:
		return p, errors.New("due later than any message can be")
	}
	return p, nil
}
