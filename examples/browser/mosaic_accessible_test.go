package browser

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/chromedp/cdproto/accessibility"
	"github.com/chromedp/chromedp"
)

// Roles of the tree that a screen reader gets.
var (
	controls  = []string{"button", "link", "textbox", "combobox", "slider", "checkbox", "DisclosureTriangle", "application", "progressbar", "image", "img", "complementary", "region"}
	landmarks = []string{"banner", "main", "contentinfo"}
)

func text(v *accessibility.Value) string {
	if v == nil {
		return ""
	}
	var s any
	if json.Unmarshal(v.Value, &s) != nil {
		return ""
	}
	named, _ := s.(string)
	return strings.TrimSpace(named)
}

// level is that of a heading, 0 if it has none.
func level(n *accessibility.Node) int {
	for _, property := range n.Properties {
		if property.Name == "level" {
			var l int
			if json.Unmarshal(property.Value.Value, &l) == nil {
				return l
			}
		}
	}
	return 0
}

// accessible checks what a screen reader gets of the page: that each control, picture and region has a name, that no two buttons have
// the same one, that headings skip no level, and that the landmarks are there, each once.
func (p *page) accessible(what string) {
	p.t.Helper()
	tree, err := chromedp.Call(p.ctx, accessibility.GetFullAXTree, accessibility.GetFullAXTreeParams{})
	if err != nil {
		p.fail("the tree: %v", err)
	}
	count := map[string]int{}
	buttons := map[string]bool{}
	last, named := 0, 0
	for _, n := range tree.Nodes {
		role, name := text(n.Role), text(n.Name)
		if n.Ignored {
			continue
		}
		count[role]++
		switch {
		case role == "heading":
			l := level(n)
			if l == 0 || l > last+1 || name == "" {
				p.t.Errorf("%s: heading %q has level %d after %d", what, name, l, last)
			}
			last = l
			if l == 1 {
				count["h1"]++
			}
		case role == "Canvas":
			p.t.Errorf("%s: a canvas is read out", what)
		case slices.Contains(controls, role) && name == "":
			p.t.Errorf("%s: a %s has no name", what, role)
		case slices.Contains(controls, role):
			named++
		}
		if role == "button" {
			if buttons[name] {
				p.t.Errorf("%s: two buttons are called %q", what, name)
			}
			buttons[name] = true
		}
	}
	if named < 2 { // the tree itself is there
		p.t.Errorf("%s: got %d named controls of %d nodes", what, named, len(tree.Nodes))
	}
	for _, role := range append(landmarks, "h1") {
		if count[role] != 1 {
			p.t.Errorf("%s: got %d of %s, want 1", what, count[role], role)
		}
	}
}
