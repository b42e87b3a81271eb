package postgres

import (
	"encoding/binary"
	"time"

	"github.com/google/uuid"
)

// IDsFrom is the smallest id that can carry the time: 48 bits of milliseconds, the
// rest zero (RFC 9562 §5.7). No UUIDv7 and no delivery's id of an earlier time is
// above it.
func IDsFrom(t time.Time) uuid.UUID {
	var ms [8]byte
	binary.BigEndian.PutUint64(ms[:], uint64(min(max(t.UnixMilli(), 0), 1<<48-1)))
	var id uuid.UUID
	copy(id[:6], ms[2:])
	return id
}

// TimeOf is the time inside an id, to the millisecond: the reverse of IDsFrom.
func TimeOf(id uuid.UUID) time.Time {
	var ms [8]byte
	copy(ms[2:], id[:6])
	return time.UnixMilli(int64(binary.BigEndian.Uint64(ms[:]))).UTC() //nolint:gosec // 48 bits
}
