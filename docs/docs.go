// Package docs has the documents of this directory, so that `goroced docs` shows them where there is no checkout.
package docs

import "embed"

// Files are the documents, NAME.md each, and schemas of what goroced prints as JSON, schemas/NAME.json each.
//
//go:embed *.md schemas/*.json
var Files embed.FS
