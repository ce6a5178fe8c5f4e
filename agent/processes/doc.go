// Package processes is the actuator of package agent for processes on this machine: it starts and supervises them, lets surplus ones
// finish their jobs, and finds them again after a restart of the agent.
package processes
