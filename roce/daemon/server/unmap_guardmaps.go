//go:build guardmaps

package server

func init() { unmap, faultsEnd = guard, true }
