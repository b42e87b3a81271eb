package deploy

import (
	"encoding/base64"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// newEnv runs deploy/new-env as a user would and parses what it prints.
func newEnv(t *testing.T) map[string]string {
	t.Helper()
	printed, err := exec.CommandContext(t.Context(), "/bin/sh", "./new-env").Output()
	require.NoError(t, err)
	return parse(t, string(printed))
}

func parse(t *testing.T, text string) map[string]string {
	t.Helper()
	values := map[string]string{}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		name, value, found := strings.Cut(line, "=")
		require.True(t, found, line)
		values[name] = value
	}
	return values
}

func TestNewEnvGivesWhatComposeRequires(t *testing.T) {
	t.Parallel()
	required := map[string]bool{}
	for _, match := range regexp.MustCompile(`\$\{([A-Z_]+):\?`).FindAllStringSubmatch(read(t, "docker-compose.yml"), -1) {
		required[match[1]] = true
	}
	values := newEnv(t)
	require.Len(t, values, len(required))
	for name := range required {
		require.Contains(t, values, name)
	}
}

// The file that it writes is for its owner only, whatever the shell's mode; one that is there stays.
func TestNewEnvFileIsPrivate(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), ".env")
	write := func() (string, error) {
		said, err := exec.CommandContext(t.Context(), "/bin/sh", "-c", "umask 000; exec /bin/sh ./new-env "+path).CombinedOutput()
		return string(said), err
	}
	said, err := write()
	require.NoError(t, err, said)
	require.Contains(t, said, "mode 0600")
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode())
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Len(t, parse(t, string(text)), len(newEnv(t)))
	require.NotContains(t, said, parse(t, string(text))["EVERPOST_KEK"])

	said, err = write()
	require.Error(t, err)
	require.Contains(t, said, "is there already")
	again, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, text, again)

	require.NoError(t, os.Remove(path))
	elsewhere := filepath.Join(t.TempDir(), "elsewhere")
	require.NoError(t, os.Symlink(elsewhere, path))
	_, err = write()
	require.Error(t, err)
	require.NoFileExists(t, elsewhere)

	printed := exec.CommandContext(t.Context(), "/bin/sh", "./new-env")
	var stderr strings.Builder
	printed.Stderr = &stderr
	require.NoError(t, printed.Run())
	require.Contains(t, stderr.String(), "mode 0600", "the output says it")
}

func TestNewEnvIsStrongAndFresh(t *testing.T) {
	t.Parallel()
	first, second := newEnv(t), newEnv(t)
	seen := map[string]string{}
	for name, value := range first {
		require.GreaterOrEqual(t, len(value), 32, name)
		require.NotEqual(t, value, second[name], name)
		require.NotContains(t, seen, value, "%s and %s are the same", name, seen[value])
		seen[value] = name
		if name != "EVERPOST_KEK" {
			require.Regexp(t, `^[0-9a-f]+$`, value, "%s goes into URLs and headers as it is", name)
		}
	}
	kek, err := base64.StdEncoding.DecodeString(first["EVERPOST_KEK"])
	require.NoError(t, err)
	require.Len(t, kek, 32)
}
