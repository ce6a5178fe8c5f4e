package localqueue

import (
	"cmp"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestTimelineAgainstASortedSlice compares the order, and checks the position that every
// message stores.
func TestTimelineAgainstASortedSlice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		line := timeline{index: byDue}
		var all []*message // messages in the timeline
		made := uint64(0)
		at := rapid.Int64Range(0, 9)
		sorted := func(limit instant) []*message {
			var s []*message
			for _, m := range all {
				if m.due <= limit {
					s = append(s, m)
				}
			}
			slices.SortFunc(s, func(a, b *message) int {
				return cmp.Or(cmp.Compare(a.due, b.due), cmp.Compare(a.sequence, b.sequence))
			})
			return s
		}
		t.Repeat(map[string]func(*rapid.T){
			"": func(t *rapid.T) {
				if line.len() != len(all) {
					t.Fatalf("len: got %d, want %d", line.len(), len(all))
				}
				checkEntry := func(e entry, position int) {
					if e.message.position != [indexes]int{position, absent} || e.at != e.message.due || e.sequence != e.message.sequence {
						t.Fatalf("entry %d: got %+v, which differs from its message %+v", position, e, e.message)
					}
				}
				for i, e := range line.heap {
					checkEntry(e, i)
				}
				live := 0
				for i, e := range line.run.entries {
					if e.message != nil {
						checkEntry(e.entry, inRun(line.run.offset+i))
						live++
					}
				}
				if live != line.run.live {
					t.Fatalf("run.live: got %d, want %d", line.run.live, live)
				}
				if len(all) > 0 && line.first().message != sorted(never)[0] {
					t.Fatalf("first: got %v, want the earliest, %v", line.first().message, sorted(never)[0])
				}
			},
			"put": func(t *rapid.T) {
				made++
				m := &message{sequence: made, due: instant(at.Draw(t, "at")), position: [indexes]int{absent, absent}}
				line.put(m, m.due)
				all = append(all, m)
			},
			"add": func(t *rapid.T) {
				made++
				m := &message{sequence: made, due: instant(at.Draw(t, "at")), position: [indexes]int{absent, absent}}
				line.add(m, m.due)
				all = append(all, m)
			},
			"add many": func(t *rapid.T) { // so that there are enough holes for tidy to remove them
				due := instant(at.Draw(t, "at"))
				for range rapid.IntRange(1, 2*shrinkAbove).Draw(t, "how many") {
					made++
					m := &message{sequence: made, due: due, position: [indexes]int{absent, absent}}
					line.add(m, m.due)
					all = append(all, m)
				}
			},
			"remove many": func(t *rapid.T) {
				from := rapid.IntRange(0, len(all)).Draw(t, "from")
				to := rapid.IntRange(from, len(all)).Draw(t, "to")
				for _, m := range all[from:to] {
					line.remove(m)
				}
				all = slices.Delete(all, from, to)
			},
			"move": func(t *rapid.T) {
				if len(all) == 0 {
					t.Skip("empty")
				}
				m := rapid.SampledFrom(all).Draw(t, "message")
				m.due = instant(at.Draw(t, "at"))
				line.put(m, m.due)
			},
			"remove": func(t *rapid.T) {
				if len(all) == 0 {
					t.Skip("empty")
				}
				i := rapid.IntRange(0, len(all)-1).Draw(t, "index")
				m := all[i]
				all = slices.Delete(all, i, i+1)
				line.remove(m)
				line.remove(m) // the second call does nothing
			},
			"earliest": func(t *rapid.T) {
				limit := instant(at.Draw(t, "limit"))
				n := rapid.IntRange(1, 32).Draw(t, "n")
				want := sorted(limit)
				if got := line.earliest(nil, n, limit); !slices.Equal(got, want[:min(n, len(want))]) {
					t.Fatalf("earliest %d until %d: got %v, want %v", n, limit, got, want)
				}
			},
		})
	})
}
