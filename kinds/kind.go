package kinds

import (
	"cmp"

	"github.com/millrace/millrace/codec"
	"github.com/millrace/millrace/dispatcher"
	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/producer"
	"github.com/millrace/millrace/queue"
)

// Kind ties a name to a type of job, for senders and workers. The zero value stands for jobs
// without a name. It is safe for concurrent use.
//
// The name decides how a body is decoded. A program that sends it with another type is not found
// out if that decodes: JSON ignores unknown fields. So use one Kind, in a package of both sides.
type Kind[T any] struct {
	// Name names the type of the job in the envelope: at most 256 bytes of UTF-8
	// without control characters. Empty means jobs without a kind: those that were sent before the
	// queue had kinds, and those of other programs. Defaults to empty.
	Name string

	// Codec encodes and decodes the body. Defaults to codec.JSON.
	Codec codec.Codec[T]
}

// Options are the limits of the jobs of one kind. Nil and the zero value mean those of the listener.
type Options = listener.KindOptions

// Handle returns the kind with its handler, for [listener.NewKinds], which refuses an invalid name,
// codec, or option, and a nil handler. Nil options mean the limits of the listener.
func (k Kind[T]) Handle(h listener.Handler[T], o *Options) listener.Kind {
	return dispatcher.Jobs[T]{Handler: h, Codec: k.Codec}.Kind(k.Name, o)
}

// Producer returns a producer that sends jobs of this kind to the queue. Its Kind and Codec are
// those of k: options that set either panic, as a nil queue does, because it is a mistake in the
// program. An invalid name is an error of every Send.
func (k Kind[T]) Producer(q queue.Sender, o *producer.Options[T]) *producer.Producer[T] {
	options := *cmp.Or(o, &producer.Options[T]{})
	if options.Kind != "" || options.Codec != nil {
		panic("kinds.Kind.Producer: the options set Kind or Codec, which are those of the kind")
	}
	options.Kind, options.Codec = k.Name, k.Codec
	return producer.New(q, &options)
}
