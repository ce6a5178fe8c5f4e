// Package adaptive bounds how many handlers run at once by how their dependency copes.
package adaptive
