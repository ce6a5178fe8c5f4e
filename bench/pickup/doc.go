// Pickup measures how long a critical job waits while other queues of its process are flooded: from the return
// of Send to the first line of its handler.
//
//	go run ./pickup -h
//
// Two listeners share the slots of a pool. The heavy queue has more jobs than can be handled in time, each of
// which only waits. The critical one gets jobs at random instants of a schedule that is made beforehand, the same for
// every row, each sent on a goroutine of its own, so that waiting is not hidden by sending less (coordinated omission).
// It is measured with a reserve for the critical queue and with weights alone, and each of these with the flood and
// without, in turn, in one run. A bus wakes the listeners; the queues are those of the emulator in a process of its own.
package main
