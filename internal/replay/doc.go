// Package replay plays traces of load against rules that scale, in simulated time: what each rule would have missed, and what it would
// have cost.
//
//	result, err := replay.Run(trace, replay.Agent("agent", scaling.Policy{}))
//
// A [Trace] comes from a file ([Read]) or from a generator ([Steady] and its like). A [Rule] is the real [scaling.Policy] ([Agent]), or one of
// those that people use today.
//
// # What is simulated
//
// Messages are an amount, not one by one: those that come in a second are a cohort, and cohorts are served first come, first served. An instance has
// a fixed number of slots, and a message occupies one for the handling time of the second in which it begins. Messages begin as soon as a slot
// is free, evenly within a second; so times are right to a second, and a share of late jobs is exact for that flow. An instance takes
// its time to start. Surplus instances end at once while they start; those that work take no more messages and end when their handlers have
// returned. Instances are paid for from being asked for to their end.
//
// Poison fails whenever it is handled: it is handled five times, after 1, 16, 81 and 256 seconds, and then goes to the poison queue.
//
// # What a rule sees
//
// The depth and the age of the head as they are when it decides; what instances report as it was five seconds before, which is half of the interval
// of beacons; rates since its last decision. Trace.Noise makes figures wrong, and Trace.Missing lets readings fail.
//
// # What it leaves out
//
// Waits between polls, which are a second at most at the defaults of a listener, and the jitter of retries. Failures other than poison. Differences
// between instances other than the time that they take to start. Renewals of leases are not counted as requests.
//
// # Requests
//
// They are estimates with the figures of Millrace's own measurements: 1.091 a delivery, one more for a message that becomes poison, one a second for
// an idle instance, what the rule reads, and the reports. Sends are not among them. A queue carries 2,000 messages a second and a
// storage account 20,000 requests a second: a trace whose accounts cannot carry what comes is refused, and a backlog is drained no faster than they carry.
//
// # Concurrency and cost
//
// Everything is a pure function or a value, safe for concurrent use; the same arguments give the same result on one kind of processor. A
// day takes some hundredths of a second, and what the rule takes. [Read] refuses files that are not traces, and reads no more than 64 MiB.
package replay
