package app

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/console"
	"github.com/everpost/everpost/internal/config"
)

// What differs is named, without secrets, and so is what takes a protection away.
func TestDoctorComparesWithTheRunningProcess(t *testing.T) {
	t.Parallel()
	o := options(t, "postgres://u:canary@localhost/x")
	o.Config.AllowHTTP, o.Config.ExtraPorts, o.Config.AdminListen = true, config.Ports{Any: true}, "127.0.0.1:9999"
	a, err := New(t.Context(), o)
	require.NoError(t, err)
	t.Cleanup(a.Stop)
	a.adminListen = at("127.0.0.1:8081")
	server := httptest.NewServer(admin{a}.handler())
	t.Cleanup(server.Close)
	ask := func(i Installation) Finding {
		i.Version, i.Admin = o.Version, strings.TrimPrefix(server.URL, "http://")
		return (&diagnosis{Installation: i}).process(t.Context())
	}

	f := ask(Installation{Config: o.Config})
	require.Equal(t, console.VerdictWarning, f.Verdict)
	require.Equal(t, "with EVERPOST_ALLOW_HTTP=true payloads and signatures may be sent unencrypted; "+
		"with EVERPOST_EXTRA_PORTS=any tenants' endpoints may be at any port", f.Detail)

	here := o.Config
	here.AllowHTTP, here.DatabaseURL, here.AdminListen = false, "", "127.0.0.1:1"
	f = ask(Installation{Config: here})
	require.Equal(t, console.VerdictWarning, f.Verdict)
	require.Contains(t, f.Detail, "EVERPOST_ALLOW_HTTP is false here and true in the running process")
	require.Contains(t, f.Detail, "EVERPOST_DATABASE_URL is not set here and set in the running process")
	require.NotContains(t, f.Detail, "EVERPOST_ADMIN_LISTEN", "it was found there")
	require.NotContains(t, f.Detail, "canary")
	require.NotEmpty(t, f.Remedy)

	server.Close()
	require.Equal(t, console.VerdictSkipped, ask(Installation{Config: o.Config}).Verdict)
}

// The key is sent to a listener that asks for it only.
func TestDoctorSendsItsKeyWhenAsked(t *testing.T) {
	t.Parallel()
	var keys []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		keys = append(keys, r.Header.Get("Authorization"))
		if keys[len(keys)-1] == "" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(processSettings{Version: "1.2.2", Settings: map[string]string{"EVERPOST_UNKNOWN": "x"}})
	}))
	t.Cleanup(server.Close)
	c := diagnosis{Installation: Installation{Version: "1.2.3", Admin: strings.TrimPrefix(server.URL, "http://")}}
	require.Contains(t, c.process(t.Context()).Detail, "it asks for an operator's key")
	c.OperatorKey, keys = "canary", nil
	f := c.process(t.Context())
	require.Equal(t, console.VerdictWarning, f.Verdict)
	require.Equal(t, "it is of the release 1.2.2, and this is 1.2.3", f.Detail)
	require.Equal(t, []string{"", "Bearer canary"}, keys)
}

func TestDoctorOfAProcessOfItsOwn(t *testing.T) {
	t.Parallel()
	c := diagnosis{}
	require.Equal(t, console.VerdictOK, c.process(t.Context()).Verdict)
	differ := map[string]string{}
	for name := range strings.SplitSeq("abcdefghijklm", "") {
		differ[name] = strings.Repeat(name, 100)
	}
	found := differences(differ, map[string]string{"a": "", "b": "", "c": "", "d": "", "e": "", "f": "", "g": "", "h": "", "i": "", "j": "", "k": ""})
	require.Len(t, found, 11)
	require.Equal(t, "a is not set here and "+strings.Repeat("a", 60)+"… in the running process", found[0])
	require.Equal(t, "1 more differ", found[10])
	require.Empty(t, differences(
		map[string]string{"EVERPOST_LISTEN": "127.0.0.1:0", "EVERPOST_LANE_LISTEN": "off"},
		map[string]string{"EVERPOST_LISTEN": "127.0.0.1:8080", "EVERPOST_LANE_LISTEN": "auto"},
	))
	require.Empty(t, unsafeSettings(config.Shown(config.Config{})))
}
