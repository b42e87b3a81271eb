package config_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/config"
)

func TestPortalSettings(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		set     config.Portal
		refused string // the setting that is named; "" for none
	}{
		"all":            {config.Portal{PortalName: "Acme", PortalColor: "#12Ab3f"}, ""},
		"colour injects": {config.Portal{PortalColor: "#112233;}"}, "EVERPOST_PORTAL_COLOR"},
		"name":           {config.Portal{PortalName: "a\nb"}, "EVERPOST_PORTAL_NAME"},
		"origins":        {config.Portal{PortalOrigins: []string{"https://app.example.com", "http://localhost:3000", "http://[::1]:8443"}}, ""},
		"any origin":     {config.Portal{PortalOrigins: []string{"*"}}, "EVERPOST_PORTAL_ORIGINS"},
		"wildcard":       {config.Portal{PortalOrigins: []string{"https://app.example.com", "https://*.example.com"}}, "EVERPOST_PORTAL_ORIGINS"},
		"question mark":  {config.Portal{PortalOrigins: []string{"https://a?.example.com"}}, "EVERPOST_PORTAL_ORIGINS"},
		"no origin":      {config.Portal{PortalOrigins: []string{"null"}}, "EVERPOST_PORTAL_ORIGINS"},
		"empty origin":   {config.Portal{PortalOrigins: []string{""}}, "EVERPOST_PORTAL_ORIGINS"},
		"no scheme":      {config.Portal{PortalOrigins: []string{"app.example.com"}}, "EVERPOST_PORTAL_ORIGINS"},
		"other scheme":   {config.Portal{PortalOrigins: []string{"ftp://app.example.com"}}, "EVERPOST_PORTAL_ORIGINS"},
		"path":           {config.Portal{PortalOrigins: []string{"https://app.example.com/"}}, "EVERPOST_PORTAL_ORIGINS"},
		"query":          {config.Portal{PortalOrigins: []string{"https://app.example.com?a"}}, "EVERPOST_PORTAL_ORIGINS"},
		"user":           {config.Portal{PortalOrigins: []string{"https://me@app.example.com"}}, "EVERPOST_PORTAL_ORIGINS"},
		"upper case":     {config.Portal{PortalOrigins: []string{"https://App.example.com"}}, "EVERPOST_PORTAL_ORIGINS"},
		"port of https":  {config.Portal{PortalOrigins: []string{"https://app.example.com:443"}}, "EVERPOST_PORTAL_ORIGINS"},
		"port of http":   {config.Portal{PortalOrigins: []string{"http://app.example.com:80"}}, "EVERPOST_PORTAL_ORIGINS"},
		"no port":        {config.Portal{PortalOrigins: []string{"https://app.example.com:"}}, "EVERPOST_PORTAL_ORIGINS"},
		"large port":     {config.Portal{PortalOrigins: []string{"https://app.example.com:65536"}}, "EVERPOST_PORTAL_ORIGINS"},
		"no punycode":    {config.Portal{PortalOrigins: []string{"https://büro.example"}}, "EVERPOST_PORTAL_ORIGINS"},
		"one of several": {config.Portal{PortalOrigins: []string{"https://a.example", "https://b.example, https://c.example"}}, "EVERPOST_PORTAL_ORIGINS"},
		"long name":      {config.Portal{PortalName: strings.Repeat("a", 41)}, "EVERPOST_PORTAL_NAME"},
	} {
		err := (&config.Config{Portal: test.set}).Validate()
		require.Error(t, err, "the other settings are missing")
		if test.refused == "" {
			require.NotContains(t, err.Error(), "EVERPOST_PORTAL", name)
			continue
		}
		require.ErrorContains(t, err, test.refused, name)
	}
}
