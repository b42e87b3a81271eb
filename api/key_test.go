package api

import (
	"crypto/sha256"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/webhook"
)

func TestKeyParsesBack(t *testing.T) {
	t.Parallel()
	id := webhook.NewKeyID()
	text, sum := NewKey(id)
	require.Regexp(t, `^evk_[0-9a-hjkmnp-tv-z]{85}$`, text)
	require.Equal(t, sha256.Sum256([]byte(text)), sum)
	again, sumAgain, err := ParseKey(text)
	require.NoError(t, err)
	require.Equal(t, id, again)
	require.Equal(t, sum, sumAgain)

	other, _ := NewKey(id)
	require.NotEqual(t, text, other, "the random part differs")
}

// A CRC-32 detects every error within 32 consecutive bits, and so every single mistyped character.
func TestParseKeyRefusesEveryMistypedCharacter(t *testing.T) {
	t.Parallel()
	text, _ := NewKey(webhook.NewKeyID())
	for i := range text {
		for _, c := range []byte("0z_A\x00") {
			if text[i] == c {
				continue
			}
			_, _, err := ParseKey(text[:i] + string(c) + text[i+1:])
			require.Error(t, err, "character %d", i)
			require.NotContains(t, err.Error(), text[10:30])
		}
	}
	for _, bad := range []string{"", "evk_", text[:len(text)-1], text + "0", " " + text} {
		_, _, err := ParseKey(bad)
		require.ErrorContains(t, err, "everpost keys create")
	}
}
