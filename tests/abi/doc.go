// Package abi tests docs/abi.md: it compares the declarations with packages roce/daemon/abi and
// qp/ring, and runs a client in C that uses only these declarations.
package abi
