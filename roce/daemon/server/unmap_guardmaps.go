//go:build guardmaps

package server

func init() { unmap = guard }
