package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/config"
)

// The resulting keys for each setting: the data directory's own key is always included.
func TestResolveKEK(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	own, other := filepath.Join(dir, "kek"), filepath.Join(dir, "other")
	again := filepath.Join(dir, ".", "link")
	require.NoError(t, os.WriteFile(own, []byte("own"), 0o600))
	require.NoError(t, os.WriteFile(other, []byte("other"), 0o600))
	require.NoError(t, os.Symlink(own, again))
	for name, c := range map[string]struct{ set, want config.KEKs }{
		"nothing":           {config.KEKs{}, config.KEKs{KEKFile: own}},
		"old files only":    {config.KEKs{KEKOldFiles: []string{other}}, config.KEKs{KEKFile: own, KEKOldFiles: []string{other}}},
		"old values only":   {config.KEKs{KEKOld: []string{"x"}}, config.KEKs{KEKFile: own, KEKOld: []string{"x"}}},
		"Vault's only read": {config.KEKs{KEKVaultAddr: "v", KEKVaultOld: true}, config.KEKs{KEKFile: own, KEKVaultAddr: "v", KEKVaultOld: true}},
		"a value":           {config.KEKs{KEK: "x"}, config.KEKs{KEK: "x", KEKOldFiles: []string{own}}},
		"Vault's":           {config.KEKs{KEKVaultAddr: "v"}, config.KEKs{KEKVaultAddr: "v", KEKOldFiles: []string{own}}},
		"a file":            {config.KEKs{KEKFile: other}, config.KEKs{KEKFile: other, KEKOldFiles: []string{own}}},
		"the own":           {config.KEKs{KEKFile: own}, config.KEKs{KEKFile: own}},
		"the own, linked":   {config.KEKs{KEKFile: again}, config.KEKs{KEKFile: again}},
		"the own is old":    {config.KEKs{KEKFile: other, KEKOldFiles: []string{again}}, config.KEKs{KEKFile: other, KEKOldFiles: []string{again}}},
	} {
		command := &standaloneCommand{Config: config.Config{KEKs: c.set}, Standalone: config.Standalone{DataDir: dir}}
		command.AddOwn(config.OwnKEKFile(command.DataDir))
		require.Equal(t, c.want, command.KEKs, name)
	}
	fresh := &standaloneCommand{Config: config.Config{KEKs: config.KEKs{KEK: "x"}}, Standalone: config.Standalone{DataDir: t.TempDir()}}
	fresh.AddOwn(config.OwnKEKFile(fresh.DataDir))
	require.Equal(t, config.KEKs{KEK: "x"}, fresh.KEKs, "a data directory without a key")
}

// An old key alone is a valid setting: the data directory's own key encrypts.
func TestOldKeysAloneAreValid(t *testing.T) {
	t.Parallel()
	for _, keks := range []config.KEKs{{KEKOldFiles: []string{"x"}}, {KEKOld: []string{"x"}}} {
		command := &standaloneCommand{Config: config.Config{KEKs: keks}, Standalone: config.Standalone{DataDir: t.TempDir()}}
		require.ErrorContains(t, command.RequireKEK(), "EVERPOST_KEK_FILE: is required")
		command.AddOwn(config.OwnKEKFile(command.DataDir))
		require.NoError(t, command.RequireKEK())
		require.Equal(t, config.OwnKEKFile(command.DataDir), command.KEKFile)
	}
}
