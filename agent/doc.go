// Package agent measures pools of instances, decides how many there should be, and makes it so.
package agent
