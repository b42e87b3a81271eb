package credential_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/credential"
)

func TestClean(t *testing.T) {
	t.Parallel()
	invisible := []string{
		" ", "\n", "\r\n", "\t", "\u00a0", "\ufeff", "\u200b", "\u200c", "\u200d", "\u2060", "\u00ad", "\u2028", "\x00", "\x7f", "\u3000", "\xff\xfe",
	}
	for _, around := range invisible {
		got, err := credential.Clean(around+"evk_key"+around+around, false)
		require.NoError(t, err, "%q", around)
		require.Equal(t, "evk_key", got, "%q", around)
		require.Empty(t, credential.Trim(around))

		for _, phrase := range []bool{false, true} {
			got, err = credential.Clean("secret"+around+"key", phrase)
			if around == " " && phrase {
				require.NoError(t, err)
				require.Equal(t, "secret key", got)
				continue
			}
			require.Error(t, err, "%q", around)
			require.NotContains(t, err.Error(), "secret")
		}
	}
	_, err := credential.Clean("a\u200bb", false)
	require.ErrorContains(t, err, "(U+200B) inside")
	got, err := credential.Clean("pâté-ключ", false)
	require.NoError(t, err)
	require.Equal(t, "pâté-ключ", got)
}
