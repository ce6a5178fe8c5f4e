// Millrace serves the REST protocol of Azure Queue Storage on this machine, for all clients, and
// creates, fills, shows and clears the queues of any account.
//
//	millrace serve                the emulator, until Ctrl-C
//	millrace queues [PREFIX]      list queues with their depths
//	millrace create QUEUE         create a queue
//	millrace drop QUEUE           delete a queue with its messages
//	millrace put QUEUE [TEXT…]    put jobs on a queue, or the lines of the standard input
//	millrace peek QUEUE           show messages without taking them
//	millrace clear QUEUE          delete all messages
//	millrace pause QUEUE…         stop the workers of queues
//	millrace resume QUEUE…        let the workers of paused queues continue
//	millrace stat [QUEUE]         show the depth and the metadata of a queue, or the depths of all
//	millrace poison VERB QUEUE    list, show, stats, redrive or purge messages that failed
//	millrace agent                start and end instances as the load requires, or say what it would do
//	millrace instances QUEUE      list the workers that report in a control queue
//	millrace cost                 print what a queue costs by a model, for your numbers
//	millrace version              print the version
//	millrace completion SHELL     print a script that completes commands in bash, zsh or fish
//	millrace help [COMMAND]
//
// The guarantees of the server are those of packages emulator and localqueue. The other
// commands use the account of -account, or of the environment variable AZURE_STORAGE, or
// else the server on this machine; the file of agent names further ones. With -json, queues, peek, stat,
// poison, agent, instances and cost print one JSON object per line.
//
// The exit status is 0 on success, 1 on failure, 2 if the command line is invalid, and 130 if
// a signal ended the program early. Except on success, standard error ends with one line that says
// what to do; agent has a log there, and a line for each error of its file. No output contains a key, a signature or a receipt. Other users of the machine
// can read the command line, so keys need not be on it: -account accepts @FILE,
// -serve-account accepts name:@FILE, and the variables AZURE_STORAGE and MILLRACE_ACCOUNTS
// have the same values as the flags.
//
// SIGINT and SIGTERM let requests in progress finish, those of serve for up to ten seconds, and the
// instances of agent finish their jobs. A second signal aborts requests, and leaves instances.
package main
