package main

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/examples/billing/books"
	"github.com/millrace/millrace/examples/billing/records"
	"github.com/millrace/millrace/examples/internal/cli"
	"github.com/millrace/millrace/examples/internal/postgrestest"
)

var (
	kills = flag.Int("kills", 8, "processes that are killed, in plays of 20")
	seed  = flag.Uint64("seed", 0, "of the first play; 0 is any")
)

const killsOfAPlay = 20

// TestKilledAnywhereNothingIsLostOrBilledTwice plays the roles as processes on a real server, and kills any of them at any
// moment: the totals are those of a straight computation, to the cent, and no batch is reported twice.
//
//	go test ./examples/billing -run TestKilledAnywhere -kills 200 -v
//
// M-01, M-06, M-07.
func TestKilledAnywhereNothingIsLostOrBilledTwice(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a server and kills it")
	}
	t.Parallel()
	first := firstSeed()
	for begun := 0; begun < *kills; begun += killsOfAPlay {
		one := first + uint64(begun/killsOfAPlay)
		t.Run(fmt.Sprintf("seed %d", one), func(t *testing.T) {
			t.Logf("again: go test ./examples/billing -run TestKilledAnywhereNothing -seed %d -kills %d", one, min(killsOfAPlay, *kills-begun))
			play(t, one, min(killsOfAPlay, *kills-begun), nil)
		})
	}
}

// TestKilledAnywhereWithPostgreSQL is the same with books in PostgreSQL, which is killed too, and a tenth of the kills.
//
// M-06, M-07.
func TestKilledAnywhereWithPostgreSQL(t *testing.T) {
	if testing.Short() {
		t.Skip("starts two servers and kills them")
	}
	t.Parallel()
	database := postgrestest.Start(t)
	one := firstSeed()
	t.Logf("again: go test ./examples/billing -run TestKilledAnywhereWith -seed %d -kills %d", one, *kills)
	play(t, one, max(*kills/10, 2), database)
}

// firstSeed returns the seed of the first play.
func firstSeed() uint64 {
	if *seed != 0 {
		return *seed
	}
	return rand.Uint64N(1_000_000)
}

// site is an account with processes of the roles, each of which can be killed.
type site struct {
	t        *testing.T
	random   *rand.Rand
	server   *server
	database *postgrestest.Server // of the books; nil for SQLite
	books    string               // their address
	dir      string
	usage    []string // the files
	members  []*member
	reported map[string]int // lines of the controllers that say so, by batch
	again    bool           // what was shipped is shipped again
	between  int            // milliseconds between two kills, at most
}

// member is a process that is started again when it was killed.
type member struct {
	name    string
	args    []string
	process *process
	ended   func(*process) // looks at what a process wrote that is no more
}

const (
	playDays    = 12
	playBatches = playDays + 1 // a file for each day, and one with late and repeated records
	playGroup   = 25           // records of an item
)

// playRecords is how many records a play bills: so many that they are not in the books before the last kill.
func playRecords() int {
	if *kills < killsOfAPlay {
		return 10_000
	}
	return 30_000
}

// play kills so many processes, with books in a database or, without one, in a file.
func play(t *testing.T, seed uint64, kills int, database *postgrestest.Server) {
	s := &site{t: t, random: rand.New(rand.NewPCG(seed, 0)), server: newServer(t), database: database, dir: t.TempDir(), reported: map[string]int{}}
	s.books = filepath.Join(s.dir, "books.db")
	if database != nil {
		s.books = database.Database(t)
	}
	want, rejected := s.writeUsage(seed)
	s.between = 50 + s.random.IntN(250)
	s.again = seed%2 == 0
	s.startAll()
	for range kills {
		s.killOne()
	}
	s.finish()
	s.check(want, rejected)
}

