// Package beacon lets instances be seen: each listener keeps one message in a control queue and updates it in place with a
// [Report] of itself; a [Viewer] peeks, and a [Fleet] adds up what a scaling agent needs. Set the option Beacon of a listener to
// report; a [Publisher] is what it then runs.
//
// This package is experimental: any release may change it. See docs/stability.md.
//
// # What it costs
//
// A report is one request: 8,640 a day at the default interval of 10 s, and some 300 more, because a message does not live for ever, and
// an instance looks now and then whether its queue has room. While nothing changes, intervals grow to six times as much: some 1,800
// requests a day. At $0.01 for 100,000 transactions that is $0.027 and
// $0.005 a month for each listener. So a beacon breaks the rule that an idle listener with wake-ups sends nothing. A
// view is one request for up to 25 instances, 9 for up to 200, and 64 for up to 1,000. The listener counts its reports under metered.CauseBeacon.
//
// # Delivery
//
// The service keeps a report until its message is updated. A message lives for 60 intervals, at least 10 min, so that of an instance which
// was killed goes by itself; before that it is replaced. When the receipt is lost, because the answer to an update was lost or somebody took the
// message, the instance puts another one; viewers know the newer by its Sequence. A service that fails is asked again after half
// an interval, and from the third failure on after twice as long each time, up to six intervals. So an instance stays
// visible when two reports in a row fail and the third is late. None of this delays jobs: a beacon has its own goroutine
// and its own queue.
//
// At the stop the instance puts a last report, with the final counts and the phase "stopped", in a message that lives for three
// intervals, at least 30 s, and deletes the one before. That takes a second at most.
//
// # What is stale
//
// Clocks of instances differ and jump, so At is for people only. A viewer believes a report for three times its Next, by its own
// monotonic clock, from when it first saw that Sequence. At its first look it has only the service's time: each
// message's Inserted, and how long after that the report was made by the monotonic clock of the instance (Up − Put). What another report in
// the view is so much newer than is stale; where all instances were killed, a first look shows them until their messages go.
// Look twice, as far apart as that, to be certain.
//
// # Limits
//
// The service shows 32 messages in a peek. So a control queue takes about 25 reports. Further ones go to up to 63 queues beside it,
// control-1 to control-63 beside control, which instances with the option Create make. Viewers find them. That is enough for 1,000
// reports, even if their instances start together: after 70 s each has a queue with room. When the fleet is small again, reports are
// back in the control queue ten minutes later, and the queues that are left cost viewers 63 requests a minute until they are dropped.
// Without Create all reports go to the control queue, unless the other queues are there. A view says when a queue was full: then there
// may be more instances, and a fleet has no sums. Divide larger pools over several control queues. A listener of several queues, as in
// package shards, reports once for each.
//
// Reports of killed instances do not fill a queue. A publisher removes those of earlier runs of its instance, and viewers delete stale
// ones from a queue that shows more than 16 messages. Both need the right to process messages. Otherwise the reports expire.
//
// # The format
//
// A report is JSON in plain text. Other programs may write reports too; what they leave out is zero, or unknown where the load has null:
//
//	{"beacon":1,"instance":"web-1","queue":"acme/jobs","run":"5f","sequence":7,"at":"2026-01-02T03:04:05Z",
//	 "phase":"running","paused":false,"received":100,"ended":90,"delayed":3,
//	 "load":{"depth":12,"loops":1,"running":6,"settling":1,"slots":64,"batch_size":32,
//	  "arrival":null,"intake":null,"service":1.5,"handling":"1s"},
//	 "cpu":0.25,"memory":268435456,"memory_limit":536870912,
//	 "up":"1m30s","put":"1s","next":"10s"}
//
// "beacon" is the version of the format: readers ignore others. "instance", "queue", "sequence" and "next" are required; durations are
// texts as of Go, up to ten minutes for "next". "cpu", from 0 to 1, "memory" and "memory_limit" are unknown if they are missing: earlier
// releases neither write nor read them. The fields are those of [Report] and scaling.Load.
//
// Viewers ignore a report with a figure that no instance has: more than 100,000 messages a second,
// 65,536 handlers or loops, or a handling time of seven days. An instance with more reports that
// much. A report with false figures below that counts until it is stale, so only instances should
// be able to write to a control queue.
//
// # Concurrency and shutdown
//
// A [Viewer] and [Publisher.Changed] are safe for concurrent use; a [Fleet] is not. [Publisher.Run] starts no goroutine that
// outlives it.
package beacon
