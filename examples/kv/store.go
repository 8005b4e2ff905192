package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"github.com/goroce/goroce/roce/remote"
)

// The server's memory is an array of slots. A key is in one of `probes` slots in a row, from slot CRC-32(key) modulo
// the number of slots on. A slot is:
//
//	0   lock: 0, or 1 while a writer changes the slot
//	8   CRC-32 of what follows
//	12  length of the key, length of the value; both 0 in a slot that is free
//	16  key, value
const (
	slotLen  = 128
	lockLen  = 8
	headLen  = 16
	maxEntry = slotLen - headLen
	probes   = 8
)

var (
	errNotFound = errors.New("no such key")
	errFull     = errors.New("no free slot near the key's hash; the server needs more slots")
)

// store is the table in the memory of a server.
type store struct{ mem *remote.Memory }

// offset returns where the i-th slot that may have the key is.
func (s store) offset(key string, i int) int64 {
	slots := s.mem.Len() / slotLen
	return (int64(crc32.ChecksumIEEE([]byte(key))) + int64(i)) % slots * slotLen
}

// get looks a key up: one READ, usually.
func (s store) get(ctx context.Context, key string) ([]byte, error) {
	for i := range probes {
		k, v, err := s.read(ctx, s.offset(key, i))
		switch {
		case err != nil:
			return nil, err
		case k == key:
			return v, nil
		case k == "":
			return nil, fmt.Errorf("%q: %w", key, errNotFound)
		}
	}
	return nil, fmt.Errorf("%q: %w", key, errNotFound)
}

// put sets the value of a key. Between put's lock and its unlock no other client changes the slot.
func (s store) put(ctx context.Context, key string, value []byte) error {
	if key == "" || len(key)+len(value) > maxEntry {
		return fmt.Errorf("key of %d and value of %d bytes: at least 1 and at most %d in all", len(key), len(value),
			maxEntry)
	}
	for i := range probes {
		off := s.offset(key, i)
		if err := s.lock(ctx, off); err != nil {
			return err
		}
		k, _, err := s.read(ctx, off)
		mine := err == nil && (k == "" || k == key)
		if mine {
			_, err = s.mem.WriteAt(ctx, encode(key, value), off+lockLen)
		}
		if err := errors.Join(err, s.unlock(ctx, off)); err != nil || mine {
			return err
		}
	}
	return fmt.Errorf("%q: %w", key, errFull)
}

// lock takes the lock of a slot. The atomic is one step for all clients. A client that dies with a lock leaves it
// locked: a real store would write who has it, and until when.
func (s store) lock(ctx context.Context, off int64) error {
	for {
		was, err := s.mem.CompareSwap(ctx, off, 0, 1)
		if err != nil || was == 0 {
			return err
		}
	}
}

func (s store) unlock(ctx context.Context, off int64) error {
	_, err := s.mem.CompareSwap(context.WithoutCancel(ctx), off, 1, 0)
	return err
}

// read reads the entry of a slot, again and again while it is being written. The key of a free slot is "".
func (s store) read(ctx context.Context, off int64) (key string, value []byte, err error) {
	buf := make([]byte, slotLen-lockLen)
	for {
		if _, err := s.mem.ReadAt(ctx, buf, off+lockLen); err != nil {
			return "", nil, err
		}
		if key, value, ok := decode(buf); ok {
			return key, value, nil
		}
	}
}

// encode returns an entry as it is in a slot behind the lock.
func encode(key string, value []byte) []byte {
	buf := make([]byte, headLen-lockLen, headLen-lockLen+len(key)+len(value))
	binary.BigEndian.PutUint16(buf[4:], uint16(len(key)))
	binary.BigEndian.PutUint16(buf[6:], uint16(len(value)))
	buf = append(append(buf, key...), value...)
	binary.BigEndian.PutUint32(buf, crc32.ChecksumIEEE(buf[4:]))
	return buf
}

// decode is false if the checksum is wrong: the entry is partly old and partly new.
func decode(buf []byte) (key string, value []byte, ok bool) {
	sum := binary.BigEndian.Uint32(buf)
	k, v := int(binary.BigEndian.Uint16(buf[4:])), int(binary.BigEndian.Uint16(buf[6:]))
	if sum == 0 && k == 0 {
		return "", nil, true // free
	}
	end := headLen - lockLen + k + v
	if end > len(buf) || crc32.ChecksumIEEE(buf[4:end]) != sum {
		return "", nil, false
	}
	entry := buf[headLen-lockLen : end]
	return string(entry[:k]), entry[k:], true
}
