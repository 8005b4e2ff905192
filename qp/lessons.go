package qp

import "embed"

// Lessons holds the protocol scripts of testdata: each explains one rule of the
// protocol and tests it. Package qp/script runs them.
//
//go:embed testdata/*.txt
var Lessons embed.FS
