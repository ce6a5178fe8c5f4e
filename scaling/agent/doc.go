// Package agent measures pools of instances, decides how many there should be, and makes it so.
//
// A [Pool] are instances of one program that take jobs from the same queues. An [Agent] measures each of its pools every 10 s, asks the
// pool's scaling.Policy, and tells the pool's [Actuator] when the number is to change. Each pool is measured and decided about by
// itself: a queue or an actuator that is slow, fails, hangs or panics concerns its own pool alone.
//
// This package is experimental: any release may change it. See docs/stability.md.
//
// # What is measured
//
//   - The depth of each queue, and how long its oldest visible message has waited, from a peek of 32 messages. Messages that were
//     delivered before do not count for that: nobody knows how long they have been visible. The age is taken by this machine's clock and the
//     service's.
//   - What the instances report, if they do: see package beacon and listener.Options.Beacon. From that come the rates of arrival and
//     service, handling times, slots, and how many instances work. Arrival is what the depth has grown by and what was taken off meanwhile.
//   - How many instances there are, from the actuator.
//
// Several queues of a pool, such as shards, are summed, and the oldest message of all counts. The depth includes hidden messages. It is split into
// visible, in work and delayed: a peek of fewer than 32 messages shows all that are visible, and the reports say what
// instances hold. Messages that a sender has delayed count as visible while there are more than a peek shows.
//
// A figure that could not be measured is unknown, and never zero. One failing queue makes the sums of its pool unknown. The policy keeps
// the number of instances while the depth is unknown. While the number of instances is unknown, nothing is decided. Without reports
// the rates are unknown, and the policy decides by the depth alone, with its own Slots and Handling. Every error goes to
// Options.OnError with the queue and what to do, and to the log: once, then every ten minutes, and when it is over.
//
// # What is carried out
//
// The number of instances is read from the actuator each time; the agent does not trust its memory. A change that fails is decided anew at
// the next measurement, 10 s later. Somebody else may change the number meanwhile, such as an operator by hand:
//
//   - More instances than before stay for the policy's DownAfter, and then go if they are not needed. Its Max is the bound also for these.
//   - Fewer instances are as many as the policy makes of them: if jobs wait, it adds some at once. To keep a pool small, set Max, or stop the
//     agent.
//
// Two agents for the same pool and platform see and decide the same, and do not fight, but nobody
// gains by the second one. With the same Folder the second one does not start. Where each starts
// instances of its own, there are twice as many. If they report, that is an error in the log and
// in [PoolState].Errors after ten minutes: more instances report than the actuator has.
//
// # Pools without instances
//
// With the policy's ToZero the last instance goes when the queues are empty. The depth is read all the same, and work starts an instance at
// the next measurement: up to Options.Interval and the start of an instance later. With Options.Wakeups an event starts a
// measurement at once, at most one a second. The agent subscribes only while a pool has no instances, because between processes an event
// reaches one of those who are ready, and would be missed by the workers.
//
// # Restarts
//
// Instances go on running without an agent. With Options.Folder the history of each pool is kept in
// files of JSON lines, which are replaced once a minute and appended to in between. An agent that is
// killed and started again decides as it would have. A crash of the machine costs a minute at most.
// A file that cannot be used is reported and moved aside. A full disk is reported.
// Without a folder the next agent removes nothing until DownAfter has passed.
//
// # Clocks
//
// Rates are taken by the monotonic clock. When the clock of the machine is set, the rates of one measurement are unknown; when it is set back,
// the history is set back with it.
//
// # Dry runs
//
// A pool without an actuator is a dry run: the agent decides as if its decisions had been carried out, from the instances that report
// at first, or from the least that the policy allows. What it sees is what the real instances make of the load, so a backlog that these
// do not drain stays, and the agent asks for what drains it. [Summary] has what it would have cost.
//
// # Concurrency
//
// An Agent is safe for concurrent use. Each pool has a goroutine, and so has each request while it lasts. Hooks and actuators are called
// by one of them at a time for each pool, and by several pools at once. Panics in hooks, actuators and queues are contained and reported.
//
// # Shutdown
//
// When the context of [Agent.Run] ends, requests are abandoned, and a change that the actuator makes may take another 5 s. Calls that ignore their
// context are left behind after 5 s more, and are errors of Run. [Agent.Halt] waits for none of them.
//
// # Cost
//
// A measurement is one request for each queue, one more for each that is not empty, and one for each control queue; what the actuator
// does comes on top. At 10 s a pool with one queue and one control queue takes 17,280 requests a day while the queue is empty, and 25,920
// while it is not: 1.7 to 2.6 cents at $0.01 for 10,000. Each event on a pool without instances can cost one more measurement. [Summary]
// counts them. The reports are requests of the instances: see package beacon.
package agent
