package books

import (
	"context"
	"database/sql/driver"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"modernc.org/sqlite"

	"github.com/millrace/millrace/examples/internal/postgrestest"
	"github.com/millrace/millrace/internal/azuritetest"
	"github.com/millrace/millrace/internal/killtest"
)

// The environment of a process that records batches: recorderVariable has the address of its books.
const (
	recorderVariable = "BILLING_BOOKS_RECORDER"
	recorderAccounts = 1000
	recorderBatches  = 24
)

// recorder records batch after batch and says which it has recorded. If a trigger calls stall(),
// it says so and waits to be killed.
func recorder(address string) {
	sqlite.MustRegisterScalarFunction("stall", 0, func(*sqlite.FunctionContext, []driver.Value) (driver.Value, error) {
		fmt.Println("stalled")
		select {}
	})
	b, err := Open(context.Background(), address)
	for n := 0; err == nil && n < recorderBatches; n++ {
		// On a busy machine the other recorder may have the lock for longer than SQLite waits.
		for again := true; again; again = err != nil && strings.Contains(err.Error(), "SQLITE_BUSY") {
			_, err = made(fmt.Sprintf("batch-%02d", n), recorderAccounts).record(context.Background(), b)
		}
		if err == nil {
			fmt.Println("recorded", n)
		}
	}
	if err != nil {
		fmt.Println("failed:", err)
		os.Exit(1)
	}
	fmt.Println("ended")
}

// TestAKillInTheMiddleOfATransactionLeavesNothingOfIt: the batch and all its sums are written, and one
// rejection, when the recorder is killed.
func TestAKillInTheMiddleOfATransactionLeavesNothingOfIt(t *testing.T) {
	path := filepath.Join(t.TempDir(), "books.db")
	recorded(t, opened(t, path), made("earlier", recorderAccounts))
	execute(t, "sqlite", path, "CREATE TRIGGER stop AFTER INSERT ON billing_rejections BEGIN SELECT stall(); END")
	output := make(chan string, 100)
	child := killtest.Start(t, output, recorderVariable+"="+path)
	if line := <-output; line != "stalled" {
		t.Errorf("got %q", line)
	}
	child.Kill(t)
	b := opened(t, path)
	checkWhole(t, b, 1, recorderAccounts)
	execute(t, "sqlite", path, "DROP TRIGGER stop")
	recorded(t, b, made("batch-00", recorderAccounts))
}

// M-05: two processes record the same batches, and are killed at any moment, also
// while they make the file.
func TestKilledRecordersLoseAndRepeatNothing(t *testing.T) {
	if testing.Short() {
		t.Skip("starts processes and kills them")
	}
	t.Parallel()
	onBoth(t, func(t *testing.T, address string) {
		t.Parallel()
		for kill := 0; ; kill++ {
			output := make(chan string, 2*recorderBatches+10)
			one, other := killtest.Start(t, output, recorderVariable+"="+address), killtest.Start(t, output, recorderVariable+"="+address)
			done := 0
			if kill < 6 {
				for range rand.IntN(8) { // events, and a little time after them
					if line := <-output; line == "ended" {
						done++
					}
				}
				time.Sleep(time.Duration(rand.IntN(20)) * time.Millisecond) // any moment, and not a wait for something
			} else {
				for done < 2 {
					line := <-output
					if strings.HasPrefix(line, "failed") {
						t.Fatal(line)
					}
					if line == "ended" {
						done++
					}
				}
			}
			one.Kill(t)
			other.Kill(t)
			close(output)
			for line := range output {
				if strings.HasPrefix(line, "failed") {
					t.Error(line)
				}
			}
			if done == 2 {
				break
			}
		}
		checkWhole(t, opened(t, address), recorderBatches, recorderAccounts)
	})
}

// TestAKilledServerLeavesNothingOfATransaction: the server is killed when the batch and its sums are
// written and the rejections wait for a lock.
func TestAKilledServerLeavesNothingOfATransaction(t *testing.T) {
	t.Parallel()
	server := postgrestest.Start(t)
	address := server.Database(t)
	b := opened(t, address)
	recorded(t, b, made("earlier", 100))
	lock, err := b.db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := lock.Exec("LOCK TABLE billing_rejections IN EXCLUSIVE MODE"); err != nil {
		t.Fatal(err)
	}
	var group sync.WaitGroup
	group.Go(func() {
		first, err := made("killed", 100).record(t.Context(), b)
		if err == nil || first {
			t.Errorf("got %v, %v, want an error", first, err)
		}
	})
	azuritetest.Until(t, "the rejections wait for the lock", func() bool {
		var waiting int
		err := b.db.QueryRow("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE 'INSERT%rejections%'").Scan(&waiting)
		return err == nil && waiting == 1
	})
	server.Kill()
	group.Wait()
	lock.Rollback()
	if first, err := made("killed", 100).record(t.Context(), b); err == nil || first {
		t.Errorf("while the server is down: got %v, %v", first, err)
	}
	if err := server.Up(); err != nil {
		t.Fatal(err)
	}
	checkWhole(t, b, 1, 100) // also the connections come back
	recorded(t, b, made("killed", 100))
	checkWhole(t, b, 2, 100)
}

// TestAServerThatIsKilledAgainAndAgainLosesNothing: what was recorded outlasts each kill, and repeats
// after errors record each batch once.
func TestAServerThatIsKilledAgainAndAgainLosesNothing(t *testing.T) {
	if testing.Short() {
		t.Skip("kills a server again and again")
	}
	t.Parallel()
	server := postgrestest.Start(t)
	b := opened(t, server.Database(t))
	const batches, accounts = 60, 200
	ctx, cancel := testContext(t)
	defer cancel()
	firsts, confirmed := 0, make(chan struct{}, batches)
	var group sync.WaitGroup
	group.Go(func() {
		defer close(confirmed)
		for n := 0; n < batches && ctx.Err() == nil; {
			first, err := made(fmt.Sprintf("batch-%02d", n), accounts).record(ctx, b)
			if err != nil {
				continue // the controller's message comes back
			}
			if first {
				firsts++
			}
			n++
			confirmed <- struct{}{}
		}
	})
	for range 5 {
		for range 1 + rand.IntN(5) {
			<-confirmed
		}
		time.Sleep(time.Duration(rand.IntN(5)) * time.Millisecond)
		server.Kill()
		if err := server.Up(); err != nil {
			cancel()
			t.Error(err)
			break
		}
	}
	group.Wait()
	if firsts > batches || firsts < batches-5 { // a kill may take the answer to a commit away
		t.Errorf("%d of %d batches were the first", firsts, batches)
	}
	checkWhole(t, b, batches, accounts)
}
