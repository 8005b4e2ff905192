//go:build !amd64

package wire

import "hash/crc32"

// update advances the CRC register over b.
func update(crc uint32, b []byte) uint32 { return ^crc32.Update(^crc, crc32.IEEETable, b) }
