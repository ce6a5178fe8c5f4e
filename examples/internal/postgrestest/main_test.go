package postgrestest

import (
	"bufio"
	"database/sql"
	"fmt"
	"os"
	"os/exec"
	"testing"

	"go.uber.org/goleak"

	"github.com/millrace/millrace/internal/azuritetest"
)

const dying = "POSTGRESTEST_DYING"

func TestMain(m *testing.M) {
	code := m.Run()
	Stop()
	if code == 0 {
		if err := goleak.Find(); err != nil {
			os.Stderr.WriteString(err.Error() + "\n")
			code = 1
		}
	}
	os.Exit(code)
}

func execute(t *testing.T, address, statement string) {
	t.Helper()
	db, err := sql.Open("pgx", address)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.ExecContext(t.Context(), statement); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}

func TestWhatWasCommittedOutlastsAKill(t *testing.T) {
	s := Start(t)
	address := s.Database(t)
	execute(t, address, "CREATE TABLE kept (n INTEGER)")
	for range 2 {
		s.Kill()
		if err := s.Up(); err != nil {
			t.Fatal(err)
		}
		execute(t, address, "INSERT INTO kept VALUES (1)")
	}
}

func TestEachTestHasADatabase(t *testing.T) {
	one, other := Database(t), Database(t)
	execute(t, one, "CREATE TABLE mine (n INTEGER)")
	execute(t, other, "CREATE TABLE mine (n INTEGER)")
}

// TestDying starts a server and waits to be killed. It runs only in the child process of
// TestAKilledTestLeavesNothingBehind.
func TestDying(t *testing.T) {
	if os.Getenv(dying) == "" {
		t.Skip("run by TestAKilledTestLeavesNothingBehind")
	}
	Database(t)
	fmt.Println("started", shared.server.dir)
	select {} // until killed
}

func TestAKilledTestLeavesNothingBehind(t *testing.T) {
	Database(t) // skips the test without PostgreSQL
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestDying$")
	cmd.Env = append(os.Environ(), dying+"=1")
	output, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var dir string
	for lines := bufio.NewScanner(output); lines.Scan(); {
		if n, _ := fmt.Sscanf(lines.Text(), "started %s", &dir); n == 1 {
			break
		}
	}
	cmd.Process.Kill()
	cmd.Wait()
	if dir == "" {
		t.Fatal(`output of the child: got no "started" line, want one`)
	}
	azuritetest.Until(t, "its folder is gone", func() bool {
		_, err := os.Stat(dir)
		return os.IsNotExist(err)
	})
}
