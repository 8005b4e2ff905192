// Package install tests what users install: the release that dist/release makes of the last commit, its packages on
// clean roots of Debian and Ubuntu, and its container image.
package install
