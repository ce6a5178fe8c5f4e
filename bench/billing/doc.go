// Billing measures the billing example: how many records a second its roles, as processes on millrace serve, take from
// shipping to the books, and how much memory all processes take together.
//
//	go run ./billing -h
//
// It builds millrace and the example, and must be started in the folder of the module bench. All processes share
// the machine, and the server waits for the disk. Memory is the sum of the peaks of all processes, as the
// system tells when they have ended; the peaks need not have been at the same time.
package main
