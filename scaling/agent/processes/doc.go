// Package processes is the actuator of package agent for processes on this machine: it starts and
// supervises them, lets surplus ones finish their jobs, and finds them again after a restart of the
// agent.
//
// This package is experimental: any release may change it. See docs/stability.md.
//
// # Instances
//
// Each instance is a process in a session of its own: neither Ctrl-C at the terminal of the agent
// nor the end of that terminal reaches it. It has the environment of the agent, [Options].Env, and
// its number in [NumberVariable]. Its input is empty. /bin/sh starts it, and may drop variables
// with names such as my.setting, which have other characters than letters, digits, and underscores.
//
// [Processes.Instances] returns the desired number, as last set by [Processes.Scale]. Nothing else
// changes it. An instance that ends by itself, with any status, is started again under its number:
// after 1 s at first, and up to 1 min if it ends again and again, ± 25 %. After a minute of work
// the waits begin anew. Each end is counted, and logged with the status, the last 10 lines of
// output and the wait. If instances cannot be started, that is logged once, until one can.
//
// # Fewer
//
// Surplus instances get SIGTERM, once, and have Options.Grace to finish their jobs;
// [github.com/millrace/millrace.Run] does that. Those that wait to be started again go first,
// because they do nothing, and then the youngest, which have done the least: they may not even have
// begun. What an instance has started itself is part of its jobs and gets no signal; a shell script
// should exec its program. An instance that has not ended when its grace is over is killed with
// its process group, which is logged and counted.
//
// One that was told to end cannot be taken back. If more are wanted while some drain, new ones are
// started beside them, so that there are more processes than instances for at most the grace: those
// of [State].Running and Draining.
//
// # The agent ends
//
// Instances outlive the agent, however it ends, unless [Processes.Drain] ends them. The next
// agent with the same folder finds them. It wants as many as run, and lets draining ones finish.
// Because it does not know how long these have had, or whether they got SIGTERM, it waits for a
// grace before it sends one: a second SIGTERM would make the program drop its jobs. It takes the
// processes as they are, even if Command has changed.
//
// Where nobody is going to supervise them again, such as those of a pool that was removed, [Left]
// counts them and [Drain] ends them.
//
// On Linux an instance is identified by the id and the start of its process, which no other process
// has. The process writes both into a file in the folder, before it becomes the program; /bin/sh
// does that. So there is no moment in which a killed agent leaves a process that the next one does
// not find. Each instance also holds a lock on its file, which it has inherited as descriptor 3 and
// should leave open. On other systems this lock is all that tells an instance from another process
// with its id: an instance that has closed descriptor 3 is taken for ended by the next agent, and
// started twice. An instance that does not hold its lock is logged with what that means. If a
// process has a file locked in which nothing says which one it is, [New] fails: it may be the
// instance.
//
// Close leaves children of a program that goes on running: those that end then stay
// zombies until it ends or supervises them again.
//
// # Output
//
// Instances write into a file in the folder, not into a pipe: neither the end of the agent nor an
// Output that blocks stops them. The agent reads it and writes whole lines with the number to
// Options.Output; lines of more than 4,096 bytes come in parts. What was read is given back to the
// disk after each MiB; on systems other than Linux a line that is written in that moment can be
// lost. What they write while no agent runs stays in the file and is not shown.
//
// # The folder
//
// A folder is for one agent: another one gets [ErrInUse]. If it or a file in it is deleted, that is
// made again with what the next agent needs; on systems other than Linux that one does not find
// the instances of before. While it cannot be made, or the disk is full, what runs is supervised
// and can be ended, and starts are tried again. The disk must be a local one, because of the locks.
//
// # Concurrency and cost
//
// Processes is safe for concurrent use. One goroutine supervises, and one for each instance writes
// its output; Close waits for all. The processes are looked at every 20 ms while something happens
// and up to every 250 ms while nothing does, with three to six system calls for each, and so is
// their output. No method waits for a process but Drain.
//
// # Systems
//
// It works on Linux, macOS and the BSDs. On Windows it compiles, and nothing of it has been tested:
// not the start, the end, the output or the next agent. There an instance is told to end by
// Ctrl-Break, which needs the console of the agent; what it has started is not killed; a process is
// identified by its id and time of creation, which the agent writes after the start; two agents
// with one folder are not noticed; and output is not given back to the disk. Elsewhere no instance
// can be started.
package processes
