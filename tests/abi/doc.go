// Package abi tests docs/abi.md: its declarations against those of package roce/daemon/abi and
// qp/ring, and a client in C that knows nothing but them.
package abi
