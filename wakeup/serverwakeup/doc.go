// Package serverwakeup wakes the listeners of one or several processes by the embedded server,
// package emulator or millrace serve. The server sees every message that is put or becomes visible,
// so nobody publishes events and nothing else is installed.
//
//	source, err := serverwakeup.Open(location, nil) // the location of the queue
//	if err != nil {
//		return err
//	}
//	defer source.Close()
//	options.Wakeups = source
//
// This package is experimental: any release may change it. See docs/stability.md.
//
// # Delivery
//
// A process has one stream for each queue, a response without an end. It needs the account key, a
// token, or a shared access signature with the permission to process messages (p). Every 10 s the
// source sends the server a small request that says whether subscribers are ready; without it, the
// stream would end.
//
// An event goes to one of the ready streams of a queue, in turn, and there to all ready
// subscribers. The next stream gets one if messages are still visible after a dequeue. If nobody
// dequeues within 500 ms, two more streams get one, then four, then all: however many workers
// hang, a job waits less than 2 s for one that does not. Events of delayed messages, messages that
// were given back, and those of a worker that has died come when they are due; therefore Due is
// never set, and Bytes is 0 for those.
//
// # Other servers
//
// Azure, Azurite and older versions of millrace serve refuse the stream. This is logged once and
// retried every 10 minutes, and listeners poll. No request that such a server receives hides or
// changes a message.
//
// # Failures
//
// The server ends a stream after an hour, and it is opened again at once; subscribers hear nothing
// of it. If it breaks or is silent for too long, listening(false) is called at once and the stream
// is opened again, at first after about 100 ms and then with growing pauses up to 30 s. Credentials
// are sent to the location's address only: redirects are not followed.
//
// # Concurrency
//
// Everything here is safe for concurrent use.
package serverwakeup
