package processes

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/azuritetest"
)

// running returns the numbers of the processes that were started as instances of this world.
func (w *world) running() (numbers []int) {
	w.t.Helper()
	paths, err := filepath.Glob("/proc/[1-9]*/environ")
	if err != nil || len(paths) == 0 {
		w.t.Fatalf("processes: got %v, %v", paths, err)
	}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil || !bytes.Contains(text, []byte(socketVariable+"="+w.socket+"\x00")) {
			continue // it has ended, or is another's
		}
		for _, one := range strings.Split(string(text), "\x00") {
			if number, found := strings.CutPrefix(one, NumberVariable+"="); found {
				n, err := strconv.Atoi(number)
				if err != nil {
					w.t.Fatal(err)
				}
				numbers = append(numbers, n)
			}
		}
	}
	slices.Sort(numbers)
	return numbers
}

// agents are killed at any moment while they start and end instances. Afterwards there are as many as are wanted, no two of one
// number, and no process that nobody supervises.
func TestAgentsAreKilledAtAnyMoment(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	seed := uint64(time.Now().UnixNano())
	random := rand.New(rand.NewPCG(seed, 0))
	t.Logf("seed %d", seed)
	most := 0
	for range 8 {
		a := w.agent(commandVariable + "=sleep 1000")
		if said := a.says(); !strings.HasPrefix(said, "has ") {
			t.Fatalf("the agent: got %q", said)
		}
		fmt.Fprintln(a.in, "churn")
		for range random.IntN(20) { // a moment that depends on the agent
			a.says()
		}
		for range random.IntN(1 << 18) { // and a little later
			random.Uint64()
		}
		a.signal(9)
		most = max(most, len(w.running()))
	}
	if most == 0 {
		t.Error("no agent was killed while instances ran")
	}
	p := w.open(func(o *Options) { o.Command, o.Grace = []string{"sleep", "1000"}, 50*time.Millisecond })
	found := p.State()
	w.scale(p, 3)
	w.until(p, "three run and none drains", func(s State) bool { return s.Running == 3 && s.Draining == 0 })
	azuritetest.Until(t, "these are all", func() bool { return len(w.running()) == 3 })
	if got := w.running(); len(slices.Compact(got)) != 3 {
		t.Errorf("numbers: got %v, want none twice", got)
	}
	t.Logf("at most %d processes at a kill; the last agent found %+v", most, found)
	if err := p.Drain(t.Context()); err != nil {
		t.Fatal(err)
	}
	azuritetest.Until(t, "none is left", func() bool { return len(w.running()) == 0 })
	w.leftOver(agentLock, graceName)
}
