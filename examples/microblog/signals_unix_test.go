//go:build unix

package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/millrace/millrace/examples/internal/cli"
	"github.com/millrace/millrace/examples/internal/plainlog"
	"github.com/millrace/millrace/examples/microblog/channels"
	"github.com/millrace/millrace/examples/microblog/roles"
	"github.com/millrace/millrace/internal/azuritetest"
)

// Ctrl-C and SIGTERM end the program well, and nothing is left.
func TestASignalEndsTheProgram(t *testing.T) {
	for _, s := range []os.Signal{os.Interrupt, syscall.SIGTERM} {
		tmp := t.TempDir()
		r := process(t, []string{"TMPDIR=" + tmp}, "-addr", "127.0.0.1:0")
		r.address()
		r.signal(s)
		if status := r.wait(); status != cli.StatusDone || strings.Count(r.out.String(), "\n") != 1 {
			t.Errorf("%v: got status %d, %q", s, status, r.out)
		}
		if left := names(t, tmp); len(left) != 0 {
			t.Errorf("%v: left: %q", s, left)
		}
	}
}

func TestASignalEndsTheDemonstration(t *testing.T) {
	tmp := t.TempDir()
	r := process(t, []string{"TMPDIR=" + tmp}, "demo", "-posts", "2000")
	r.until("is marked|has put its deletion")
	r.signal(os.Interrupt)
	if status := r.wait(); status != cli.StatusFailed || !strings.HasSuffix(r.out.String(), "\nmicroblog: "+errStopped.Error()+"\n") {
		t.Errorf("got status %d, %q", status, r.out)
	}
	if left := names(t, tmp); len(left) != 0 {
		t.Errorf("left: %q", left)
	}
}

// T-15: a worker is killed when it has marked the channel. The program that runs next on the same data goes on.
func TestADeletionGoesOnAfterAKill(t *testing.T) {
	t.Parallel()
	data := filepath.Join(t.TempDir(), "data")
	s, err := openFolder(data)
	if err != nil {
		t.Fatal(err)
	}
	c, err := s.site.Create(t.Context(), "Mills", "Ann")
	if err == nil {
		err = writeMany(t.Context(), s.site, c, 150)
	}
	if err == nil {
		err = roles.NewRequester(s.deletions, nil).Delete(t.Context(), c)
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := s.close(); err != nil {
		t.Fatal(err)
	}
	killed := process(t, nil, victim, "-data", data, "-after", groupStep+":1")
	killed.wait()
	if said := killed.out.String(); said != dying+"\n" {
		t.Fatalf("the worker said %q", said)
	}
	if s, err = openFolder(data); err != nil {
		t.Fatal(err)
	}
	if left, err := count(t.Context(), s); left != 50 || err != nil {
		t.Errorf("the worker that was killed left %d posts, %v; want 50", left, err)
	}
	out := newOutput()
	ctx, stop := context.WithCancel(t.Context())
	program := &server{addr: "127.0.0.1:0", role: bothRoles, stdout: out, logger: plainlog.New(out)}
	played := make(chan error, 1)
	go func() { played <- program.play(ctx, s) }() // waited for below
	azuritetest.Until(t, "all posts are deleted", func() bool {
		if _, _, _, err := s.site.Page(t.Context(), "Mills", "", 10); !errors.Is(err, channels.ErrNoChannel) {
			t.Errorf("readers see the channel: %v", err)
		}
		left, err := count(t.Context(), s)
		return left == 0 && err == nil
	})
	stop()
	if err := <-played; err != nil {
		t.Error(err)
	}
	if err := s.close(); err != nil {
		t.Error(err)
	}
}

// The demonstration, with one kill.
func TestDemonstration(t *testing.T) {
	if testing.Short() {
		t.Skip("plays for seconds")
	}
	t.Parallel()
	out := newOutput()
	d := &demo{posts: minPosts, deaths: allDeaths[3:], stdout: out}
	if err := d.Run(t.Context()); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, want := range []string{"killed when the channel was deleted and the message was not: 0 posts left", "finds nothing to do", "The new channel has its one post"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("output: got %s, want %q", out, want)
		}
	}
	if left := names(t, filepath.Dir(d.folder)); strings.Contains(strings.Join(left, " "), filepath.Base(d.folder)) {
		t.Errorf("the folder %s is left", d.folder)
	}
}
