// Package scaling decides two things: how many loops a load calls for ([Loops]), and how many instances
// a pool needs ([Policy]). It also has the curve of a listener's waits while its queue is empty ([Curve]).
//
// This package is experimental: any release may change it. See docs/stability.md.
//
// # Instances
//
// A [Policy] decides from the [History] of a pool: samples of depth, rates and handling time. It has no
// state, no clock and no random numbers, so that the same history leads to the same decision, and an
// agent that was restarted goes on as before. Each [Decision] says why, with its numbers.
//
// Wanted are ⌈(λ·S + B·S/T) / (ρ·c)⌉ instances: slots for the arrivals λ, each of which occupies one for
// the time S, and for a backlog B that is to be gone in the time T; c slots in each instance, used up to
// ρ. By Little's law λ·S slots are busy on average. A message takes no more than one slot, so S/T
// counts as 1 at most.
//
//   - λ is the average of the last minute, or of S if that is longer. If the samples of the last 20 s are
//     all further from it than the noise allows, the load has changed, and λ is their average.
//   - A trend that shows in both halves of the last 5 min is continued to the time when a new instance would
//     work, and may use the headroom that ρ leaves. A step is not a trend.
//   - B too is the greater of now and then. Instances that still start are counted on from when they
//     should work.
//   - S is the average of all messages of the last 5 min, so a dependency that is slow for a while does not
//     stand for all that wait. It is corrected by occupied slots / service. So attempts that fail
//     count as load, and so does whatever else keeps an instance from using its slots.
//   - Instances are added at once, at most as many as there were 15 s before, or 4 if that is more. None is
//     added for a backlog that the present ones drain within T with full slots, or before a new one
//     would work. While some are on their way, T counts from when these work. None is added for some
//     minutes after a growth that did not raise the service although messages waited: then a dependency
//     is the limit, or jobs became longer at the same time, which looks the same.
//   - Instances are removed when fewer were wanted for DownAfter without a break, down to the most
//     that were wanted meanwhile and a tenth more. A time without samples that is longer than half of
//     DownAfter, and than 2 min, begins the wait anew.
//   - With a bound of CPU, there are at least as many as would use no more than it: ⌈instances × use / CPU⌉, where
//     instances × use is an average of the last minute. So the instances that still start are not asked for again. A bound of
//     Memory does the same, up to twice as many as the load calls for.
//   - With Forecast, λ is at least what came a day and a week before the time when a new instance
//     would work, while that was closer to what came, over the last day, than the latest figures were.
//
// # Unknown figures
//
// A figure that is unknown is never taken for zero; absurd ones (negative, infinite, not a number) are
// unknown. What is missing is said in the decision, if it matters: arrivals only if instances report.
//
//   - Without Depth and Visible, the number stays.
//   - Without Visible, the backlog is Depth without InWork, or else without Running, or else without as
//     many as the working instances have slots; and without Delayed.
//   - Without Arrival, it is Service and the growth of Depth; without Service too, it is what the
//     occupied slots and the growth of Depth suggest.
//   - Without Handling, it is the last one known of a day, or Running / Service, or that of the policy;
//     without Slots, the last one known of a day, or that of the policy.
//   - Without CPU or Memory, their bounds call for no instance.
//   - Without Ready, instances work once they are as old as the policy's Start.
//
// No instance is removed while Depth is unknown, while fewer instances report than there are, or while
// the handling time or the slots that count are guesses, that is defaults of the policy, or while CPU or Memory have a bound and
// are unknown, unless the queues were empty for DownAfter. Bounds hold always.
//
// A decision reads at most DownAfter of the history, and with Forecast two days of arrivals. It
// takes about 40 µs of processor time when it looks at everything, 100 µs with Forecast, and one allocation.
//
// # Concurrency
//
// A Policy may be used concurrently, a History not while it is added to. A [Loops] function is called concurrently.
package scaling
