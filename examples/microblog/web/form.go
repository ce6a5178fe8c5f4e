package web

import (
	"context"
	"errors"
	"mime"
	"net/http"
	"net/url"
	"strings"
)

// maxForm is how many bytes a form may have: a text of 64 KiB in UTF-16 has up to 96 KiB in UTF-8, and
// percent signs make that three times as much.
const maxForm = 512 << 10

// readForm reads the fields of a form, and bounds it.
func readForm(w http.ResponseWriter, r *http.Request) (url.Values, error) {
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || kind != "application/x-www-form-urlencoded" {
		return nil, refuse(http.StatusUnsupportedMediaType, "This address takes forms only.")
	}
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	err = r.ParseForm()
	if large := (*http.MaxBytesError)(nil); errors.As(err, &large) {
		return nil, refuse(http.StatusRequestEntityTooLarge, "That is too much text for a post. Write several.")
	}
	if err != nil {
		return nil, refuse(http.StatusBadRequest, "The form did not arrive whole, or is not one of this page.")
	}
	return r.PostForm, nil
}

// query returns the parameters of an address.
func query(r *http.Request) (url.Values, error) {
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, refuse(http.StatusBadRequest, "This address is damaged. Begin at the list of channels.")
	}
	return values, nil
}

// text returns a text of a field as it was typed: browsers send line breaks as CR LF.
func text(fields url.Values, name string) string {
	return strings.ReplaceAll(fields.Get(name), "\r\n", "\n")
}

// maxFormID bounds the ids of forms that are remembered.
const maxFormID = 64

// submit does what a form asks for, once, and sends the browser to the address that work returns. It is finished if the
// client leaves meanwhile.
func (s *Server) submit(w http.ResponseWriter, r *http.Request, form string, work func(ctx context.Context) (next string, err error)) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), patience)
	defer cancel()
	if form == "" || len(form) > maxFormID {
		form = newForm() // of no page of ours
	}
	next, err := s.once.do(ctx, r.URL.Path+"?"+form, func() (string, error) { return work(ctx) })
	if err != nil {
		return err
	}
	http.Redirect(w, r, next, http.StatusSeeOther)
	return nil
}

// link returns the address of a page with parameters, given as name and value in turn. Empty ones are left out.
func link(path string, parameters ...string) string {
	values := url.Values{}
	for i := 0; i+1 < len(parameters); i += 2 {
		if parameters[i+1] != "" {
			values.Set(parameters[i], parameters[i+1])
		}
	}
	return path + "?" + values.Encode()
}
