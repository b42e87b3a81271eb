package config_test

import (
	"reflect"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/config"
)

// Keys, secrets and addresses with passwords are trimmed of what is invisible, and refused by name with some inside.
func TestCredentialsAreTrimmed(t *testing.T) {
	t.Parallel()
	const (
		kek    = "K4JF8A06nx3tRLH7jGEAk8DIEogd7avty/nxsMJyLIk="
		secret = "canary-0123456789-abcdefghijklmn"
	)
	values := map[string]string{
		"EVERPOST_DATABASE_URL": "postgres://u:" + secret + "@db/everpost", "EVERPOST_OPERATOR_KEY": secret,
		"EVERPOST_EGRESS_PROXY": "http://u:" + secret + "@proxy:3128", "EVERPOST_KEK": kek, "EVERPOST_KEK_OLD": kek, "EVERPOST_KEK_VAULT_TOKEN": secret,
		"EVERPOST_SMTP_URL": "smtp://u:" + secret + "@mail",
	}
	flags := map[string]string{}
	for _, s := range config.Declared(config.Config{}) {
		flags[s.Variable] = s.Flag
		secretly := strings.HasSuffix(s.Variable, "_KEY") || strings.HasSuffix(s.Variable, "_TOKEN") || strings.HasSuffix(s.Variable, "_KEK")
		if secretly && s.Variable != "EVERPOST_KEK_VAULT_KEY" { // a name
			require.Contains(t, values, s.Variable)
		}
	}
	fields := map[string]int{}
	for _, f := range reflect.VisibleFields(reflect.TypeFor[config.Config]()) {
		if f.Tag.Get("credential") != "" {
			fields[f.Tag.Get("env")]++
		}
	}
	require.Len(t, fields, len(values))
	for variable, value := range values {
		require.Equal(t, 1, fields[variable], variable)
		parse := func(value string) (config.Config, error) {
			var c config.Config
			args := []string{flags[variable] + "=" + value}
			if strings.Contains(variable, "VAULT") {
				args = append(args, "--kek-vault-addr=https://vault")
			}
			if strings.Contains(variable, "SMTP") {
				args = append(args, "--smtp-from=hooks@example.com", "--console-url=https://hooks.example.com")
			}
			_, err := kong.Must(&c).Parse(args)
			return c, err
		}
		plain, err := parse(value)
		require.NoError(t, err, variable)
		for _, around := range []string{"\n", "\r\n", " ", "\ufeff", "\u200b", "\u00a0"} {
			trimmed, err := parse(around + value + around)
			require.NoError(t, err, "%s %q", variable, around)
			require.Equal(t, plain, trimmed, "%s %q", variable, around)
			if around == " " && variable == "EVERPOST_OPERATOR_KEY" {
				continue
			}
			_, err = parse(value[:20] + around + value[20:])
			require.ErrorContains(t, err, variable+": ", "%q", around)
			require.NotContains(t, err.Error(), "canary")
		}
		_, err = parse("\ufeff\n")
		require.ErrorContains(t, err, variable+": holds invisible characters only")
	}
}
