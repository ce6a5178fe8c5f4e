// Bench measures what a message costs a consumer, and how many pass in a second:
// Millrace's listener beside what people write by hand, in one run, against the
// emulator in a process of its own.
//
//	go run . -h
//
// Every cell is measured for the same time, the contenders taking turns, several
// rounds, and the table has the medians. Processor time is that of the client
// process alone, so that it means something on a machine that client and server
// share; messages a second on such a machine are what both together get done.
package main
