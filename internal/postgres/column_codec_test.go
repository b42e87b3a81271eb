package postgres_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/everpost/everpost/internal/postgres"
	"github.com/everpost/everpost/internal/postgres/storetest"
)

// What columnCodec writes is, byte for byte, what pgx writes.
func TestColumnCodec(t *testing.T) {
	t.Parallel()
	instant := rapid.Custom(func(t *rapid.T) time.Time {
		at := time.Unix(rapid.Int64Range(-1e11, 2e11).Draw(t, "seconds"), rapid.Int64Range(0, 999_999_999).Draw(t, "nanoseconds"))
		return at.In(time.FixedZone("", rapid.IntRange(-12, 12).Draw(t, "zone")*3600))
	})
	id := rapid.Custom(func(t *rapid.T) (id [16]byte) {
		copy(id[:], rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "id"))
		return id
	})
	raw := rapid.OneOf(rapid.Just([]byte(nil)), rapid.SliceOf(rapid.Byte()))
	for name, c := range map[string]struct {
		array  uint32
		column *rapid.Generator[any]
	}{
		"ids":              {pgtype.UUIDArrayOID, columnOf(id)},
		"texts":            {pgtype.TextArrayOID, columnOf(rapid.String())},
		"bytes":            {pgtype.ByteaArrayOID, columnOf(raw)},
		"numbers":          {pgtype.Int8ArrayOID, columnOf(rapid.Int64())},
		"times":            {pgtype.TimestamptzArrayOID, columnOf(instant)},
		"optional texts":   {pgtype.TextArrayOID, columnOf(rapid.Ptr(rapid.String(), true))},
		"optional numbers": {pgtype.Int8ArrayOID, columnOf(rapid.Ptr(rapid.Int64(), true))},
		"optional times":   {pgtype.TimestamptzArrayOID, columnOf(rapid.Ptr(instant, true))},
		"an array once":    {pgtype.TextArrayOID, rapid.Just(postgres.Each("t text", func(v string) string { return v }).Values([]string{"a", "a"}))},
		"other numbers":    {pgtype.Int8ArrayOID, columnOf(rapid.Int())},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ours, theirs := pgtype.NewMap(), pgtype.NewMap()
			postgres.RegisterColumns(ours)
			requireOurs(t, ours, c.array)
			rapid.Check(t, func(rt *rapid.T) {
				value := c.column.Draw(rt, "column")
				before := rapid.SliceOfN(rapid.Byte(), 0, 8).Draw(rt, "before")
				want, err := theirs.Encode(c.array, pgtype.BinaryFormatCode, value, bytes.Clone(before))
				require.NoError(rt, err)
				got, err := ours.Encode(c.array, pgtype.BinaryFormatCode, value, bytes.Clone(before))
				require.NoError(rt, err)
				require.Equal(rt, want, got)
			})
		})
	}
}

func requireOurs(t *testing.T, types *pgtype.Map, array uint32) {
	t.Helper()
	known, ok := types.TypeForOID(array)
	require.True(t, ok)
	_, isTheirs := known.Codec.(*pgtype.ArrayCodec)
	require.False(t, isTheirs)
}

// The group commits' connections have it.
func TestGroupCommitsEncodeTheirColumns(t *testing.T) {
	t.Parallel()
	s, _ := storetest.SetupStore(t)
	for _, pool := range []*pgxpool.Pool{s.Intake, s.Writer} {
		require.NoError(t, pool.AcquireFunc(t.Context(), func(conn *pgxpool.Conn) error {
			requireOurs(t, conn.Conn().TypeMap(), pgtype.ByteaArrayOID)
			return nil
		}))
	}
}

// columnOf draws lists, the absent one included.
func columnOf[T any](of *rapid.Generator[T]) *rapid.Generator[any] {
	return rapid.Custom(func(t *rapid.T) any {
		if rapid.IntRange(0, 9).Draw(t, "absent") == 0 {
			return []T(nil)
		}
		return rapid.SliceOf(of).Draw(t, "values")
	})
}

// The buffer of a large column is made once, of its size.
func TestColumnCodecMakesItsRoomOnce(t *testing.T) {
	t.Parallel()
	types := pgtype.NewMap()
	postgres.RegisterColumns(types)
	payloads := make([][]byte, 100)
	for i := range payloads {
		payloads[i] = make([]byte, 1<<10)
	}
	encoded, err := types.Encode(pgtype.ByteaArrayOID, pgtype.BinaryFormatCode, payloads, nil)
	require.NoError(t, err)
	require.Less(t, cap(encoded), len(encoded)+8<<10, "of the next size that the runtime has")
}
