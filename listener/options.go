package listener

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/millrace/millrace/codec"
	"github.com/millrace/millrace/dispatcher"
	"github.com/millrace/millrace/queue"
)

// Options configure a [Listener]. Nil and the zero value mean the defaults. The first six fields are
// those that most programs set.
type Options[T any] struct {
	// Concurrency is how many handlers may run at the same time. Defaults to 64, or with Slots to
	// their number at the start.
	Concurrency int

	// Create creates the queue when it is missing, at the start and later. Metadata of an
	// existing queue does not matter. Defaults to false: the listener waits for a missing
	// queue.
	Create bool

	// Timeout ends a handler's context when it has run this long: the context has that deadline,
	// and its cause is [ErrTimeout]. The lease is renewed until the handler returns or counts as
	// stuck. Less than 1 ms is refused as a number without a unit. Defaults to no
	// time-out.
	Timeout time.Duration

	// RetryDelay returns how long a message waits after a failed attempt, 1 for the first. The
	// delay is bounded by the message's remaining life. To treat only some errors specially, fall
	// back on [RetryCurve]. It also delays poison that cannot be moved, if that is longer than a
	// delay that doubles from a second to an hour with each failed move. Defaults to RetryCurve of
	// the attempt: attempt⁴ seconds ± 10 %, at most 1 h.
	RetryDelay func(attempt int, err error) time.Duration

	// Poison decides when a message is poison and where it is moved. Defaults to five attempts
	// and the sibling queue "-poison".
	Poison PoisonPolicy

	// Grace is how long handlers may finish after the stop. Negative means not at all: they are
	// cancelled immediately. Less than 1 ms is refused as a number without a unit. [Listener.Run]
	// returns no later than Grace, Lease.SettleTimeout and two seconds after the stop. That should be
	// less than the platform allows after its signal. Kubernetes allows 30 s unless
	// terminationGracePeriodSeconds is set: with these defaults set it to 50, or use shorter ones,
	// such as 20 s and 5 s. Defaults to 30 s.
	Grace time.Duration

	// Codec decodes the body, and encodes it for Message.Save. A listener of kinds refuses it: each
	// kind has its own. Defaults to codec.JSON.
	Codec codec.Codec[T]

	// Wakeups says when work comes. While its events reach the listener a loop ends when the queue
	// is empty, at the first empty poll at the latest, and an idle listener sends no request at all
	// but safety polls; an event starts a loop immediately. While messages follow each other
	// closely, a dequeue waits until 125 ms after the last one, or 1.25 × Fetch.Idle.Min if that is
	// less, and takes all that have come. With the embedded server and engine, whose requests are
	// free, no dequeue waits. Otherwise Fetch.Idle and Fetch.Loops.Pause apply only
	// while no events reach the listener, such as when a connection is lost: then a loop polls. The
	// producers must publish, or the server: see package wakeup. A source that is not usable ends
	// Run with an error. Defaults to nil: the listener polls.
	Wakeups Wakeups

	// Claims opens the bodies of messages that only refer to them, and stores bodies that are too
	// large for Message.Save to put into the message. It must be the store of the producers. See
	// package claimcheck. Defaults to nil: such messages are left to other workers.
	Claims Claims

	// Duplicates recognizes jobs that were handled before, and deletes their messages. See package
	// dedupe for its guarantees. Defaults to nil: such a job is handled again.
	Duplicates Duplicates

	// Slots are slots that are shared with other listeners, such as a member of package
	// slots. The listener takes part while it runs. Concurrency stays a bound of its own, Fetch.MinFetch
	// and Fetch.Linger count the slots that it can get. No other listener may have the same member.
	// Defaults to nil: Concurrency slots of its own.
	Slots Slots

	// Interceptors wrap every handler, the first outermost: middleware that does not depend on T.
	// Defaults to nil.
	Interceptors []Interceptor

	// TimeoutFor returns the time-out for one message and overrides Timeout. Zero means Timeout,
	// negative means no time-out. It must not change the message. A listener of kinds refuses it:
	// each kind has its Timeout. Defaults to nil.
	TimeoutFor func(m *Message[T]) time.Duration

	// Metadata says whether settings in the metadata of the queue apply where these options have
	// none, and whether the listener writes the visibility there that it has found. See [Metadata].
	// Defaults to IgnoreMetadata.
	Metadata Metadata

	// Beacon makes the listener report its state in a control queue, where a scaling agent, or
	// anybody, sees it: see package beacon. It costs a request every 10 s, or one a minute while
	// the listener is idle. A control queue that fails does not affect the listener: OnError is
	// told. Defaults to no reports.
	Beacon BeaconOptions

	// NoSourceLimits lets jobs that keep failing have all the slots, and fetches them as fast as ever
	// when everything fails; attempts always count then. Otherwise they get a tenth of the slots: see
	// [FailingSource]. Defaults to false.
	NoSourceLimits bool

	// Seed makes the jitter of all waits repeatable, also of the pauses in an outage of the
	// handlers. Processes that share a queue must use different seeds. Defaults to a random
	// one.
	Seed uint64

	// Observer receives events. Defaults to no functions.
	Observer Observer

	// OnError receives every error: of polls and renewals, of failed deliveries as a
	// [*DeliveryError], of stuck handlers as a [*StuckError], of Duplicates as a
	// [*DuplicatesError], of bodies that Claims cannot give up as a [*ClaimsError], of options that
	// cannot work together as a [*SetupError], and of panics in these options as a [*HookError]. It
	// is called concurrently and should not block. Its own panics go to the Logger. Defaults to
	// nil.
	OnError func(error)

	// Logger logs the start, the drain and the end of the listener, and errors. Of errors whose
	// texts differ only in numbers and ids it logs one in ten seconds, with the number of those
	// suppressed; every message moved to the poison queue and every panic is logged. At the level
	// of debugging it also logs each loop that starts, and each batch. Defaults to slog.Default().
	Logger *slog.Logger

	// Fetch says how messages are fetched. Its zero value means the defaults.
	Fetch FetchOptions

	// Lease says how long messages stay hidden from other workers, and how they are settled. Its
	// zero value means the defaults.
	Lease LeaseOptions

	// Wire says in which form messages are read and written. Its zero value means the defaults.
	Wire WireOptions
}

