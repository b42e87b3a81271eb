package config_test

import (
	"math"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/alecthomas/kong"
	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/config"
	"github.com/everpost/everpost/internal/retry"
)

// TestMain removes the caller's own settings from the environment.
func TestMain(m *testing.M) {
	for _, entry := range os.Environ() {
		if name, _, _ := strings.Cut(entry, "="); strings.HasPrefix(name, "EVERPOST_") {
			_ = os.Unsetenv(name) // fails only for names that no entry has
		}
	}
	m.Run()
}

// defaults are the settings as the command line has them when nothing is set.
type defaults struct {
	config.Config     `embed:""`
	config.Standalone `embed:""`
}

func parsed() (d defaults, flags []*kong.Flag) {
	parser := kong.Must(&d)
	if _, err := parser.Parse(nil); err != nil {
		panic(err)
	}
	return d, parser.Model.Flags
}

func valid() config.Config {
	d, _ := parsed()
	return d.Config
}

func vaultKEK(token, file string, timeout time.Duration) config.KEKs {
	return config.KEKs{KEKVaultAddr: "https://vault", KEKVaultToken: token, KEKVaultTokenFile: file, KEKVaultTimeout: timeout}
}

func TestValidateNamesEachUnusableSetting(t *testing.T) {
	t.Parallel()
	c := valid()
	require.NoError(t, c.Validate())

	for name, spoil := range map[string]func(*config.Config){
		"EVERPOST_LISTEN: must be host:port":                               func(c *config.Config) { c.Listen = "8080" },
		"EVERPOST_ADMIN_LISTEN: has the port \"http\"":                     func(c *config.Config) { c.AdminListen = "localhost:http" },
		"EVERPOST_DATABASE_URL: must be a URL":                             func(c *config.Config) { c.DatabaseURL = "mysql://root:hunter2@db" },
		"EVERPOST_OPERATOR_KEY: must be a secret":                          func(c *config.Config) { c.OperatorKey = "changeme" },
		"EVERPOST_OPERATOR_KEY: must be a secret of 32":                    func(c *config.Config) { c.OperatorKey = strings.Repeat("a", 64) },
		"EVERPOST_OPERATOR_KEY: must be a secret of 32 characters or more": func(c *config.Config) { c.OperatorKey = strings.Repeat("changeme", 4) },
		"EVERPOST_OPERATOR_KEY: must be a secret of":                       func(c *config.Config) { c.OperatorKey = "abcdefabcdefabcdefabcdefabcdefxabc" },
		"EVERPOST_KEK: is set together":                                    func(c *config.Config) { c.KEK, c.KEKFile = "a", "b" },
		"EVERPOST_KEK_VAULT_ADDR: is set together": func(c *config.Config) {
			c.KEKs = vaultKEK("hunter2", "", time.Second)
			c.KEK = "a"
		},
		"EVERPOST_KEK_VAULT_OLD: is set without":                                func(c *config.Config) { c.KEK, c.KEKVaultOld = "a", true },
		"EVERPOST_KEK_VAULT_TOKEN: is set without EVERPOST_KEK_VAULT_ADDR":      func(c *config.Config) { c.KEK, c.KEKVaultToken = "a", "hunter2" },
		"EVERPOST_KEK_VAULT_TOKEN_FILE: is set without EVERPOST_KEK_VAULT_ADDR": func(c *config.Config) { c.KEK, c.KEKVaultTokenFile = "a", "hunter2" },
		"EVERPOST_KEK_VAULT_TOKEN: either it":                                   func(c *config.Config) { c.KEKs = vaultKEK("", "", time.Second) },
		"EVERPOST_KEK_VAULT_TOKEN: either it or":                                func(c *config.Config) { c.KEKs = vaultKEK("hunter2", "file", time.Second) },
		"EVERPOST_KEK_VAULT_TIMEOUT: must be between 100ms and 10s":             func(c *config.Config) { c.KEKs = vaultKEK("hunter2", "", time.Minute) },
		"EVERPOST_RETENTION: must be at least 1h":                               func(c *config.Config) { c.Retention = time.Minute },
		"EVERPOST_DEAD_LETTER_RETENTION: must be at least 1h":                   func(c *config.Config) { c.DeadLetterRetention = 0 },
		"EVERPOST_AUDIT_RETENTION: must be at least 720h":                       func(c *config.Config) { c.AuditRetention = 719 * time.Hour },
		"EVERPOST_START_SLOTS: must be between 1 and 1000":                      func(c *config.Config) { c.StartSlots = 0 },
		"EVERPOST_MAX_DELIVERIES_PER_WORKFLOW: must be between 1 and 200":       func(c *config.Config) { c.MaxPerWorkflow = 201 },
		"EVERPOST_MAX_IN_FLIGHT_PER_HOST: must be between 0 and 10000":          func(c *config.Config) { c.MaxInFlightPerHost = 10_001 },
		"EVERPOST_RECONCILE_EVERY: must be between 1s and 24h":                  func(c *config.Config) { c.ReconcileEvery = 0 },
		"EVERPOST_OPERATOR_TENANT: must be the id of a tenant":                  func(c *config.Config) { c.OperatorTenant = "my tenant" },
		`EVERPOST_ALLOWED_CIDRS: "0.0.0.0/0" allows every address`: func(c *config.Config) {
			c.AllowedCIDRs = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("0.0.0.0/0")}
		},
		`EVERPOST_ALLOWED_CIDRS: "::/0" allows every address`: func(c *config.Config) {
			c.AllowedCIDRs = []netip.Prefix{netip.MustParsePrefix("::/0")}
		},
		`EVERPOST_ALLOWED_CIDRS: "::ffff:10.0.0.0/104" is a range of IPv4`: func(c *config.Config) {
			c.AllowedCIDRs = []netip.Prefix{netip.MustParsePrefix("::ffff:10.0.0.0/104")}
		},
		`EVERPOST_ALLOWED_CIDRS: "10.20.0.7/24" has bits beyond its length; write 10.20.0.0/24`: func(c *config.Config) {
			c.AllowedCIDRs = []netip.Prefix{netip.MustParsePrefix("10.20.0.7/24")}
		},
		`EVERPOST_DENIED_CIDRS: "::ffff:10.0.0.0/104" is a range of IPv4`: func(c *config.Config) {
			c.DeniedCIDRs = []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::ffff:10.0.0.0/104")}
		},
		"EVERPOST_EGRESS_PROXY: must be http://host:port":          func(c *config.Config) { c.EgressProxy = "socks5://out:hunter2@proxy:1080" },
		"EVERPOST_EGRESS_PROXY_NAMES: is set without":              func(c *config.Config) { c.EgressProxyNames = true },
		`EVERPOST_DENIED_HOSTS: "10.0.0.0/8" is not a host name`:   func(c *config.Config) { c.DeniedHosts = []string{"*.example.com", "10.0.0.0/8"} },
		`EVERPOST_NO_PROXY: "http://a" is neither`:                 func(c *config.Config) { c.NoProxy = []string{".example.com", "http://a"} },
		"EVERPOST_TENANT_ENDPOINTS: must be between 0 and 1000000": func(c *config.Config) { c.TenantEndpoints = -1 },
		"EVERPOST_TENANT_REQUESTS_PER_SECOND: must be 0":           func(c *config.Config) { c.TenantRequestsPerSecond = math.NaN() },
		"EVERPOST_QUEUE_LENGTH: must be between 1 and 100000":      func(c *config.Config) { c.QueueLength = 100_001 },
	} {
		c := valid()
		spoil(&c)
		require.ErrorContains(t, c.Validate(), name)
		require.NotContains(t, c.Validate().Error(), "hunter2", "an error does not repeat a secret")
	}
	for _, good := range []config.KEKs{
		{KEKFile: "a", KEKOldFiles: []string{"b"}, KEKOld: []string{"c"}},
		{KEKVaultAddr: "https://vault", KEKVaultToken: "t", KEKVaultTimeout: time.Second, KEKOldFiles: []string{"b"}},
		{KEK: "a", KEKVaultAddr: "https://vault", KEKVaultTokenFile: "t", KEKVaultTimeout: time.Second, KEKVaultOld: true},
	} {
		c := valid()
		c.KEKs = good
		require.NoError(t, c.Validate())
		require.NoError(t, good.RequireKEK())
		require.True(t, c.AnyKEK())
	}
	require.ErrorContains(t, (&config.KEKs{}).RequireKEK(), "EVERPOST_KEK_FILE: is required (a file")
	for _, old := range []config.KEKs{
		{KEKOld: []string{"a"}}, {KEKOldFiles: []string{"a"}},
		{KEKVaultAddr: "https://vault", KEKVaultToken: "t", KEKVaultTimeout: time.Second, KEKVaultOld: true},
	} {
		c := valid()
		c.KEKs = old
		require.NoError(t, c.Validate(), "standalone has a key of its own")
		require.ErrorContains(t, old.RequireKEK(), "EVERPOST_KEK_FILE: is required (a file")
		require.ErrorContains(t, c.RequireCluster(true), "EVERPOST_KEK_FILE: is required (a file")
	}
	require.ErrorContains(t, (&config.KEKs{KEK: "a", KEKFile: "b"}).RequireKEK(), "EVERPOST_KEK: is set together")
	c = config.Config{}
	require.ErrorContains(t, c.RequireCluster(true), "EVERPOST_DATABASE_URL")
	require.ErrorContains(t, c.RequireCluster(true), "EVERPOST_KEK_FILE")
	require.NotContains(t, c.RequireCluster(false).Error(), "EVERPOST_KEK_FILE")
}

