package browser

import (
	"strconv"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/millrace/millrace/emulator"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/localqueue"
)

func format(n float64) string { return strconv.FormatFloat(n, 'f', 4, 64) }

const says = `document.querySelector("[data-story]").textContent.includes`

func TestAPageLoadedAnewInTheMiddleLosesNoSlice(t *testing.T) {
	s := setup(t)
	p := open(t, s.url("/"))
	p.broken("slow")
	p.make()
	p.until("a slice is stored", stored+" >= 1")
	p.picture("growing")
	before := value[float64](p, stored)
	p.do(chromedp.Reload())
	p.until("all slices are shown again", stored+" >= "+format(before))
	p.mended("slow")
	p.done()
}

func TestAServerKilledInTheMiddleGoesOn(t *testing.T) {
	s := setup(t)
	p := open(t, s.url("/"))
	p.broken("slow")
	p.make()
	p.until("a slice is stored", stored+" >= 1")
	if now := value[string](p, state); now == "done" {
		t.Fatal("the mosaic was finished before the server was killed")
	}
	s.kill()
	p.until("the page says so", `document.getElementById("doing").textContent.includes("has lost its server")`)
	s.start()
	p.done()
}

// shortLeases puts the queues into a server of the test, where the queue of slices has a visibility timeout of 10 seconds: what
// a killed processor held comes back sooner.
func shortLeases(s *server) {
	s.t.Helper()
	engine := must(localqueue.New(nil))
	name := queue.Name{Account: emulator.DevelopmentAccount, Queue: "slicerequest"}
	if err := engine.Queue(name).Create(s.t.Context(), map[string]string{"defaulttimeout": "10"}); err != nil {
		s.t.Fatal(err)
	}
	endpoint, err := must(emulator.New(engine, nil)).Start("")
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = endpoint.Close() }) // the program has ended
	s.account = endpoint.ConnectionString()
}

func TestAKilledProcessorIsReplaced(t *testing.T) {
	s := setup(t, shortLeases)
	p := open(t, s.url("/"))
	p.broken("slow")
	p.make()
	p.until("slices are laid", state+` === "working" && document.querySelector("[data-workers] button:not(:disabled)") !== null`)
	p.click("[data-workers] li:first-child button")
	p.until("the page says so", says+`("was killed")`)
	p.until("it is back", says+`("is back")`)
	p.mended("slow")
	p.done()
}

func TestAServerThatAnswers503OnlyDelays(t *testing.T) {
	s := setup(t)
	p := open(t, s.url("/"))
	p.broken("slow")
	p.make()
	p.until("slices are laid", state+` === "working"`)
	p.broken("busy")
	p.until("the page says so", says+`("503")`)
	p.mended("busy")
	p.until("the slices are still slow", `document.querySelector("[data-fault=slow] button").ariaPressed === "true"`)
	p.mended("slow")
	p.done()
}

// The page says what to do about a damaged slice, and a redrive completes the picture.
func TestADamagedSliceOnceRedrivenCompletesThePicture(t *testing.T) {
	s := setup(t)
	p := open(t, s.url("/"))
	p.broken("slow")
	p.make()
	p.until("slices are rendered", state+` === "working"`)
	p.click("[data-damage] button")
	p.until("the page says so", says+`("was damaged")`)
	p.mended("slow")
	const row = `document.querySelector("[data-queue=slicerequest] [data-poison]")`
	p.until("there is poison", `!`+row+`.hidden`)
	p.until("the mosaic waits for a redrive", `!document.getElementById("failed").hidden && document.getElementById("failed").textContent.includes("Redrive")`)
	p.picture("poison")
	p.click("[data-queue=slicerequest] [data-poison] button")
	p.done()
	p.until("the poison is gone", row+`.hidden && document.getElementById("failed").hidden`)
}
