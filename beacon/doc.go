// Package beacon lets instances be seen: each listener keeps one message in a control queue and updates it in place with a
// [Report] of itself; a [Viewer] peeks, and a [Fleet] adds up what a scaling agent needs.
package beacon
