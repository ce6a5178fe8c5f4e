// Command microblog is a microblog: channels with posts, in two tables. It shows how a program deletes what lies in several
// tables, so that a crash at any moment leaves nothing half deleted: the intent is a message in a queue. README.md says how to
// use it, and what happens when it is killed at each step.
//
// # Roles
//
// The web role, package web, shows pages and sends deletions. The worker role, package roles, carries them out. Both
// run in one process, or each in processes of its own on one account.
//
// # Data
//
// Without an account everything is in one folder, which one process at a time has open: the queue in a file
// of package filequeue and the tables in a file of package filetable. Without -data the folder is a temporary one, and
// is removed at the end.
//
// # Shutdown
//
// Ctrl-C ends both roles: requests and deletions may finish for a moment, and a deletion that has not finished goes on
// when the program runs again on the same data.
package main
