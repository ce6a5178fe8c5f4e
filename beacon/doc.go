// Package beacon lets instances be seen: each keeps one message in a control queue and updates it in place with a
// [Report] of itself; viewers peek.
package beacon
