// Package scaling decides two things for a listener: how long to wait when the queue is empty
// ([Idle]), and how many loops a load calls for ([Loops]).
//
// # Idle
//
// The wait after the k-th empty poll grows as (2^k − 1) × 100 ms ± 20 %, from Min up to Max.
// Any [BackOff] can replace that curve, among them the policies of
// github.com/cenkalti/backoff/v4.
//
// # Cost
//
// Once a loop waits Max between polls it costs one transaction per Max: at one second 86,400 a
// day, at one minute 1,440. The listener spreads the waits of its surviving loops over
// [Max, 1.1 Max), so that workers do not poll in step and one poll per Max is an upper bound.
//
// # Fleets
//
// That is one transaction per Max for each instance. With Idle.Fleet set to the number of
// instances, each waits Fleet × Max, and all together poll once per Max, however many they are. The
// first of these waits is random within 0…Fleet × Max, so that instances that start together, or
// run out of work together, do not poll together; the later ones are jittered like those of a
// single instance. An idle spell thus costs each instance the few polls of the curve and one more.
//
// The phases are independent, so a message that comes to n idle instances waits
// Fleet × Max / (n + 1) on average: half of Max for one instance, as without Fleet, and close to Max
// for many. The jitter adds a twentieth, and single messages up to a tenth, because an instance that
// takes one leaves a gap where it would have polled. The wait exceeds x with a probability of about
// e^(-x/Max): one message in 20 waits longer than 3 Max. The longest wait is 1.1 × Fleet × Max, and
// an instance that is alone, because the others are busy, paused or stopped, takes half of that on
// average. So the number must follow the fleet: too high a Fleet delays messages, too low a one
// costs requests. An instance that finds work resets only its own curve.
//
// # Concurrency
//
// A [Loops] function and Idle.New are called concurrently. A BackOff that New returned is used
// by one loop only.
package scaling
