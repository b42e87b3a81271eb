package activities

import (
	"crypto/sha256"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestIntact(t *testing.T) {
	t.Parallel()
	sum, empty := sha256.Sum256([]byte("payload")), sha256.Sum256(nil)
	require.True(t, intact([]byte("payload"), sum[:]))
	require.False(t, intact([]byte("paylaod"), sum[:]))
	require.False(t, intact([]byte("payload"), sum[:31]))
	require.False(t, intact([]byte("payload"), nil))
	require.False(t, intact(nil, empty[:]), "no payload at all")
}

// What it costs an attempt to compare its payload, by the payload's KiB.
func BenchmarkIntact(b *testing.B) {
	for _, size := range []int{1, 16, 256} {
		payload := make([]byte, size<<10)
		sum := sha256.Sum256(payload)
		b.Run(strconv.Itoa(size), func(b *testing.B) {
			b.SetBytes(int64(len(payload)))
			for b.Loop() {
				if !intact(payload, sum[:]) {
					b.Fatal("not intact")
				}
			}
		})
	}
}
