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
