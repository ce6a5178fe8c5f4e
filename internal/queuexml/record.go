package queuexml

import (
	"errors"
	"fmt"
)

// ErrValue means that the text of an element is none that the element may have,
// such as a number with letters in it.
var ErrValue = errors.New("value not allowed in XML")

// parts are the elements that an element may have in it, by name, with what
// reads the content of each.
type parts map[string]func(s *scanner, name string, empty bool) error

// document reads a whole document with that root element.
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
		return s.malformed(s.pos, "something follows the document")
	}
	return nil
}

// record reads the content of an element and its end tag: the parts, in any
// order, each at most once. It takes out of parts what it has read.
func (s *scanner) record(name string, empty bool, of parts) error {
	return s.elements(name, empty, func(s *scanner, child string, empty bool) error {
		read, ok := of[child]
		if !ok {
			return fmt.Errorf("%w: element before byte %d is none that %s has, or there twice", ErrUnexpected, s.pos, name)
		}
		delete(of, child)
		return read(s, child, empty)
	})
}

// list reads the content of an element and its end tag: any number of items.
func (s *scanner) list(name string, empty bool, item string, read func(s *scanner, name string, empty bool) error) error {
	return s.elements(name, empty, func(s *scanner, child string, empty bool) error {
		if child != item {
			return fmt.Errorf("%w: element before byte %d is not %s, which is all that %s has", ErrUnexpected, s.pos, item, name)
		}
		return read(s, child, empty)
	})
}

// elements reads the content of an element and its end tag. What stands between
// elements is skipped if it means nothing.
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

// leaf returns what reads an element of text into a string.
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
			return fmt.Errorf("%w: element %s has more than text in it", ErrUnexpected, name)
		}
		*into = text
		return s.end(name)
	}
}

// boolean returns what reads an element that is true or false.
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

// number returns what reads an element that is a number, not negative.
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

// need refuses an element that lacks one of the parts: of is what is left of
// them.
func require(name string, of parts, required ...string) error {
	for _, part := range required {
		if _, missing := of[part]; missing {
			return fmt.Errorf("%w: %s has no %s", ErrUnexpected, name, part)
		}
	}
	return nil
}
