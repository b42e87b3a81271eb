package api

import (
	"net/http"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSourceAddress(t *testing.T) {
	t.Parallel()
	trusted := trustedProxies{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/8")}
	for _, c := range []struct {
		peer string
		sent []string // X-Forwarded-For
		want string
	}{
		{"192.0.2.1:4711", nil, "192.0.2.1"},
		{"192.0.2.1:4711", []string{"198.51.100.7"}, "192.0.2.1"}, // the header is not from a trusted proxy
		{"10.1.2.3:4711", nil, "10.1.2.3"},
		{"10.1.2.3:4711", []string{"198.51.100.7"}, "198.51.100.7"},
		{"[::ffff:10.1.2.3]:4711", []string{"198.51.100.7"}, "198.51.100.7"},
		{"[fd00::1]:4711", []string{"2001:db8::7"}, "2001:db8::7"},
		{"10.1.2.3:4711", []string{"1.1.1.1, 198.51.100.7"}, "198.51.100.7"}, // the first address was sent by the caller
		{"10.1.2.3:4711", []string{"1.1.1.1", "198.51.100.7 , 10.9.9.9"}, "198.51.100.7"},
		{"10.1.2.3:4711", []string{"198.51.100.7", "10.9.9.9"}, "198.51.100.7"},
		{"10.1.2.3:4711", []string{"10.7.7.7, 10.9.9.9"}, "10.7.7.7"}, // a caller within the trusted network
		{"10.1.2.3:4711", []string{"198.51.100.7:50000"}, "198.51.100.7"},
		{"10.1.2.3:4711", []string{"[2001:db8::7]:50000"}, "2001:db8::7"},
		{"10.1.2.3:4711", []string{"[2001:db8::7]"}, "2001:db8::7"},
		{"10.1.2.3:4711", []string{"::ffff:198.51.100.7"}, "198.51.100.7"},
		{"10.1.2.3:4711", []string{"fe80::1%eth0"}, "fe80::1"},
		{"10.1.2.3:4711", []string{"198.51.100.7, unknown"}, "10.1.2.3"},
		{"10.1.2.3:4711", []string{"198.51.100.7, unknown, 10.9.9.9"}, "10.9.9.9"},
		{"10.1.2.3:4711", []string{""}, "10.1.2.3"},
		{"10.1.2.3:4711", []string{", ,"}, "10.1.2.3"},
	} {
		r := &http.Request{RemoteAddr: c.peer, Header: http.Header{}}
		if c.sent != nil {
			r.Header[forwardedFor] = c.sent
		}
		require.Equal(t, c.want, trusted.SourceAddress(r).String(), "%s %q", c.peer, c.sent)
	}
	require.False(t, trusted.SourceAddress(&http.Request{RemoteAddr: "@"}).IsValid())
	r := &http.Request{RemoteAddr: "10.1.2.3:4711", Header: http.Header{forwardedFor: {"198.51.100.7"}}}
	require.Equal(t, "10.1.2.3", trustedProxies(nil).SourceAddress(r).String(), "no proxy is trusted by default")
}

// A change carries the caller's address, for the audit log.
func TestChangesCarryTheSourceAddress(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *Config) { c.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")} }) // httptest's peer is 192.0.2.1
	b.ok(t, http.StatusOK, "operator", "PUT", "/v1/tenants/acme", `{}`)
	require.Equal(t, "192.0.2.1", b.actors[0].Source.String())
	b.ok(t, http.StatusOK, "operator", "PUT", "/v1/tenants/acme", `{}`, header(forwardedFor, "1.1.1.1, 198.51.100.7"))
	require.Equal(t, "198.51.100.7", b.actors[1].Source.String())
}
