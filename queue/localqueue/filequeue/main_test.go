package filequeue

import (
	"flag"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/millrace/millrace/internal/localengine"
	"github.com/millrace/millrace/internal/suitetest"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/localqueue"
)

func TestMain(m *testing.M) {
	taskIfAsked() // child processes run this program, too
	flag.Parse()
	suitetest.OneProcessor()
	goleak.VerifyTestMain(m)
}

// account is the account of all queues of the tests.
const account = "test"

// opened opens an engine over a directory, which the test's end closes.
func opened(t testing.TB, dir string) *localqueue.Engine {
	t.Helper()
	s, err := openStore(dir)
	if err != nil {
		t.Fatal(err)
	}
	if f := s.Found(); f.Damaged > 0 {
		t.Errorf("Found: unexpected damage: %v", f.Damage)
	}
	return over(t, s)
}

// loaded returns the state of a store and a view, which the caller closes.
func loaded(t tester, s *store) (localengine.Saved, localengine.View) {
	t.Helper()
	saved, err := s.Load()
	if err != nil {
		t.Fatal(err)
	}
	view, err := s.View()
	if err != nil {
		t.Fatal(err)
	}
	return saved, view
}

// over opens an engine over a store, which the test's end closes.
func over(t testing.TB, s *store) *localqueue.Engine {
	t.Helper()
	e, err := engineOver(s, &localqueue.Options{DeletingFor: -1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closed(t, e) })
	return e
}

// closed closes an engine, which may be closed already.
func closed(t testing.TB, e *localqueue.Engine) {
	t.Helper()
	if err := e.Close(); err != nil {
		t.Error(err)
	}
}

// made creates a queue.
func made(t testing.TB, e *localqueue.Engine, name string) queue.Manager {
	t.Helper()
	q := e.Queue(queue.Name{Account: account, Queue: name})
	if err := q.Create(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	return q
}

// memoryDirectory returns a directory on an in-memory file system, if there is one, for tests that
// are not about the disk.
func memoryDirectory(t testing.TB) string {
	t.Helper()
	dir, remove := scratch(t)
	t.Cleanup(remove)
	return dir
}

// scratch is memoryDirectory with a function to remove it, for one of many checks of a test.
func scratch(t tester) (dir string, remove func()) {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "filequeue")
	if err != nil {
		dir, err = os.MkdirTemp("", "filequeue")
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir, func() { _ = os.RemoveAll(dir) }
}

// must returns the value of a constructor that must not fail.
func must[T any](made T, err error) T {
	if err != nil {
		panic(err)
	}
	return made
}
