package web

import "embed"

// files are the style, the script and the templates of the pages.
//
//go:embed static templates
var files embed.FS
