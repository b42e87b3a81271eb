package vault_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/everpost/everpost/internal/vault"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const where = "acme|ep_1|1"

func kekFrom(t testing.TB, seed byte) *vault.StaticKEK {
	t.Helper()
	key := bytes.Repeat([]byte{seed}, vault.KeyBytes)
	key[0] ^= 0xff
	kek, err := vault.ParseOldKEK(base64.StdEncoding.EncodeToString(key))
	require.NoError(t, err)
	return kek
}

func TestSealAndOpen(t *testing.T) {
	t.Parallel()
	v := vault.New(kekFrom(t, 1))
	rapid.Check(t, func(rt *rapid.T) {
		plaintext, additional := rapid.String().Draw(rt, "plaintext"), rapid.String().Draw(rt, "additional")
		sealed, err := v.Seal(t.Context(), plaintext, additional)
		require.NoError(rt, err)
		require.Len(rt, sealed.WrappedKey, 12+32+16)
		require.Len(rt, sealed.Nonce, 12)
		require.Len(rt, sealed.Ciphertext, len(plaintext)+16)
		opened, err := v.Open(t.Context(), sealed, additional)
		require.NoError(rt, err)
		require.Equal(rt, plaintext, opened)
		_, err = v.Open(t.Context(), sealed, additional+"x")
		require.ErrorIs(rt, err, vault.ErrTampered)
	})
}

func TestEachSealingHasItsOwnKeyAndNonce(t *testing.T) {
	t.Parallel()
	v := vault.New(kekFrom(t, 1))
	a, err := v.Seal(t.Context(), "whsec_x", where)
	require.NoError(t, err)
	b, err := v.Seal(t.Context(), "whsec_x", where)
	require.NoError(t, err)
	require.NotEqual(t, a.Ciphertext, b.Ciphertext)
	require.NotEqual(t, a.WrappedKey, b.WrappedKey)
	require.NotEqual(t, a.Nonce, b.Nonce)
}

// Every bit of every part, each part truncated, and each part empty.
func TestTamperingIsSeen(t *testing.T) {
	t.Parallel()
	v := vault.New(kekFrom(t, 1))
	original, err := v.Seal(t.Context(), "whsec_secret", where)
	require.NoError(t, err)
	parts := map[string]func(*vault.Sealed) *[]byte{
		"wrapped key": func(s *vault.Sealed) *[]byte { return &s.WrappedKey },
		"nonce":       func(s *vault.Sealed) *[]byte { return &s.Nonce },
		"ciphertext":  func(s *vault.Sealed) *[]byte { return &s.Ciphertext },
	}
	for name, part := range parts {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			refuse := func(altered []byte) {
				sealed := original
				*part(&sealed) = altered
				opened, err := v.Open(t.Context(), sealed, where)
				require.ErrorIs(t, err, vault.ErrTampered)
				require.Empty(t, opened)
			}
			source := original
			whole := *part(&source)
			for bit := range len(whole) * 8 {
				altered := bytes.Clone(whole)
				altered[bit/8] ^= 1 << (bit % 8)
				refuse(altered)
			}
			for n := range whole {
				refuse(whole[:n])
			}
			refuse(append(bytes.Clone(whole), 0))
			refuse(nil)
		})
	}
}

func TestSwappedRowsDoNotOpen(t *testing.T) {
	t.Parallel()
	v := vault.New(kekFrom(t, 1))
	a, err := v.Seal(t.Context(), "secret of a", "acme|ep_a|1")
	require.NoError(t, err)
	b, err := v.Seal(t.Context(), "secret of b", "acme|ep_b|1")
	require.NoError(t, err)

	_, err = v.Open(t.Context(), a, "acme|ep_b|1")
	require.ErrorIs(t, err, vault.ErrTampered)
	_, err = v.Open(t.Context(), a, "acme|ep_a|2")
	require.ErrorIs(t, err, vault.ErrTampered)
	mixed := a
	mixed.WrappedKey = b.WrappedKey
	_, err = v.Open(t.Context(), mixed, "acme|ep_a|1")
	require.ErrorIs(t, err, vault.ErrTampered)
}

