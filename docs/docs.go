// Package docs has the documents of this directory, so that `goroced docs` shows them where there is no checkout.
package docs

import "embed"

// Files are the documents, NAME.md each.
//
//go:embed *.md
var Files embed.FS
