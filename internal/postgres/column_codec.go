package postgres

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgtype"
)

// columnCodec encodes the columns of group commits, []T and []*T, as array_recv of PostgreSQL reads
// them, into room that is made once. pgx's own codec, which gets everything else, takes several
// allocations for an element, and as much again and again while its buffer grows.
type columnCodec[T any] struct {
	*pgtype.ArrayCodec

	size  func(T) int // of an element without its length
	write func([]byte, T) []byte
}

// registerColumns has a connection's columns of group commits encoded by columnCodec.
func registerColumns(types *pgtype.Map) {
	register(types, pgtype.UUIDArrayOID, func([16]byte) int { return 16 }, func(to []byte, v [16]byte) []byte {
		return append(appendLength(to, len(v)), v[:]...)
	})
	register(types, pgtype.TextArrayOID, func(v string) int { return len(v) }, func(to []byte, v string) []byte {
		return append(appendLength(to, len(v)), v...)
	})
	register(types, pgtype.ByteaArrayOID, func(v []byte) int { return len(v) }, func(to []byte, v []byte) []byte {
		if v == nil {
			return appendNull(to)
		}
		return append(appendLength(to, len(v)), v...)
	})
	register(types, pgtype.Int8ArrayOID, func(int64) int { return 8 }, appendInt64)
	register(types, pgtype.TimestamptzArrayOID, func(time.Time) int { return 8 }, func(to []byte, v time.Time) []byte {
		return appendInt64(to, v.UnixMicro()-microsecondsTo2000)
	})
}

// microsecondsTo2000 is PostgreSQL's epoch.
const microsecondsTo2000 = 946684800 * 1_000_000

func register[T any](types *pgtype.Map, array uint32, size func(T) int, write func([]byte, T) []byte) {
	known, ok := types.TypeForOID(array)
	if !ok {
		return
	}
	codec, ok := known.Codec.(*pgtype.ArrayCodec)
	if !ok {
		return
	}
	types.RegisterType(&pgtype.Type{Name: known.Name, OID: array, Codec: &columnCodec[T]{ArrayCodec: codec, size: size, write: write}})
}

// PlanEncode implements [pgtype.Codec].
func (c *columnCodec[T]) PlanEncode(types *pgtype.Map, oid uint32, format int16, value any) pgtype.EncodePlan {
	if format == pgtype.BinaryFormatCode {
		switch value.(type) {
		case []T, []*T:
			return c
		}
	}
	return c.ArrayCodec.PlanEncode(types, oid, format, value)
}

// Encode implements [pgtype.EncodePlan].
func (c *columnCodec[T]) Encode(value any, to []byte) ([]byte, error) {
	switch column := value.(type) {
	case []T:
		return encodeColumn(to, c.ElementType.OID, column, c.size, c.write), nil
	case []*T:
		return encodeColumn(to, c.ElementType.OID, column, c.sizeOptional, c.writeOptional), nil
	}
	return nil, fmt.Errorf("%T is no column", value)
}

func (c *columnCodec[T]) sizeOptional(v *T) int {
	if v == nil {
		return 0
	}
	return c.size(*v)
}

func (c *columnCodec[T]) writeOptional(to []byte, v *T) []byte {
	if v == nil {
		return appendNull(to)
	}
	return c.write(to, *v)
}

func encodeColumn[T any](to []byte, element uint32, column []T, size func(T) int, write func([]byte, T) []byte) []byte {
	if column == nil {
		return nil
	}
	const header, length = 5 * 4, 4
	room := header
	for _, v := range column {
		room += length + size(v)
	}
	to = slices.Grow(to, room)
	to = appendInts(to, 1, 0, element, uint32(len(column)), 1) //nolint:gosec // what is in memory has no more
	flags := len(to) - header + length
	for _, v := range column {
		at := len(to)
		to = write(to, v)
		if len(to) == at+length && binary.BigEndian.Uint32(to[at:]) == nullLength {
			binary.BigEndian.PutUint32(to[flags:], 1) // there are nulls
		}
	}
	return to
}

// nullLength is the length that says that there is no value.
const nullLength = math.MaxUint32

func appendNull(to []byte) []byte { return appendInts(to, nullLength) }

func appendInt64(to []byte, v int64) []byte {
	return binary.BigEndian.AppendUint64(appendLength(to, 8), uint64(v)) //nolint:gosec // two's complement
}

func appendLength(to []byte, n int) []byte {
	return appendInts(to, uint32(n)) //nolint:gosec // no value is longer: PostgreSQL takes 1 GB
}

func appendInts(to []byte, all ...uint32) []byte {
	for _, n := range all {
		to = binary.BigEndian.AppendUint32(to, n)
	}
	return to
}
