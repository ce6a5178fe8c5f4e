// Table measures what stores of tables do in a second: insertions, point reads, pages and deletions of package filetable,
// beside a plain table of SQLite, which is as durable, and Azurite's table service, which keeps its tables in
// memory and writes them to a file now and then.
//
//	go run ./table -h
//
// The contenders take turns in every round, each with a new table, and the figures are medians of the rounds. Afterwards
// a process of its own opens a file of filetable with a million entities and pages through it.
package main