func TestWrongKEK(t *testing.T) {
	t.Parallel()
	one, two := kekFrom(t, 1), kekFrom(t, 2)
	require.NotEqual(t, one.ID(), two.ID())
	sealed, err := vault.New(one).Seal(t.Context(), "secret", where)
	require.NoError(t, err)

	_, err = vault.New(two).Open(t.Context(), sealed, where)
	require.ErrorIs(t, err, vault.ErrUnknownKEK)
	_, err = vault.New(two).Rewrap(t.Context(), sealed)
	require.ErrorIs(t, err, vault.ErrUnknownKEK)
	sealed.KEKID = two.ID()
	_, err = vault.New(two).Open(t.Context(), sealed, where)
	require.ErrorIs(t, err, vault.ErrTampered)
}

func TestRewrapMovesToTheNewKey(t *testing.T) {
	t.Parallel()
	older, newer := kekFrom(t, 1), kekFrom(t, 2)
	before, err := vault.New(older).Seal(t.Context(), "secret", where)
	require.NoError(t, err)

	both := vault.New(newer, older)
	opened, err := both.Open(t.Context(), before, where)
	require.NoError(t, err, "before the row is rewrapped")
	require.Equal(t, "secret", opened)

	after, err := both.Rewrap(t.Context(), before)
	require.NoError(t, err)
	require.Equal(t, newer.ID(), after.KEKID)
	require.Equal(t, before.Ciphertext, after.Ciphertext)
	opened, err = vault.New(newer).Open(t.Context(), after, where)
	require.NoError(t, err, "without the older key")
	require.Equal(t, "secret", opened)

	current, err := both.Current(t.Context())
	require.NoError(t, err)
	require.Equal(t, newer.ID(), current)
	require.True(t, both.Knows(older.ID()))
	require.False(t, vault.New(newer).Knows(older.ID()))
}

type brokenKEK struct{ vault.KEK }

var errKMS = errors.New("kms away")

func (brokenKEK) ID() string                                           { return "kms" }
func (brokenKEK) Wrap(context.Context, []byte) (string, []byte, error) { return "", nil, errKMS }
func (brokenKEK) Unwrap(context.Context, []byte) ([]byte, error)       { return nil, errKMS }

func TestErrorsOfTheKEKAreReturned(t *testing.T) {
	t.Parallel()
	v := vault.New(brokenKEK{})
	_, err := v.Seal(t.Context(), "secret", where)
	require.ErrorIs(t, err, errKMS)
	_, err = v.Current(t.Context())
	require.ErrorIs(t, err, errKMS)
	_, err = v.Open(t.Context(), vault.Sealed{KEKID: "kms#7"}, where)
	require.ErrorIs(t, err, errKMS, "the id has a version")
	require.NotErrorIs(t, err, vault.ErrTampered, "an outage is not tampering")
}

func TestConcurrentUse(t *testing.T) {
	t.Parallel()
	v := vault.New(kekFrom(t, 1))
	var group sync.WaitGroup
	for range 16 {
		group.Go(func() {
			for range 50 {
				sealed, err := v.Seal(t.Context(), "secret", where)
				if err == nil {
					_, err = v.Open(t.Context(), sealed, where)
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
}

func TestParseKEK(t *testing.T) {
	t.Parallel()
	sum := sha256.Sum256([]byte("of the tests"))
	random := sum[:]
	good := base64.StdEncoding.EncodeToString(random)
	for name, c := range map[string]struct{ text, err string }{
		"good":              {good, ""},
		"with white space":  {" " + good + "\r\n", ""},
		"empty":             {"", "0 bytes instead of 32"},
		"too short":         {base64.StdEncoding.EncodeToString(random[:31]), "31 bytes"},
		"too long":          {base64.StdEncoding.EncodeToString(append(bytes.Clone(random), 1)), "33 bytes"},
		"hexadecimal":       {strings.Repeat("0a", 32), "48 bytes"},
		"not base64":        {"?" + good[1:], "not base64"},
		"zeros":             {base64.StdEncoding.EncodeToString(make([]byte, 32)), "not random: few"},
		"all the same":      {base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{200}, 32)), "not random: few"},
		"two bytes":         {base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{7, 9}, 16)), "not random: few"},
		"half of it, twice": {base64.StdEncoding.EncodeToString(append(bytes.Clone(random[:16]), random[:16]...)), "not random: few"},
		"most of it, again": {base64.StdEncoding.EncodeToString(append(bytes.Clone(random[:24]), random[:8]...)), "not random: it repeats"},
		"counted":           {base64.StdEncoding.EncodeToString(series(0, 1)), "not random: its bytes are a series"},
		"counted down":      {base64.StdEncoding.EncodeToString(series(255, 253)), "not random: its bytes are a series"},
		"a sentence":        {base64.StdEncoding.EncodeToString([]byte("The quick brown fox jumps over 1")), "not random: it is 32 bytes of text"},
		"hex of 16 bytes":   {base64.StdEncoding.EncodeToString([]byte("0123456789abcdef0fedcba987654321")), "not random: few"},
		"a word":            {"passwordpasswordpasswordpasswordpasswordpas=", "not random"},
		"a long word":       {"thequickbrownfoxjumpsoverthelazydogagainang=", "not random"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			kek, err := vault.ParseKEK(c.text)
			if c.err == "" {
				require.NoError(t, err)
				require.Regexp(t, `^kek_[0-9a-f]{16}$`, kek.ID())
				return
			}
			require.ErrorContains(t, err, c.err)
			if len(c.text) > 8 {
				require.NotContains(t, err.Error(), c.text[1:9])
			}
		})
	}
}

