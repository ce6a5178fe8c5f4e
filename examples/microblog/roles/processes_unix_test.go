//go:build unix

package roles

import (
	"encoding/json"
	"flag"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/emulator"
	"github.com/millrace/millrace/examples/microblog/channels"
	"github.com/millrace/millrace/internal/killtest"
	"github.com/millrace/millrace/poison"
	"github.com/millrace/millrace/queue/azurequeue"
	"github.com/millrace/millrace/table"
	"github.com/millrace/millrace/table/filetable"
)

var posts = flag.Int("posts", 3000, "posts of the channel that processes delete")

// Processes delete a channel of many posts in a file, over a server's queue. Each is killed after one page, in the midst
// of its second group of a page now and then, and the next goes on from the place that is in the message: no page but
// those that a kill interrupted is read twice.
//
//	go test ./examples/microblog/roles -run TestDeletesAHundredThousand -posts 100000 -v
//
// T-14, T-15, B-11.
func TestDeletesAHundredThousand(t *testing.T) {
	p := newPlay(t)
	p.fill(*posts)
	p.request()
	begun := time.Now()
	p.run()
	took := time.Since(begun)
	p.check()
	t.Logf("%d posts deleted by %d processes, of which %d were killed after a page and %d in the midst of one, in %v; %d pages read",
		*posts, p.kills+p.interrupted+1, p.kills, p.interrupted, took.Round(time.Millisecond), len(p.pages))
}

// play is a deletion by processes that are killed.
type play struct {
	*testing.T
	file     string
	location string // of the queue
	queue    *azurequeue.Queue
	channel  channels.Channel

	pages       []report
	late        report // the second deletion
	kills       int    // after a save
	interrupted int    // kills in the midst of a page
}

func newPlay(t *testing.T) *play {
	t.Helper()
	endpoint, err := must(emulator.New(nil, nil)).Start("")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = endpoint.Close() })
	p := &play{T: t, file: filepath.Join(t.TempDir(), "microblog.db"), location: endpoint.ConnectionString()}
	if p.queue, err = azurequeue.Open(p.location, QueueName, nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.queue.Close() })
	return p
}

// open calls a function with the tables, which no process has open then.
func (p *play) open(use func(s *channels.Site)) {
	p.Helper()
	db, err := filetable.Open(p.file, nil)
	if err != nil {
		p.Fatal(err)
	}
	defer func() {
		if err := db.Close(); err != nil {
			p.Error(err)
		}
	}()
	s, err := siteOf(db)
	if err != nil {
		p.Fatal(err)
	}
	use(s)
}

// fill makes the channel with n posts, and another one of a name that begins alike.
func (p *play) fill(n int) {
	p.open(func(s *channels.Site) {
		var err error
		if p.channel, err = s.Create(p.Context(), "news", "ann"); err != nil {
			p.Fatal(err)
		}
		other, err := s.Create(p.Context(), "news!", "ann")
		if err != nil {
			p.Fatal(err)
		}
		if _, err := s.Write(p.Context(), other, "bob", "stays", "text"); err != nil {
			p.Fatal(err)
		}
		var all sync.WaitGroup
		for group := range 16 { // at once, so that they share commits
			all.Go(func() {
				for begin := group * 100; begin < n; begin += 16 * 100 {
					if _, err := s.Posts.Apply(p.Context(), p.group(begin, min(begin+100, n))); err != nil {
						p.Error(err)
					}
				}
			})
		}
		all.Wait()
	})
}

// group makes posts as people would have written them, one after the other.
func (p *play) group(begin, end int) (changes []table.Change) {
	for i := begin; i < end; i++ {
		at := p.channel.Created.Add(time.Duration(i) * time.Second)
		changes = append(changes, table.Inserting(table.Entity{
			Key: table.Key{Partition: "news", Row: at.Format("20060102T150405.0000000") + fmt.Sprintf("-%026d", i)},
			Properties: map[string]any{
				"Title": fmt.Sprint("title ", i), "Text": "a text that people would write, of the usual length of a post", "UserId": "bob",
				"CreatedOn": at, "Incarnation": string(p.channel.Incarnation),
			},
		}))
	}
	return changes
}

