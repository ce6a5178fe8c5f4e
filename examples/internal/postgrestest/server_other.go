//go:build !linux

package postgrestest

import "testing"

// Server is a server of one test.
type Server struct{ dir string }

func begin() (*Server, error) { return nil, errAbsent }

func (s *Server) end() {}

// Database returns the address of a new database.
func (s *Server) Database(testing.TB) string { return "" }

// Up starts the server where it was killed.
func (s *Server) Up() error { return errAbsent }

// Kill kills all processes of the server.
func (s *Server) Kill() {}
