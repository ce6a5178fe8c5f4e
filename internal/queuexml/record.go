package queuexml

import (
	"errors"
	"fmt"
)

// ErrValue means that an element has an invalid value, such as a number with letters.
var ErrValue = errors.New("value not allowed in XML")

// parts are the possible children of an element, with the function that reads each.
type parts map[string]func(s *scanner, name string, empty bool) error

// document parses a whole document with that root element.
func document(doc []byte, root string, content func(s *scanner, name string, empty bool) error) error {
	s, err := open(doc)
	if err != nil {
		return err
	}
	empty, err := s.expect(root)
	if err != nil {
		return err
	}
	if err := content(s, root, empty); err != nil {
		return err
	}
	if err := s.misc(); err != nil {
		return err
	}
	if s.pos != len(s.doc) {
		return s.malformed(s.pos, "unexpected content after the document")
	}
	return nil
}

// record reads an element's content and end tag: the parts in any order, each at most once. It
// removes from parts what it has read.
func (s *scanner) record(name string, empty bool, of parts) error {
	return s.elements(name, empty, func(s *scanner, child string, empty bool) error {
		read, ok := of[child]
		if !ok {
			return fmt.Errorf("%w: unknown or duplicate element before byte %d in %s", ErrUnexpected, s.pos, name)
		}
		delete(of, child)
		return read(s, child, empty)
	})
}

// list reads an element's content and end tag: any number of items.
func (s *scanner) list(name string, empty bool, item string, read func(s *scanner, name string, empty bool) error) error {
	return s.elements(name, empty, func(s *scanner, child string, empty bool) error {
		if child != item {
			return fmt.Errorf("%w: element before byte %d is not %s, the only child of %s", ErrUnexpected, s.pos, item, name)
		}
		return read(s, child, empty)
	})
}

// elements reads an element's content and end tag. It skips white space, comments and processing
// instructions between elements.
func (s *scanner) elements(name string, empty bool, read func(s *scanner, child string, empty bool) error) error {
	if empty {
		return nil
	}
	for {
		if err := s.misc(); err != nil {
			return err
		}
		if s.has("</") {
			return s.end(name)
		}
		child, empty, err := s.start()
		if err != nil {
			return err
		}
		if err := read(s, string(child), empty); err != nil {
			return err
		}
	}
}

// textElement returns a function that reads an element's text into a string.
func textElement(into *string) func(*scanner, string, bool) error {
	return func(s *scanner, name string, empty bool) error {
		if empty {
			*into = ""
			return nil
		}
		text, err := s.text()
		if err != nil {
			return err
		}
		if !s.has("</") {
			return fmt.Errorf("%w: element %s contains more than text", ErrUnexpected, name)
		}
		*into = text
		return s.end(name)
	}
}

// boolean returns a function that reads an element's value true or false.
func boolean(into *bool) func(*scanner, string, bool) error {
	return func(s *scanner, name string, empty bool) error {
		var text string
		if err := textElement(&text)(s, name, empty); err != nil {
			return err
		}
		if text != "true" && text != "false" {
			return fmt.Errorf("%w: %s is neither true nor false", ErrValue, name)
		}
		*into = text == "true"
		return nil
	}
}

// number returns a function that reads an element's non-negative number.
func number(into *int) func(*scanner, string, bool) error {
	return func(s *scanner, name string, empty bool) error {
		var text string
		if err := textElement(&text)(s, name, empty); err != nil {
			return err
		}
		n, ok := parseCount([]byte(text))
		if !ok || n > 1<<31-1 {
			return fmt.Errorf("%w: %s is not a whole number from 0 to 2147483647", ErrValue, name)
		}
		*into = int(n)
		return nil
	}
}

// require refuses an element that lacks a required part. of has the parts that were not read.
func require(name string, of parts, required ...string) error {
	for _, part := range required {
		if _, missing := of[part]; missing {
			return fmt.Errorf("%w: %s has no %s", ErrUnexpected, name, part)
		}
	}
	return nil
}
