package web

import (
	"fmt"
	"net/http"
	"path"
)

// questionPage is the data of question.html, which asks before something is deleted. It works without scripts.
type questionPage struct {
	chrome
	Ask    string
	Facts  []string // what will happen
	Action string   // the address to post to; "" if it is not possible now
	Back   string   // the address of the page that it belongs to
}

// askDeleteJob is GET /jobs/{id}/delete.
func (s *Server) askDeleteJob(w http.ResponseWriter, r *http.Request) error {
	j, err := s.job(r)
	if err != nil {
		return err
	}
	now := j.current()
	facts := []string{"The mosaic and the picture that it is made of are removed from this machine for good."}
	if !now.State.ended() {
		facts = append(facts, "It is still being made. That ends too.")
	}
	page := "/jobs/" + now.ID
	s.ask(w, questionPage{Ask: fmt.Sprintf("Delete the mosaic of “%s”?", now.Name), Facts: facts, Action: page + "/delete", Back: page})
	return nil
}

// askDeleteLibrary is GET /libraries/{key}/delete.
func (s *Server) askDeleteLibrary(w http.ResponseWriter, r *http.Request) error {
	from := s.libraries.find(r.PathValue("key"))
	if from == nil || !from.Uploaded {
		return errNoLibrary
	}
	page := questionPage{Ask: fmt.Sprintf("Delete the library “%s”?", from.Name), Back: "/"}
	finished, broken, waits := s.shelf.madeOf(from.Key)
	if waits != "" {
		page.Facts = []string{fmt.Sprintf("The mosaic of “%s” still needs its photographs. The library can be deleted as soon as the tiles of that mosaic are chosen.", waits)}
		s.ask(w, page)
		return nil
	}
	size := s.shelf.size(path.Join(librariesFolder, from.Key))
	page.Action = "/libraries/" + from.Key + "/delete"
	page.Facts = []string{fmt.Sprintf("Its photographs (%s) are removed from this machine for good.", bytesText(size))}
	if finished > 0 {
		page.Facts = append(page.Facts, mosaicsText(finished)+" made of it: you can still look at what is made, zoom it and download it, but a tile of it no longer shows its photograph.")
	}
	if broken > 0 {
		page.Facts = append(page.Facts, mosaicsText(broken)+" to be made of it and failed: that cannot be tried again with these tiles.")
	}
	s.ask(w, page)
	return nil
}

func mosaicsText(n int) string {
	if n == 1 {
		return "One mosaic was"
	}
	return fmt.Sprintf("%d mosaics were", n)
}

func (s *Server) ask(w http.ResponseWriter, page questionPage) {
	page.chrome = s.chrome(page.Ask)
	s.render(w, http.StatusOK, "question", page)
}
