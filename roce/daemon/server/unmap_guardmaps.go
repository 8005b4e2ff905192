//go:build guardmaps

package server

func init() { GuardMappings() }