func TestTrustedProxiesAreChecked(t *testing.T) {
	t.Parallel()
	for text, wrong := range map[string]string{
		"10.0.0.0/8": "", "10.0.0.7/32": "", "fd00::/8": "",
		"0.0.0.0/0": "0.0.0.0/0 would let every client choose", "::/0": "::/0 would let every client choose",
		"10.0.0.1/8":          "10.0.0.1/8 has bits beyond its length; write 10.0.0.0/8",
		"::ffff:10.0.0.0/104": "::ffff:10.0.0.0/104 is an IPv4 address",
	} {
		c := valid()
		c.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix(text)}
		if wrong == "" {
			require.NoError(t, c.Validate(), text)
		} else {
			require.ErrorContains(t, c.Validate(), "EVERPOST_TRUSTED_PROXIES: "+wrong)
		}
	}
}

func TestLostKeys(t *testing.T) {
	t.Parallel()
	k := config.KEKs{KEKLost: []string{"kek_a2997c449c3991c8", "vault:transit/old", "vault:transit/everpost#2"}}
	for id, lost := range map[string]bool{
		"kek_a2997c449c3991c8": true, "kek_0000000000000000": false, "vault:transit/old#1": true, "vault:transit/old#9": true,
		"vault:transit/everpost#2": true, "vault:transit/everpost#3": false, "": false,
	} {
		require.Equal(t, lost, k.IsLost(id), id)
	}
}

