package config_test

import (
	"fmt"
	"net/netip"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/config"
)

// Every setting is shown, without what is secret.
func TestShown(t *testing.T) {
	t.Parallel()
	c := config.Config{
		Listen: "127.0.0.1:0", DatabaseURL: "postgres://u:canary@db/everpost", OperatorKey: "the canary", EgressProxy: "http://u:canary@proxy:3128",
		AdminHosts: config.Hosts{Any: true}, ExtraPorts: config.Ports{List: []uint16{8443, 9443}}, AllowHTTP: true, Retention: 72 * time.Hour,
		AllowedCIDRs: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/8")}, DeniedHosts: []string{"a.example", "b.example"},
	}
	c.ConsoleURL = "https://u:canary@hooks.example/?token=canary#canary"
	c.KEKOld, c.KEKFile, c.KEKVaultToken, c.KEKVaultAddr = []string{"canary"}, "kek", "canary", "https://%zz:canary@vault.example"
	shown := config.Shown(c)
	require.NotContains(t, fmt.Sprint(shown), "canary")
	whole, err := filepath.Abs("kek")
	require.NoError(t, err)
	for name, want := range map[string]string{
		"EVERPOST_LISTEN": "127.0.0.1:0", "EVERPOST_DATABASE_URL": config.Secret, "EVERPOST_KEK_OLD": config.Secret, "EVERPOST_KEK": "",
		"EVERPOST_ADMIN_HOSTS": "any", "EVERPOST_EXTRA_PORTS": "8443,9443", "EVERPOST_ALLOW_HTTP": "true", "EVERPOST_RETENTION": "72h0m0s",
		"EVERPOST_ALLOWED_CIDRS": "10.0.0.0/8,fd00::/8", "EVERPOST_DENIED_HOSTS": "a.example,b.example", "EVERPOST_CONSOLE_URL": "https://hooks.example/",
		"EVERPOST_KEK_FILE": whole, "EVERPOST_KEK_VAULT_ADDR": config.Secret,
	} {
		require.Equal(t, want, shown[name], name)
	}
	for _, s := range config.Declared(config.Config{}) {
		require.Contains(t, shown, s.Variable)
	}
}
