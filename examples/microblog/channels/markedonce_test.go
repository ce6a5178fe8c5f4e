package channels

import "testing"

// A second deletion does not write to a channel that is marked. If it did, it could change the version between the
// look and the deletion of another worker, which would take the failed precondition for a takeover, and the channel would stay for ever.
func TestAMarkIsWrittenOnce(t *testing.T) {
	s := newSite()
	c := must[Channel](t)(s.Create(t.Context(), "a", "ann"))
	s.mark(t, c)
	before, err := s.Channels.Get(t.Context(), channelKey("a"))
	if err != nil {
		t.Fatal(err)
	}
	s.mark(t, c)
	if after, err := s.Channels.Get(t.Context(), channelKey("a")); err != nil || after.ETag != before.ETag {
		t.Errorf("got version %s, %v; want %s as before", after.ETag, err, before.ETag)
	}
}
