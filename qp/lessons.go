package qp

import "embed"

// Lessons holds the protocol scripts of testdata: each tells one rule of the
// protocol and is the test of it. Package qp/script runs them.
//
//go:embed testdata/*.txt
var Lessons embed.FS