// writeUsage writes usage files with lines that cannot be billed, and computes the totals of the others without the
// roles. The last file has late records, and records that other files have too.
func (s *site) writeUsage(seed uint64) (want string, rejected int) {
	s.t.Helper()
	sums, tariffs := make(map[books.Key]books.Sum), records.BuiltInTariffs()
	bill := func(r *records.Record) {
		currency, amount, err := tariffs.Charge(r)
		if err != nil {
			s.t.Fatal(err)
		}
		key := books.Key{Account: r.Account, Tariff: r.Tariff, Currency: currency}
		sums[key] = sums[key].Plus(books.Sum{Records: 1, Quantity: r.Quantity, Amount: amount})
	}
	byDay := make(map[string][]records.Record)
	var late []records.Record
	for r := range records.Generate(seed, playRecords(), playDays) {
		bill(&r)
		day := r.Time.Format(time.DateOnly)
		if byDay[day] = append(byDay[day], r); r.Line%100 == 0 {
			late = append(late, r)
			rejected++
		}
	}
	for r := range records.Generate(seed+1, 500, 1) {
		bill(&r)
		late = append(late, r)
	}
	byDay["late"] = late
	for _, name := range slices.Sorted(maps.Keys(byDay)) {
		text := usageFile(slices.Values(byDay[name])) +
			"no record\nX1,2026-11-03T10:00:00Z,DE-1,electricity-de,-1\nX2,2026-11-03T10:00:00Z,DE-1,electricity-de,1e99\nX3,2026-11-03T10:00:00Z,DE-1,unknown,1\n"
		rejected += 4
		path := filepath.Join(s.dir, name+".csv")
		write(s.t, path, text)
		s.usage = append(s.usage, "-in", path)
	}
	var all []string
	for key, sum := range sums {
		all = append(all, sumText(key, sum))
	}
	slices.Sort(all)
	return strings.Join(all, ""), rejected
}

func sumText(key books.Key, sum books.Sum) string {
	return fmt.Sprintf("%v: %d records, %v, %v\n", key, sum.Records, sum.Quantity, sum.Amount)
}

func (s *site) startAll() {
	shared := []string{"-account", s.server.location, "-blobs", filepath.Join(s.dir, "blobs")}
	short := append(slices.Clone(shared), "-visibility", "5s") // the work of a killed process is soon taken up
	nothing := func(*process) {}
	s.members = []*member{
		{name: "initiator", args: append([]string{"initiator"}, short...), ended: nothing},
		{name: "worker", args: append([]string{"worker"}, short...), ended: nothing},
		{name: "worker", args: append([]string{"worker"}, short...), ended: nothing},
		{name: "controller", args: append([]string{"controller", "-books", s.books}, short...), ended: s.countReported},
		{name: "ship", args: slices.Concat([]string{"ship", "-group", fmt.Sprint(playGroup)}, s.usage, shared), ended: nothing},
	}
	for _, m := range s.members {
		m.process = start(s.t, m.args...)
	}
}

// killOne kills one process, after a while, and starts it again, at once or after another while.
func (s *site) killOne() {
	s.pause(s.between)
	switch which := s.random.IntN(len(s.members) + 2); {
	case which < len(s.members) && !s.over(s.members[which]):
		m := s.members[which]
		s.note(m.name)
		m.process.kill()
		m.ended(m.process)
		s.downtime()
		m.process = start(s.t, m.args...)
	case which == len(s.members)+1 && s.database != nil:
		s.controller().process.listens() // one that starts while its books are away gives up
		s.note("PostgreSQL")
		s.database.Kill()
		s.downtime()
		if err := s.database.Up(); err != nil {
			s.t.Fatal(err)
		}
	default:
		s.note("server")
		s.server.process.kill()
		s.downtime()
		s.server.start()
	}
}

// note logs what is killed next.
func (s *site) note(name string) {
	s.t.Logf("kills: %s, with %d of %d batches in the books", name, len(s.batches()), playBatches)
}

func (s *site) controller() *member {
	return s.members[slices.IndexFunc(s.members, func(m *member) bool { return m.name == "controller" })]
}

// over reports whether a process has done its work and is not started again: in half of the plays what was handed over once
// is not shipped again, which would mend what the roles lose.
func (s *site) over(m *member) bool {
	if m.name != "ship" || s.again {
		return false
	}
	select {
	case <-m.process.ended:
		return m.process.wait() == cli.StatusDone
	default:
		return false
	}
}

