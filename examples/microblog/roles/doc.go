// Package roles has the worker role of the microblog and how the web role asks for its work.
package roles
