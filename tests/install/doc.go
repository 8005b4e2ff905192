// Package install tests what users install: the release that dist/release makes of the last commit, its packages on a
// clean root of Debian, and its container image.
package install
