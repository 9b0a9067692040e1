package redisstore

import (
	"encoding/binary"
	"errors"
	"math"
)

// Requests and replies are numbers, as Lua has them, and strings with their length:
// Redis's struct library reads these fastest.

// A packer appends values.
type packer []byte

func (p *packer) int(n int64) {
	*p = binary.LittleEndian.AppendUint64(*p, math.Float64bits(float64(n)))
}

func (p *packer) bool(b bool) {
	if b {
		p.int(1)
	} else {
		p.int(0)
	}
}

func (p *packer) string(s string) {
	*p = append(binary.LittleEndian.AppendUint32(*p, uint32(len(s))), s...)
}

var errUnpack = errors.New("redis has sent a reply that this version cannot read")

// An unpacker reads values from a string. Values that it returns after an error are
// meaningless.
type unpacker struct {
	rest string
	err  error
}

func (u *unpacker) fail() { u.rest, u.err = "", errUnpack }

func (u *unpacker) int() int64 {
	if len(u.rest) < 8 {
		u.fail()
		return 0
	}
	n := math.Float64frombits(binary.LittleEndian.Uint64([]byte(u.rest[:8])))
	u.rest = u.rest[8:]
	return int64(n)
}

// count reads a number of items, which cannot be more than the bytes that follow.
func (u *unpacker) count() int64 {
	n := u.int()
	if n < 0 || n > int64(len(u.rest)) {
		u.fail()
		return 0
	}
	return n
}

func (u *unpacker) bool() bool { return u.int() != 0 }

func (u *unpacker) string() string {
	if len(u.rest) < 4 {
		u.fail()
		return ""
	}
	n := uint64(binary.LittleEndian.Uint32([]byte(u.rest[:4])))
	if uint64(len(u.rest)-4) < n {
		u.fail()
		return ""
	}
	s := u.rest[4 : 4+n]
	u.rest = u.rest[4+n:]
	return s
}
