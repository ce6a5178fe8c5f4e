// Package natswakeup wakes listeners in other processes over NATS. It is a module of its own, so that
// only programs that use it depend on NATS.
//
//	conn, err := nats.Connect(url, nats.MaxReconnects(-1))
//	...
//	wakeups, err := natswakeup.New(conn, nil)
//	...
//	defer wakeups.Close()
//
// A producer publishes with it, and a listener subscribes to it. It uses NATS core alone: nothing is
// stored.
//
// This package is experimental: any release may change it. See docs/stability.md.
//
// # Delivery
//
// An event wakes one process that has a ready subscriber of the queue, whichever NATS chooses, and is
// heard there by all that are ready. It is a hint, and may be lost: when it is on its way to a
// process that ceases to be ready, when a connection breaks, or when a process is too slow. Whoever
// becomes ready, or connects again, is told to dequeue once, so work that was missed meanwhile is
// found then, or by the safety poll of the listener.
//
// In a cluster of servers listening(true) means that the server of this connection knows. The others
// learn it a moment later.
//
// A subscriber that says More wakes one other process, never its own, if there is one that is ready:
// NATS may choose the sender, which then sends again, up to 20 times.
//
// # Connection
//
// The connection is the program's, with its servers, credentials, handlers and reconnects. The program
// closes it after the Transport. Of a connection that silently leads nowhere NATS finds out after some
// minutes, by nats.PingInterval and nats.MaxPingsOutstanding.
//
// # Permissions
//
// Publishers need to publish, and listeners to publish and to subscribe to, Prefix + ".>", with the
// queue group "millrace". Whoever may publish can wake workers for
// nothing; a payload can do no more.
//
// # Concurrency
//
// Everything here is safe for concurrent use. A Transport has two goroutines, which Close ends.
package natswakeup
