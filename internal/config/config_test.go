package config_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/config"
)

func valid() config.Config {
	return config.Config{
		Listen: "127.0.0.1:0", AdminListen: ":8081", Retention: time.Hour, DeadLetterRetention: time.Hour, StartSlots: 1,
		MaxPerWorkflow: 1, NearRetry: time.Second, ReconcileEvery: time.Second, QueueLength: 1, LogLevel: "info",
	}
}

func TestValidateNamesEachUnusableSetting(t *testing.T) {
	t.Parallel()
	c := valid()
	require.NoError(t, c.Validate())

	for name, spoil := range map[string]func(*config.Config){
		"EVERPOST_LISTEN: must be host:port":                              func(c *config.Config) { c.Listen = "8080" },
		"EVERPOST_ADMIN_LISTEN: has the port \"http\"":                    func(c *config.Config) { c.AdminListen = "localhost:http" },
		"EVERPOST_DATABASE_URL: must be a URL":                            func(c *config.Config) { c.DatabaseURL = "mysql://root:hunter2@db" },
		"EVERPOST_OPERATOR_KEY: must be a secret":                         func(c *config.Config) { c.OperatorKey = "changeme" },
		"EVERPOST_OPERATOR_KEY: must be a secret of at least":             func(c *config.Config) { c.OperatorKey = strings.Repeat("a", 64) },
		"EVERPOST_KEK: is set together":                                   func(c *config.Config) { c.KEK, c.KEKFile = "a", "b" },
		"EVERPOST_RETENTION: must be at least 1h":                         func(c *config.Config) { c.Retention = time.Minute },
		"EVERPOST_DEAD_LETTER_RETENTION: must be at least 1h":             func(c *config.Config) { c.DeadLetterRetention = 0 },
		"EVERPOST_START_SLOTS: must be between 1 and 1000":                func(c *config.Config) { c.StartSlots = 0 },
		"EVERPOST_MAX_DELIVERIES_PER_WORKFLOW: must be between 1 and 200": func(c *config.Config) { c.MaxPerWorkflow = 201 },
		"EVERPOST_RECONCILE_EVERY: must be between 1s and 24h":            func(c *config.Config) { c.ReconcileEvery = 0 },
		"EVERPOST_NEAR_RETRY: must be between 1s and 1h":                  func(c *config.Config) { c.NearRetry = time.Millisecond },
		"EVERPOST_OPERATOR_TENANT: must be the id of a tenant":            func(c *config.Config) { c.OperatorTenant = "my tenant" },
		"EVERPOST_QUEUE_LENGTH: must be between 1 and 100000":             func(c *config.Config) { c.QueueLength = 100_001 },
	} {
		c := valid()
		spoil(&c)
		require.ErrorContains(t, c.Validate(), name)
		require.NotContains(t, c.Validate().Error(), "hunter2", "an error repeats no secret")
	}
	c = config.Config{}
	require.ErrorContains(t, c.RequireCluster(true), "EVERPOST_DATABASE_URL")
	require.ErrorContains(t, c.RequireCluster(true), "EVERPOST_KEK_FILE")
	require.NotContains(t, c.RequireCluster(false).Error(), "EVERPOST_KEK_FILE")
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

func TestUnknownVariables(t *testing.T) {
	t.Parallel()
	require.Equal(t, []string{"EVERPOST_LISTNE", "EVERPOST_SERVICE_HOST"}, config.Unknown(
		[]string{"PATH=/bin", "EVERPOST_SERVICE_HOST=10.0.0.1", "EVERPOST_LISTEN=:1", "EVERPOST_LISTNE=:1", "EVERPOST_TEST_DATABASE_URL=x"},
		map[string]bool{"EVERPOST_LISTEN": true}))
}
