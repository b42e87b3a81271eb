package deploy

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/programtest"
)

// units are the units by file, with the values of each key.
func units(t *testing.T) map[string]map[string][]string {
	t.Helper()
	all := map[string]map[string][]string{}
	for _, name := range []string{"everpost-standalone.service", "everpost@.service"} {
		keys := map[string][]string{}
		for line := range strings.Lines(read(t, "deploy/systemd/"+name)) {
			line = strings.TrimSpace(line)
			if line == "" || line[0] == '#' || line[0] == '[' {
				continue
			}
			key, value, found := strings.Cut(line, "=")
			require.True(t, found, "%s: %s", name, line)
			keys[key] = append(keys[key], value)
		}
		all[name] = keys
	}
	return all
}

func TestUnits(t *testing.T) {
	t.Parallel()
	for name, keys := range units(t) {
		for key, value := range map[string]string{
			"NoNewPrivileges": "true", "CapabilityBoundingSet": "", "ProtectSystem": "strict", "ProtectHome": "true", "PrivateTmp": "true",
			"SystemCallFilter": "@system-service", "UMask": "0077", "Restart": "on-failure", "TimeoutStopSec": "45",
		} {
			require.Equal(t, []string{value}, keys[key], "%s: %s", name, key)
		}
		require.True(t, keys["User"] != nil || keys["DynamicUser"] != nil, "%s: not as root", name)
		require.Len(t, keys["ExecStart"], 1)
		_, command, _ := strings.Cut(keys["ExecStart"][0], " ")
		if command != "%i" {
			require.Contains(t, commands(), command, name)
		}
		for _, setting := range keys["Environment"] {
			variable, _, _ := strings.Cut(setting, "=")
			require.Contains(t, settings(), variable, name)
		}
	}
	require.Equal(t, []string{"mixed"}, units(t)["everpost-standalone.service"]["KillMode"], "Everpost stops its PostgreSQL itself")
	texts := read(t, "deploy/README.md") + read(t, "deploy/systemd/everpost@.service")
	for _, instance := range regexp.MustCompile(`everpost@(\w+)`).FindAllStringSubmatch(texts, -1) {
		require.Contains(t, commands(), instance[1])
	}
}

// systemd itself reads the units without complaint, and finds little exposed.
func TestSystemdAcceptsTheUnits(t *testing.T) {
	t.Parallel()
	analyze := programtest.Find(t, "systemd-analyze", "systemd")
	for name := range units(t) {
		text := strings.ReplaceAll(read(t, "deploy/systemd/"+name), "/usr/local/bin/everpost", "/bin/true") // it has to be there
		file := filepath.Join(t.TempDir(), strings.Replace(name, "@.", "@worker.", 1))
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		out, err := exec.CommandContext(t.Context(), analyze, "verify", file).CombinedOutput()
		require.NoError(t, err, "%s: %s", name, out)
		require.Empty(t, string(out), name)
		const threshold = "20" // 2.0 of 10
		out, err = exec.CommandContext(t.Context(), analyze, "security", "--offline=true", "--threshold="+threshold, file).CombinedOutput()
		require.NoError(t, err, "%s: %s", name, out)
	}
}
