package deploy

import (
	"encoding/base64"
	"os/exec"
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
	values := map[string]string{}
	for line := range strings.Lines(string(printed)) {
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
