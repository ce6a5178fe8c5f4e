package books

import (
	"bufio"
	"database/sql"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/millrace/millrace/examples/internal/postgrestest"
	"github.com/millrace/millrace/internal/azuritetest"
)

// dying is set in the child process of TestAKilledTestLeavesNothingBehind.
const dying = "POSTGRESTEST_DYING"

func TestWhatWasCommittedOutlastsAKill(t *testing.T) {
	s := postgrestest.Start(t)
	address := s.Database(t)
	execute(t, "pgx", address, "CREATE TABLE kept (n INTEGER)")
	for range 2 {
		s.Kill()
		if err := s.Up(); err != nil {
			t.Fatal(err)
		}
		execute(t, "pgx", address, "INSERT INTO kept VALUES (1)")
	}
}

func TestEachTestHasADatabase(t *testing.T) {
	one, other := postgrestest.Database(t), postgrestest.Database(t)
	execute(t, "pgx", one, "CREATE TABLE mine (n INTEGER)")
	execute(t, "pgx", other, "CREATE TABLE mine (n INTEGER)")
}

// TestPostgreSQLOfADyingTest starts a server and waits to be killed. It runs only in the child process of
// TestAKilledTestLeavesNothingBehind.
func TestPostgreSQLOfADyingTest(t *testing.T) {
	if os.Getenv(dying) == "" {
		t.Skip("run by TestAKilledTestLeavesNothingBehind")
	}
	db, err := sql.Open("pgx", postgrestest.Database(t))
	if err != nil {
		t.Fatal(err)
	}
	var data string // a folder in that of the server
	if err := db.QueryRowContext(t.Context(), "SHOW data_directory").Scan(&data); err != nil {
		t.Fatal(err)
	}
	fmt.Println("started", filepath.Dir(data))
	select {} // until killed
}

func TestAKilledTestLeavesNothingBehind(t *testing.T) {
	postgrestest.Database(t) // skips the test without PostgreSQL
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestPostgreSQLOfADyingTest$")
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
