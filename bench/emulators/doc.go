// Emulators measures local servers of the Queue service's protocol against each other: the
// program millrace, in memory and with its data on disk, Azurite, and net/http with
// constant responses, which is the least a Go server can spend. Every server is
// a process of its own; all get the same work from the same azqueue client. docs/performance.md
// says how to run it and what came out.
package main