// FetchOptions say how a listener fetches messages: how many at once, by how many loops, and how
// often when the queue is empty. The zero value means the defaults.
type FetchOptions struct {
	// BatchSize is how many messages one dequeue requests at most, 1…32. Defaults to 32.
	BatchSize int

	// MinFetch is how many slots must be free before a dequeue is sent; Linger overrides it.
	// More than BatchSize counts as BatchSize. Defaults to a tenth of Options.Concurrency, or to a sixth
	// of it after a full batch, which shows a backlog; within 1…28.
	MinFetch int

	// Linger is how long free slots wait for MinFetch before a dequeue is sent for fewer. Negative
	// means not at all. Defaults to 100 ms, or to a fifth of the handling time if that is longer,
	// at most 1 s: in that time about a fifth of the handlers return.
	Linger time.Duration

	// Loops bounds how many dequeue loops run. Defaults to 1, or 0 with Options.Wakeups, … as many as
	// Options.Concurrency needs.
	Loops Loops

	// Idle is how long a loop waits when the queue is empty. Setting it together with
	// QueueEmpty, which overrides it, is an error. Its Fleet makes many instances poll as often
	// together as one alone. Defaults to 100 ms … 1 s on a curve that doubles.
	Idle Idle

	// SafetyPoll is after how long without a dequeue a listener with Options.Wakeups sends one
	// anyway, up to 10 % later. It finds messages after their events were lost, or that other workers
	// gave back or lost. Negative means never: they then wait for the next event. Without Wakeups
	// it has no effect. Defaults to 60 s.
	SafetyPoll time.Duration

	// QueueEmpty decides after every empty poll in place of Idle. It gets the number of
	// consecutive empty polls of this loop and returns how long to wait and whether the loop
	// ends. A wait of 0 or less means 100 ms. Loops.Min loops never end. With Wakeups it decides
	// too, down to no loop while events reach the listener. It is called concurrently. Defaults
	// to the curve of Idle; a loop ends when that has reached Max.
	QueueEmpty func(idleCount int) (wait time.Duration, stop bool)

	// QueueWorkDetected returns how many loops a load calls for. It is called at the start,
	// when work appears on an idle queue, and while full batches keep coming. The result is
	// kept within Loops, which the log says once: Loops.Max is 2 unless it or
	// Options.Concurrency is set.
	// Package scaling has rules to choose from. Defaults to scaling.PerBatch.
	QueueWorkDetected func(Load) int

	// LoopsByIntake makes the number of loops follow the throughput: more are kept only while they bring
	// more messages. While dequeues come back full, half as many loops more are tried, and kept if they
	// bring at least 1.1 times as many messages a second. Now and then a third fewer are tried, and kept
	// if they bring at least 0.95 times as many. So the number stays within a factor of 1.5 of the fewest
	// loops that bring all there is, whether the service, the handlers, or the messages set that limit.
	// When the service is busy, and when dequeues fail or are mostly empty, loops end.
	//
	// QueueWorkDetected then only says with how many to begin when work appears on an idle queue,
	// the depth is not read while full batches keep coming, and the number of loops does not limit
	// the handlers: Options.Concurrency alone does. The number is kept within Loops. Defaults to false.
	LoopsByIntake bool
}