// series returns bytes with a constant difference.
func series(first, second byte) []byte {
	key := make([]byte, vault.KeyBytes)
	for i := range key {
		key[i] = first + byte(i)*(second-first)
	}
	return key
}

// A weak key can decrypt, so that it can be replaced; a malformed key cannot.
func TestParseOldKEK(t *testing.T) {
	t.Parallel()
	weak := base64.StdEncoding.EncodeToString(make([]byte, 32))
	kek, err := vault.ParseOldKEK(weak)
	require.NoError(t, err)
	require.Regexp(t, `^kek_`, kek.ID())
	_, err = vault.ParseOldKEK(weak[4:])
	require.ErrorContains(t, err, "29 bytes instead of 32")
	path := filepath.Join(t.TempDir(), "kek")
	require.NoError(t, os.WriteFile(path, []byte(weak+"\n"), 0o600))
	_, err = vault.LoadKEKFile(path)
	require.ErrorIs(t, err, vault.ErrWeakKEK)
	again, err := vault.LoadOldKEKFile(path)
	require.NoError(t, err)
	require.Equal(t, kek.ID(), again.ID())
}

// No random key is refused.
func TestRandomKEKs(t *testing.T) {
	t.Parallel()
	for i := range 2000 {
		key := sha256.Sum256([]byte(strconv.Itoa(i)))
		_, err := vault.ParseKEK(base64.StdEncoding.EncodeToString(key[:]))
		require.NoError(t, err)
	}
}

func TestKEKFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "kek")
	made, err := vault.GenerateKEKFile(path)
	require.NoError(t, err)
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode())

	loaded, err := vault.LoadKEKFile(path)
	require.NoError(t, err)
	require.Equal(t, made.ID(), loaded.ID())
	sealed, err := vault.New(made).Seal(t.Context(), "secret", where)
	require.NoError(t, err)
	opened, err := vault.New(loaded).Open(t.Context(), sealed, where)
	require.NoError(t, err)
	require.Equal(t, "secret", opened)

	before, err := os.ReadFile(path)
	require.NoError(t, err)
	_, err = vault.GenerateKEKFile(path)
	require.ErrorIs(t, err, os.ErrExist)
	after, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, before, after, "an existing key is never replaced")

	left, err := os.ReadDir(filepath.Dir(path))
	require.NoError(t, err)
	require.Len(t, left, 1, "no temporary files are left")

	_, err = vault.LoadKEKFile(path + "x")
	require.ErrorIs(t, err, os.ErrNotExist)
}

func BenchmarkOpen(b *testing.B) {
	v := vault.New(kekFrom(b, 1))
	sealed, err := v.Seal(b.Context(), "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", where)
	require.NoError(b, err)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := v.Open(b.Context(), sealed, where); err != nil {
			b.Fatal(err)
		}
	}
}