func TestPorts(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]config.Ports{
		"": {}, "any": {Any: true}, "8443": {List: []uint16{8443}}, "8443, 9000": {List: []uint16{8443, 9000}},
	} {
		var got config.Ports
		require.NoError(t, got.UnmarshalText([]byte(text)), text)
		require.Equal(t, want, got, text)
	}
	for _, text := range []string{"0", "65536", "http", "80,", "-1"} {
		var got config.Ports
		require.Error(t, got.UnmarshalText([]byte(text)), text)
	}
}

func TestRetryPolicy(t *testing.T) {
	t.Parallel()
	fast, found := retry.Lookup("fast")
	require.True(t, found)
	changed := fast
	changed.MaxAttempts = 3
	for text, want := range map[string]retry.Policy{
		"": retry.Default(), " ": retry.Default(), "default": retry.Default(), "fast": fast, `{"preset":"fast"}`: fast,
		`{"preset":"fast","max_attempts":3}`: changed,
	} {
		var got config.RetryPolicy
		require.NoError(t, got.UnmarshalText([]byte(text)), text)
		require.Equal(t, want, got.Policy, text)
	}
	for text, message := range map[string]string{
		"fats": `there is no preset "fats"`, `{"base":"0s","cap":"x"}`: `cap: must be a duration such as "30s" or "72h"; base: must be between 1ms and 720h`,
		`{"ambiguous_delays":["1m","0s"]}`: "ambiguous_delays[1]: must be between 1ms and 720h", "{": "is not valid JSON",
	} {
		var got config.RetryPolicy
		require.ErrorContains(t, got.UnmarshalText([]byte(text)), message)
	}
}

func TestUnknownVariables(t *testing.T) {
	t.Parallel()
	require.Equal(t, []string{"EVERPOST_LISTNE", "EVERPOST_SERVICE_HOST"}, config.Unknown(
		[]string{"PATH=/bin", "EVERPOST_SERVICE_HOST=10.0.0.1", "EVERPOST_LISTEN=:1", "EVERPOST_LISTNE=:1", "EVERPOST_TEST_DATABASE_URL=x"},
		[]config.Setting{{Variable: "EVERPOST_LISTEN"}}))
}