func (p *play) request() {
	if err := NewRequester(p.queue, nil).Delete(p.Context(), p.channel); err != nil {
		p.Fatal(err)
	}
}

// patience is how long a process may say nothing before something must be stuck: a lease that has to end is the
// longest.
const patience = 2 * time.Minute

// run lets processes work, one after the other, until both deletions are done.
func (p *play) run() {
	p.Helper()
	for n, left := 1, *posts; ; n++ {
		die := "saved"
		if n%5 == 2 && left >= twoGroups {
			die = "group"
		}
		last := p.process(die)
		switch last.What {
		case "deleted":
			return
		case "saved":
			p.kills++
			left -= p.pages[len(p.pages)-1].Posts
		case "group":
			p.interrupted++
			left -= twoGroups
		}
		p.release(last) // as the end of the lease would do
	}
}

// twoGroups is how many posts of a page are deleted when a process dies in its midst.
const twoGroups = 200

// process starts a process, and kills it where it stands still, or when it has done everything. It returns what the process
// said last.
func (p *play) process(die string) report {
	p.Helper()
	output := make(chan string, 1000)
	child := killtest.Start(p.T, output, queueVariable+"="+p.location, fileVariable+"="+p.file, dieVariable+"="+die)
	defer child.Kill(p.T)
	for deleted := 0; ; {
		var said report
		select {
		case line := <-output:
			if err := json.Unmarshal([]byte(line), &said); err != nil {
				p.Fatalf("%s: %v", line, err)
			}
		case <-time.After(patience):
			p.Fatalf("a process said nothing for %v; pages so far: %v", patience, p.pages)
		}
		switch said.What {
		case "page":
			p.pages = append(p.pages, said)
		case "late":
			p.late = said
		case "saved", "group":
			return said
		case "deleted":
			if deleted++; deleted == 2 {
				return said
			}
			p.release(p.late)
		}
	}
}

// release makes a message visible.
func (p *play) release(said report) {
	p.Helper()
	if _, err := p.queue.Update(p.Context(), said.Lease, said.Text, 0); err != nil {
		p.Fatal(err)
	}
}

// check checks that everything is gone but the other channel, and that no page was read again without need.
func (p *play) check() {
	p.Helper()
	var full, all, empty int
	seen := map[table.Token]int{}
	for _, page := range p.pages {
		if page.Posts == 0 {
			empty++
			continue
		}
		full++
		all += page.Posts
		seen[page.Token]++
	}
	again := full - len(seen)
	// The empty ones are the pass that finds nothing, the same after the last kill, and the second deletion.
	wantFull := p.interrupted + (*posts-p.interrupted*twoGroups+pageSize-1)/pageSize
	if full != wantFull || again != p.interrupted || empty != 3 || p.kills != full-again+1 {
		p.Errorf("pages: got %d with posts, %d of them again, and %d empty ones, and %d kills; want %d, %d, 3 and %d; %v",
			full, again, empty, p.kills, wantFull, p.interrupted, full-again+1, p.pages)
	}
	if *posts >= 3*pageSize && p.interrupted == 0 {
		p.Error("got no kill in the midst of a page, want some")
	}
	p.open(func(s *channels.Site) {
		for _, left := range []struct {
			what string
			in   table.Store
		}{{"channel", s.Channels}, {"post", s.Posts}} {
			var rows []table.Key
			for e, err := range table.All(p.Context(), left.in, table.Query{}) {
				if err != nil {
					p.Fatal(err)
				}
				rows = append(rows, e.Key)
			}
			if len(rows) != 1 || rows[0].Partition == "news" {
				p.Errorf("%s: got %d, %.3v, want that of the other channel", left.what, len(rows), rows)
			}
		}
	})
	for _, q := range []string{"", poison.Suffix} {
		properties, err := p.queue.Sibling(q).Properties(p.Context())
		if err == nil && properties.Depth != 0 {
			p.Errorf("messages in %s%s: got %d, want none", QueueName, q, properties.Depth)
		}
	}
}
