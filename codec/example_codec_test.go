package codec_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/millrace/millrace/codec"
	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/producer"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/localqueue"
)

// Reading is what a sensor measured.
type Reading struct {
	Sensor string
	Value  float64
}

// line is a codec of our own: sensor, equals sign, value.
type line struct{}

var _ codec.Codec[Reading] = line{}

func (line) Encode(r Reading) ([]byte, error) {
	return fmt.Appendf(nil, "%s=%g", r.Sensor, r.Value), nil
}

func (line) Decode(body []byte) (Reading, error) {
	sensor, text, ok := strings.Cut(string(body), "=")
	if !ok {
		return Reading{}, fmt.Errorf("the reading %q has no equals sign", body)
	}
	value, err := strconv.ParseFloat(text, 64)
	return Reading{Sensor: sensor, Value: value}, err
}

// Producer and listener have the same codec. A body that it cannot decode is poison at once,
// with its error as the reason.
func ExampleCodec() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	engine, err := localqueue.New(nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	q := engine.Queue(queue.Name{Queue: "readings"})
	p := producer.New(q, &producer.Options[Reading]{Create: true, Codec: line{}})
	if _, err := p.Send(ctx, Reading{Sensor: "attic", Value: 31.5}, nil); err != nil {
		fmt.Println(err)
		return
	}
	record := func(_ context.Context, m *listener.Message[Reading]) error {
		fmt.Println(m.Body.Sensor, m.Body.Value)
		stop()
		return nil
	}
	if err := listener.New(q, record, &listener.Options[Reading]{Codec: line{}}).Run(ctx); err != nil {
		fmt.Println(err)
	}
	// Output: attic 31.5
}
