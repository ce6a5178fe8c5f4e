package shipping

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// B-03. A batch arrives wherever the line breaks, at every byte of either direction, and nothing that has arrived is sent twice. The
// server is a new process for each request, so that this is also a server that is killed at any of these
// moments.
func TestABatchArrivesWhereverTheLineBreaks(t *testing.T) {
	b := batchOf(t, 1, 2)
	whole := map[cutAt]int{}
	synctest.Test(t, func(t *testing.T) {
		w, i := newWire(nowhere, 0), newInitiator()
		if state, err := w.ship(t, i, b, nil); state != Received || err != nil {
			t.Fatalf("got %v, %v, want received", state, err)
		}
		i.checkArrived(t, b)
		if len(i.requests) != 5 {
			t.Errorf("requests on a line that holds: got %v, want status, manifest, two pieces, complete", i.requests)
		}
		whole[request], whole[halfRequest], whole[response] = w.bytes(request), w.bytes(request), w.bytes(response)
	})
	for name, where := range map[string]cutAt{"request": request, "half of the connection": halfRequest, "response": response} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				for at := range whole[where] + 1 {
					if testing.Short() && at%10 != 0 {
						continue
					}
					w, i := newWire(where, at), newInitiator()
					if state, err := w.ship(t, i, b, nil); state != Received || err != nil {
						t.Fatalf("cut at byte %d: got %v, %v, want received", at, state, err)
					}
					if at < whole[where] && w.cuts != 1 {
						t.Fatalf("cuts at byte %d: got %d, want 1", at, w.cuts)
					}
					i.checkArrived(t, b)
				}
			})
			t.Logf("%d bytes", whole[where])
		})
	}
}

// A line that breaks again and again, in any direction, delays a batch and does not change it.
func TestABatchArrivesOverALineThatKeepsBreaking(t *testing.T) {
	b := batchOf(t, 3, 40, 1, 7, 300)
	synctest.Test(t, func(t *testing.T) {
		rapid.Check(noDeadline{t}, func(r *rapid.T) {
			cuts := rapid.SliceOfN(rapid.Custom(func(r *rapid.T) cut {
				return cut{cutAt(rapid.IntRange(int(request), int(anyDirection)).Draw(r, "direction")), rapid.IntRange(0, 3000).Draw(r, "bytes")}
			}), 1, 40).Draw(r, "cuts")
			w, i := newWire(cuts[0].where, cuts[0].after), newInitiator()
			w.next = cuts[1:]
			if state, err := w.ship(t, i, b, nil); state != Received || err != nil {
				r.Fatalf("got %v, %v, want received", state, err)
			}
			i.checkArrived(t, b)
		})
	})
}

// noDeadline is a test without its deadline, which must not be asked for in a bubble.
type noDeadline struct{ *testing.T }

func (noDeadline) Deadline() (deadline time.Time, ok bool) { return time.Time{}, false }

// A client that is killed leaves what has arrived; the next one goes on from there.
func TestANewClientGoesOnFromWhatHasArrived(t *testing.T) {
	b := batchOf(t, 1, 1, 1, 1)
	for steps := range 6 {
		t.Run(fmt.Sprint(steps), func(t *testing.T) {
			i := newInitiator()
			if steps > 0 {
				i.sendManifest(t, &b.Manifest)
			}
			for n := range steps - 1 {
				i.sendPiece(t, b, n^1) // in another order
			}
			synctest.Test(t, func(t *testing.T) {
				if state, err := newWire(nowhere, 0).ship(t, i, b, nil); state != Received || err != nil {
					t.Fatalf("got %v, %v, want received", state, err)
				}
			})
			i.checkArrived(t, b)
			if want := 6 - steps + min(steps, 1); steps > 0 && len(i.requests) != want {
				t.Errorf("requests: got %v, want %d", i.requests, want)
			}
		})
	}
}

// net/http responds to the head of a request that was cut, without the header of this protocol. However often that comes, it
// is no other server.
func TestRequestsThatAreCutInARowAreNoWrongAddress(t *testing.T) {
	b := batchOf(t, 1)
	synctest.Test(t, func(t *testing.T) {
		w, i := newWire(halfRequest, 20), newInitiator()
		for range 3 * doubtfulTries {
			w.next = append(w.next, cut{halfRequest, 20})
		}
		if state, err := w.ship(t, i, b, nil); state != Received || err != nil {
			t.Fatalf("got %v, %v, want received", state, err)
		}
	})
}
