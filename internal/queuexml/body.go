package queuexml

import "fmt"

// ParseBody parses the body of a put or an update, a QueueMessage with a MessageText, and returns
// the text. The error is [ErrMalformed] or [ErrUnexpected] and never contains the text. The
// caller limits the size.
func ParseBody(doc []byte) (string, error) {
	s, err := open(doc)
	if err != nil {
		return "", err
	}
	if empty, err := s.expect("QueueMessage"); err != nil {
		return "", err
	} else if empty {
		return "", fmt.Errorf("%w: QueueMessage has no MessageText", ErrUnexpected)
	}
	if err := s.misc(); err != nil {
		return "", err
	}
	if s.has("</") {
		return "", fmt.Errorf("%w: QueueMessage has no MessageText", ErrUnexpected)
	}
	empty, err := s.expect("MessageText")
	if err != nil {
		return "", err
	}
	var text string
	if !empty {
		if text, err = s.text(); err != nil {
			return "", err
		}
		if !s.has("</") {
			return "", fmt.Errorf("%w: MessageText contains an element; escape the text", ErrUnexpected)
		}
		if err := s.end("MessageText"); err != nil {
			return "", err
		}
	}
	if err := s.misc(); err != nil {
		return "", err
	}
	if s.has("<") && !s.has("</") {
		return "", fmt.Errorf("%w: QueueMessage contains more than a MessageText", ErrUnexpected)
	}
	if err := s.end("QueueMessage"); err != nil {
		return "", err
	}
	if err := s.misc(); err != nil {
		return "", err
	}
	if s.pos != len(s.doc) {
		return "", s.malformed(s.pos, "unexpected content after the document")
	}
	return text, nil
}

// expect reads the start tag of an element with this name.
func (s *scanner) expect(name string) (empty bool, err error) {
	at := s.pos
	found, empty, err := s.start()
	if err != nil {
		return false, err
	}
	if string(found) != name {
		return false, fmt.Errorf("%w: element at byte %d is not %s", ErrUnexpected, at, name)
	}
	return empty, nil
}