// downtime is nothing mostly, or up to 100 ms.
func (s *site) downtime() {
	if s.random.IntN(3) == 0 {
		s.pause(100)
	}
}

// pause lets the processes work for up to so many milliseconds: when each of them is killed must not depend on what they do.
func (s *site) pause(most int) {
	timer := time.NewTimer(time.Duration(s.random.IntN(most*1000)) * time.Microsecond)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-s.t.Context().Done():
	}
}

// patience is how long a play may take after the last kill before something must be stuck.
const patience = 5 * time.Minute

// finish ships everything once more, and waits until all of it is in the books.
func (s *site) finish() {
	s.t.Helper()
	ship := s.members[len(s.members)-1]
	if status := ship.process.wait(); status != cli.StatusDone {
		s.t.Fatalf("ship: got status %d, want %d: %s", status, cli.StatusDone, ship.process.out.String())
	}
	s.members = s.members[:len(s.members)-1]
	controller := s.controller().process
	begun := time.Now()
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	for len(s.batches()) < playBatches {
		select {
		case <-controller.out.wrote: // perhaps that a batch is in the books
		case <-ctx.Done():
			for _, m := range s.members {
				s.t.Logf("%s: %s", m.name, m.process.out.String())
			}
			s.t.Fatalf("batches in the books after %v without kills: got %d, want %d", patience, len(s.batches()), playBatches)
		}
	}
	s.t.Logf("all in the books %.1f s after the last kill", time.Since(begun).Seconds())
	for _, m := range s.members {
		m.process.listens() // before that nobody waits for signals
		m.process.stop()
		m.ended(m.process)
	}
	s.server.process.signal(os.Interrupt)
	s.server.process.wait()
}

// batches returns the batches in the books.
func (s *site) batches() (all []books.Batch) {
	s.t.Helper()
	s.read(func(snapshot *books.Snapshot) error {
		for b, err := range snapshot.Batches(s.t.Context()) {
			if err != nil {
				return err
			}
			all = append(all, b)
		}
		return nil
	})
	return all
}

func (s *site) read(read func(*books.Snapshot) error) {
	s.t.Helper()
	b, err := books.Open(s.t.Context(), s.books)
	if err != nil {
		s.t.Fatal(err)
	}
	defer b.Close()
	if err := b.Read(s.t.Context(), read); err != nil {
		s.t.Fatal(err)
	}
}

var inTheBooks = regexp.MustCompile(`batch (\S+): .* in the books`)

func (s *site) countReported(p *process) {
	for _, found := range inTheBooks.FindAllStringSubmatch(p.out.String(), -1) {
		s.reported[found[1]]++
	}
}

// check compares the books with the straight computation.
func (s *site) check(want string, rejected int) {
	s.t.Helper()
	var sums []string
	s.read(func(snapshot *books.Snapshot) error {
		for sum, err := range snapshot.Totals(s.t.Context()) {
			if err != nil {
				return err
			}
			sums = append(sums, sumText(sum.Key, sum.Sum))
		}
		return nil
	})
	slices.Sort(sums)
	if got := strings.Join(sums, ""); got != want {
		s.t.Errorf("totals: got\n%s\nwant\n%s", got, want)
	}
	all := s.batches()
	got := 0
	for _, b := range all {
		got += int(b.Rejected)
		if b.Latency() <= 0 || b.Latency() > time.Hour {
			s.t.Errorf("latency of %s: got %v, want that of the play", b.Name, b.Latency())
		}
	}
	if got != rejected {
		s.t.Errorf("rejected: got %d, want %d", got, rejected)
	}
	for batch, times := range s.reported {
		if times > 1 {
			s.t.Errorf("batch %s: got %d lines that it is in the books, want one", batch, times)
		}
	}
}

// rows returns the lines of a file.
func rows(t *testing.T, path string) []string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSpace(string(text)), "\n")
}