// BeaconOptions say where a listener reports its state, and how often. The zero value reports nowhere.
type BeaconOptions struct {
	// Queue is the control queue. It must be a queue of its own, from which nobody takes messages.
	// Defaults to none: the listener reports nowhere.
	Queue queue.Queue

	// Create creates the control queue when it is missing. Defaults to false: reports fail until it
	// exists.
	Create bool

	// Interval is the time between reports while something changes, at least 100 ms and at most 1 h.
	// Each is one request. While nothing changes, the next ones follow after twice as long each, up to
	// six times Interval. Defaults to 10 s.
	Interval time.Duration

	// Instance identifies the instance among all that report, in at most 200 bytes. All listeners of
	// one process should have the same. Listeners of one queue in several processes must have different
	// ones: they hide each other otherwise. Defaults to the host's name, the process id and a random
	// number.
	Instance string
}

// LeaseOptions say for how long a listener holds a message, and how it ends that. The zero value
// means the defaults.
type LeaseOptions struct {
	// Visibility is how long dequeued messages are hidden. Leases are renewed while handlers run.
	// Defaults to 30 s at first, then follows the handling times, within 10 s … 10 min.
	Visibility Visibility

	// SettleTimeout is how long at least a settlement is tried: a delete, an update or a move. It
	// is tried for longer while the lease of the message lasts, and Options.OnError is called after
	// this time. At the stop it bounds the wait for cancelled handlers and settlements: see
	// Options.Grace. Defaults to
	// 15 s.
	SettleTimeout time.Duration

	// StuckAfter is how long after its context has ended a handler that still runs is reported
	// as a [*StuckError], with the stacks of the handlers. Its lease is then renewed no longer.
	// Negative means never. Defaults to 1 min.
	StuckAfter time.Duration

	// GiveUp frees the slot of a handler that is reported as stuck, so that another can run.
	// Its later result settles nothing. Defaults to false.
	GiveUp bool
}

// WireOptions say in which form messages are in the queue. The zero value means the defaults.
type WireOptions struct {
	// Format is how the text carries the body. Defaults to codec.Auto, which reads envelopes,
	// and JSON both plain and in Base64.
	Format codec.Format

	// AcceptForeign puts a message without an envelope into one when it is first given back, so that
	// attempts are counted apart from deliveries. Other consumers of the queue must then read
	// envelopes; this one recognises them in any Format. Defaults to false: such messages are never
	// rewritten.
	AcceptForeign bool
}

// session returns the options that do not depend on T. Nil has no options.
func (o *Options[T]) session() sessionOptions {
	if o == nil {
		return sessionOptions{}
	}
	shared, known := o.Slots.(dispatcher.Slots)
	var unknown error
	if o.Slots != nil && !known {
		unknown = fmt.Errorf("the option Slots is a %T: make it with package dispatcher/slots", o.Slots)
	}
	c := sessionOptions{
		UnknownSlots: unknown,
		Options: dispatcher.Options{
			Format: o.Wire.Format, AcceptForeign: o.Wire.AcceptForeign, Claims: o.Claims, Duplicates: o.Duplicates,
			Concurrency: o.Concurrency, Slots: shared, BatchSize: o.Fetch.BatchSize, MinFetch: o.Fetch.MinFetch, Linger: o.Fetch.Linger,
			Visibility: o.Lease.Visibility, Interceptors: o.Interceptors, Timeout: o.Timeout,
			RetryDelay: o.RetryDelay, Poison: o.Poison, SettleTimeout: o.Lease.SettleTimeout,
			StuckAfter: o.Lease.StuckAfter, GiveUp: o.Lease.GiveUp, NoSourceLimits: o.NoSourceLimits, Seed: o.Seed,
			Observer: o.Observer.dispatcher(),
		},
		Create: o.Create, Metadata: o.Metadata, Fetch: o.Fetch, Wakeups: o.Wakeups, Beacon: o.Beacon,
		Grace: o.Grace, Observer: o.Observer, OnError: o.OnError, Logger: o.Logger,
	}
	if o.Fetch.LoopsByIntake {
		c.controller = byIntake()
	}
	return c
}

func (o *Options[T]) jobs(h Handler[T]) dispatcher.Jobs[T] {
	if o == nil {
		return dispatcher.Jobs[T]{Handler: h}
	}
	return dispatcher.Jobs[T]{Handler: h, Codec: o.Codec, TimeoutFor: o.TimeoutFor}
}
