// Package processes is the actuator of package agent for processes on this machine: it starts and supervises them, lets surplus ones
// finish their jobs, and finds them again after a restart of the agent.
//
// # Instances
//
// Each instance is a process in a session of its own: neither Ctrl-C at the terminal of the agent nor the end of that terminal reaches
// it. It has the environment of the agent, [Options].Env, and its number in [NumberVariable]. Its input is empty.
//
// [Processes.Instances] is what is wanted: the number that [Processes.Scale] was last called with. It changes by nothing else. An instance that ends by itself,
// with whatever status, is one of those that are wanted: it is started again under its number, after 1 s at first and up to 1 min if it ends again and
// again, ± 25 %. After a minute of work the waits begin anew. Each end is logged with the status, the last 10 lines of output and the wait, and counted.
//
// # Fewer
//
// Surplus instances get SIGTERM, once, and have Options.Grace to finish their jobs; [github.com/millrace/millrace.Run] does that. Those that wait to be started again go first,
// because they do nothing, and then the youngest, which have done the least: they may not even have begun. What an instance has started itself is part of its
// jobs and gets no signal; a shell script should exec its program. An instance that has not ended when its grace is over is killed with all of
// its session, which is logged and counted.
//
// One that was told to end cannot be taken back. If more are wanted while some drain, new ones are started beside them, so that there are
// more processes than instances for at most the grace: those of [State].Running and Draining.
//
// # The agent ends
//
// Instances outlive the agent, however it ends, unless [Processes.Close] drains them. The next agent with the same folder finds them. It
// goes on with the number that was wanted, starts what is missing, and has those that were draining drain on, with the whole grace, because
// clocks may have jumped. If the former one was killed just when it sent SIGTERM, it waits for a grace before it sends it again: told twice, a program drops its jobs.
// It goes on with the processes as they are, also if Command has changed.
//
// An instance lives as long as a lock is held on its file, which it has inherited as descriptor 3 and must leave open. So the id of a process that was
// used again is never mistaken for it, on Linux not even if a process that it has started lives on. The process writes its id into the file itself, before it
// becomes the program; /bin/sh does that. So there is no moment in which a killed agent leaves a process that the next one does not find.
//
// Close without drain leaves children of a program that goes on running: those that end then stay zombies until it ends or supervises them again.
//
// # Output
//
// Instances write into a file in the folder, not into a pipe: neither the end of the agent nor an Output that blocks stops them.
// The agent reads it and writes whole lines with the number to Options.Output; lines of more than 4,096 bytes come in parts. What was read is given
// back to the disk after each MiB; on systems other than Linux a line that is written in that moment can be lost. What they write while no
// agent runs stays in the file and is not shown.
//
// # The folder
//
// A folder is for one agent: another one gets [ErrInUse]. If it is deleted, full or cannot be written, what runs is supervised still and can be ended;
// Scale returns what could not be kept or started, and both are tried again. The disk must be a local one, because of the locks.
//
// # Concurrency and cost
//
// Processes is safe for concurrent use. One goroutine does everything and another one writes the output; Close waits for both. It looks at
// the processes every 20 ms while something happens and up to every 250 ms while nothing does, with two or three system calls for each. No
// method waits for a process but Close with drain.
//
// # Systems
//
// It works on Linux, macOS and the BSDs. On Windows it compiles and is untested: an instance is told to end by Ctrl-Break, which needs the console of
// the agent; what it has started is not killed; a process is identified by its id and time of creation, which the agent writes after the
// start; and output is not given back to the disk. Elsewhere New returns an error.
package processes
