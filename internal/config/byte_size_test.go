package config_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/config"
)

func TestSizes(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]config.ByteSize{
		"0": 0, "262144": 256 << 10, "256KiB": 256 << 10, "256 KiB": 256 << 10, "4MiB": 4 << 20, "1024MiB": 1 << 30,
	} {
		var got config.ByteSize
		require.NoError(t, got.UnmarshalText([]byte(text)), text)
		require.Equal(t, want, got, text)
	}
	for _, text := range []string{"", "KiB", "1kb", "1KB", "-1", "1.5MiB", "4GiB", "9999999999", "999999999MiB", "1MiBKiB"} {
		var got config.ByteSize
		require.ErrorContains(t, got.UnmarshalText([]byte(text)), "is not a number of bytes", text)
	}
}
