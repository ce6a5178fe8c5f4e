package main

import (
	"fmt"
	"strings"

	"github.com/millrace/millrace/codec"
)

// peekedGroup is the part of a message that is a group of jobs.
type peekedGroup struct {
	Jobs   int          `json:"jobs"`
	Done   int          `json:"done"`             // how many need not be handled any more
	Failed int          `json:"failed,omitempty"` // how many failed for good, while others are left
	Items  []peekedItem `json:"items,omitempty"`  // none if the body is stored elsewhere
}

// peekedItem is one job of a group.
type peekedItem struct {
	State string `json:"state"` // "left", "done" or "failed"
	peekedBody
}

// newPeekedGroup returns the group, without its items if the body is stored elsewhere.
func newPeekedGroup(head *codec.Head, body []byte) (*peekedGroup, error) {
	p := &peekedGroup{Jobs: head.Items, Done: head.Done.Len(), Failed: head.Failed.Len()}
	if head.Claim != "" {
		return p, nil
	}
	items, err := codec.DecodeGroup(body, head.Items)
	if err != nil {
		return nil, err
	}
	for i, item := range items {
		state := "left"
		switch {
		case head.Done.Has(i):
			state = "done"
		case head.Failed.Has(i):
			state = "failed"
		}
		p.Items = append(p.Items, peekedItem{state, newPeekedBody(item)})
	}
	return p, nil
}

// about describes the group in a few words.
func (p *peekedGroup) about() string {
	text := fmt.Sprintf("a group of %s", plural(p.Jobs, "job"))
	if p.Done > 0 {
		text += fmt.Sprintf(", %d done", p.Done)
	}
	if p.Failed > 0 {
		text += fmt.Sprintf(", %d failed for good", p.Failed)
	}
	return text
}

// String returns the items, a line for each.
func (p *peekedGroup) String() string {
	lines := make([]string, len(p.Items))
	for i, item := range p.Items {
		lines[i] = fmt.Sprintf("item %d, %s: %s", i, item.State, item)
	}
	return strings.Join(lines, "\n")
}
