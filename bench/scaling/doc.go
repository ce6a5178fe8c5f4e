// Scaling replays traces of load against the agent's policy and the rules that people use today, and shows what each misses and costs.
//
//	go run ./scaling -h
//	go run ./scaling -trace mine.csv
//
// It must be started in the folder of the module bench. Nothing is measured: the results are those of a simulation, the same
// wherever it runs, and docs/scaling.md has them. A file is a trace as github.com/millrace/millrace/scaling/replay reads it.
package main
