//go:build !amd64

package wire

const canFold = false

func fold(uint64, []byte) uint32 { panic("wire: fold without canFold") }
