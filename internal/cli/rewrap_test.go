package cli_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/config"
	"github.com/everpost/everpost/internal/signature"
)

const newKEK = "DAT5l0nhOEf7qT3dayoog75S/YmcSpIPEmOtQEpayp0="

// An operator's change from one key to another.
func TestKeysRewrap(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for range 3 {
		b.ok("endpoints", "create", "https://example.com/hook", "--header=X-Key: canary")
	}
	dir := t.TempDir()
	write := func(name, key string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(key+"\n"), 0o600))
		return path
	}
	older, newer := write("older", "K4JF8A06nx3tRLH7jGEAk8DIEogd7avty/nxsMJyLIk="), write("newer", newKEK)
	database := "--database-url=" + b.store.Pool().Config().ConnString()

	code, _, stderr := run(t, nil, "keys", "rewrap", database)
	require.Equal(t, 2, code)
	require.Contains(t, stderr, "EVERPOST_KEK_FILE: is required")
	code, _, stderr = run(t, nil, "keys", "rewrap", database, "--kek-file="+dir+"/none")
	require.Equal(t, 1, code)
	require.Contains(t, stderr, "EVERPOST_KEK_FILE: ")

	// Without the older key nothing is changed, and the output says so.
	code, stdout, stderr := run(t, nil, "keys", "rewrap", database, "--kek-file="+newer)
	require.Equal(t, 1, code)
	require.Contains(t, stdout, "NOT KNOWN  signing secrets  3\n")
	require.Contains(t, stdout, "0 rows rewrapped\n")
	require.Contains(t, stderr, "6 rows cannot be decrypted with the keys that are set")
	require.NotContains(t, stdout+stderr, "canary")

	code, stdout, stderr = run(t, nil, "keys", "rewrap", database, "--kek-file="+newer, "--kek-old-files="+older, "--check")
	require.Zero(t, code, stderr)
	require.Regexp(t, `^KEY +STATE +ENCRYPTS +ROWS\nkek_[0-9a-f]{16}  old    signing secrets  3\nkek_[0-9a-f]{16}  old    headers          3\n$`, stdout)

	code, stdout, stderr = run(t, nil, "keys", "rewrap", database, "--kek-file="+newer, "--kek-old-files="+older)
	require.Zero(t, code, stderr)
	require.Contains(t, stdout, "signing secrets: 3 rewrapped, 0 to go\nheaders: 3 rewrapped, 0 to go\n")
	require.Regexp(t, `kek_[0-9a-f]{16}  current  signing secrets  3\nkek_[0-9a-f]{16}  current  headers          3\n6 rows rewrapped\n`, stdout)
	require.True(t, strings.HasSuffix(stdout, "6 rows rewrapped\nno older key is needed any more\n"), stdout)

	code, stdout, stderr = run(t, nil, "keys", "rewrap", database, "--kek="+newKEK)
	require.Zero(t, code, stderr)
	require.True(t, strings.HasSuffix(stdout, "0 rows rewrapped\nno older key is needed any more\n"), stdout)
}

func TestRotateSecretAndSchemes(t *testing.T) {
	t.Parallel()
	b := setup(t)
	made := b.json("endpoints", "create", "https://example.com/hook", "--signature=v1a")
	id := made["id"].(string)
	private, err := signature.ParseSecret(made["secret"].(string))
	require.NoError(t, err)
	public, ok := private.Public()
	require.True(t, ok)
	require.Equal(t, public.String(), made["public_key"])

	rotated := b.json("endpoints", "rotate-secret", "--grace=1h", id)
	require.NotEqual(t, made["public_key"], rotated["public_key"])
	require.NotNil(t, rotated["old_secrets_until"])
	require.Equal(t, rotated["secret"], strings.TrimSpace(b.ok("endpoints", "secret", id)))
	require.Equal(t, rotated["public_key"], b.json("endpoints", "get", id)["public_key"])

	path := filepath.Join(t.TempDir(), "secret")
	require.NoError(t, os.WriteFile(path, []byte(privateKey+"\n"), 0o600))
	rotated = b.json("endpoints", "rotate-secret", "--grace=0s", "--secret=@"+path, id)
	require.Equal(t, map[string]any{"secret": privateKey, "public_key": publicKey, "old_secrets_until": nil, "secret_read": "base64, 64 bytes"}, rotated)

	require.Nil(t, b.json("endpoints", "update", "--signature=hex", id)["public_key"])
	require.Contains(t, b.ok("endpoints", "secret", id), "whsec_")
	piped := call{args: at(b.url, "endpoints", "rotate-secret", "--secret=-", id), stdin: strings.NewReader("whsk_canary\n")}.run(t)
	require.Equal(t, 4, piped.code)
	require.Contains(t, piped.stderr, "secret: must be base64 after its prefix")
	require.NotContains(t, piped.stderr, "canary")
	refused := b.run("endpoints", "rotate-secret", "--secret="+secretText, id)
	require.Equal(t, 2, refused.code)
	require.Contains(t, refused.stderr, "--secret: must be @file or -")
	require.NotContains(t, refused.stderr, secretText)
}

// Kong calls every method named Validate, of embedded settings too: settings without a key
// must pass, because standalone creates a key when none is set.
func TestSettingsWithoutKeyAreValid(t *testing.T) {
	t.Parallel()
	var grammar struct {
		Standalone struct {
			config.Config     `embed:""`
			config.Standalone `embed:""`
		} `cmd:""`
	}
	parser, err := kong.New(&grammar, kong.Exit(func(int) {}))
	require.NoError(t, err)
	_, err = parser.Parse([]string{"standalone"})
	require.NoError(t, err)
	require.False(t, grammar.Standalone.AnyKEK())
}
