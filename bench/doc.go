// Bench measures the cost of a message for a consumer and the throughput. It compares Millrace's
// listener with hand-written loops, in one run, against the emulator in a separate process.
//
//	go run . -h
//
// Every cell is measured for the same time in several rounds, in which the contenders take turns. The
// table has the medians. Processor time is that of the client process alone, so that it is meaningful
// even if client and server share a machine; messages a second are then those of both together.
package main
