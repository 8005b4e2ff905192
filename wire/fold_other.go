//go:build !amd64

package wire

const canFold = false

func foldCRC(uint64, []byte) uint32 { panic("wire: this processor cannot fold") }

func foldShort(*[foldMost]uint32, []byte, int, int) {
	panic("wire: this processor cannot fold")
}