func TestEgressProxyURL(t *testing.T) {
	t.Parallel()
	for text, valid := range map[string]bool{
		"http://proxy:3128": true, "http://out:secret@proxy.internal:3128/": true, "http://[fd00::1]:3128": true, "http://10.0.0.1:80": true,
		"": false, "proxy:3128": false, "http://proxy": false, "http://:3128": false,
		"https://proxy:3128": true, "https://proxy": false, "socks5://proxy:1080": false,
		"http://proxy:0": false, "http://proxy:65536": false, "http://proxy:3128/path": false, "http://proxy:3128?a": false, "http://a b:3128": false,
	} {
		c := config.Config{EgressProxy: text}
		require.Equal(t, valid, c.EgressProxyURL() != nil, text)
	}
}

func TestHostEntries(t *testing.T) {
	t.Parallel()
	for entry, want := range map[string]bool{
		"*": true, "example.com": true, ".example.com": true, "*.example.com": true, "example.com:8443": true, "10.0.0.0/8": true, "10.1.2.3": true,
		"10.1.2.3:80": true, "fd00::1": true, "fd00::/8": true, "[fd00::1]": true, "[fd00::1]:443": true, "a_b.internal.": true, "localhost": true,
		"": false, "a b": false, "http://a": false, "a:0": false, "a:65536": false, "a:b": false, "a/b": false, "-a": false, "a..b": false, "[a]:1": false,
	} {
		c := valid()
		c.NoProxy = []string{entry}
		require.Equal(t, want, c.Validate() == nil, entry)
	}
}

func TestHosts(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]config.Hosts{
		"": {}, " ": {}, "any": {Any: true}, "api": {Names: []string{"api"}},
		"API, everpost.internal.,*.example.com": {Names: []string{"api", "everpost.internal", "*.example.com"}},
	} {
		var got config.Hosts
		require.NoError(t, got.UnmarshalText([]byte(text)), text)
		require.Equal(t, want, got, text)
	}
	for _, text := range []string{"http://api", "api:8081", "api,", "*", "*.", "a..b", "-a", "a b", "any,api/"} {
		var got config.Hosts
		require.Error(t, got.UnmarshalText([]byte(text)), text)
	}
}

func TestAllowDev(t *testing.T) {
	t.Parallel()
	loopback := []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}
	private := netip.MustParsePrefix("10.0.0.0/8")
	c := config.Config{AllowedCIDRs: []netip.Prefix{private, loopback[0]}, ExtraPorts: config.Ports{List: []uint16{8443}}}
	before := c
	require.NoError(t, (&config.Standalone{}).AllowDev(&c, nil))
	require.Equal(t, before, c)
	require.NoError(t, (&config.Standalone{Dev: true}).AllowDev(&c, []string{"EVERPOST_ALLOW_HTTP=true", "EVERPOST_ALLOW_HTTP=", "PATH=false"}))
	require.Equal(t, config.Config{AllowHTTP: true, AllowedCIDRs: []netip.Prefix{private, loopback[0], loopback[1]}, ExtraPorts: config.Ports{Any: true}}, c)

	for name, dev := range map[string]func(*config.Config) []string{
		"EVERPOST_EGRESS_PROXY": func(c *config.Config) []string { c.EgressProxy = "http://proxy:3128"; return nil },
		"127.0.0.1/32 in EVERPOST_DENIED_CIDRS": func(c *config.Config) []string {
			c.DeniedCIDRs = []netip.Prefix{private, netip.MustParsePrefix("127.0.0.1/32")}
			return nil
		},
		"EVERPOST_ALLOW_HTTP=0":   func(*config.Config) []string { return []string{"EVERPOST_ALLOW_HTTP=0"} },
		"EVERPOST_ALLOW_HTTP=fal": func(*config.Config) []string { return []string{"EVERPOST_ALLOW_HTTP=false"} },
	} {
		c := valid()
		environ := dev(&c)
		before := c
		require.ErrorContains(t, (&config.Standalone{Dev: true}).AllowDev(&c, environ), "EVERPOST_DEV: is set together with "+name)
		require.Equal(t, before, c, "no setting is changed")
	}
}
