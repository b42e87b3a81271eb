package app

import (
	"context"
	"errors"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
)

// The list has what is bound, what names stand for and what other processes say; what cannot be found out stays as it was.
func TestListeners(t *testing.T) {
	t.Parallel()
	ports := func(texts ...string) (all []netip.AddrPort) {
		for _, text := range texts {
			all = append(all, netip.MustParseAddrPort(text))
		}
		return all
	}
	peers, fault := []string{"192.0.2.1:8082"}, error(nil)
	l := &listeners{
		bound: ports("127.0.0.1:8080"), named: []string{"127.0.0.1:5432", "", "no-such-host.invalid:7233"},
		peers: func(context.Context) ([]string, error) { return peers, fault },
	}
	l.learn(t.Context())
	require.ElementsMatch(t, ports("127.0.0.1:8080", "127.0.0.1:5432", "192.0.2.1:8082"), l.list())

	fault, peers = errors.New("away"), nil
	l.learn(t.Context())
	require.ElementsMatch(t, ports("127.0.0.1:8080", "127.0.0.1:5432", "192.0.2.1:8082"), l.list())

	l.named, fault, peers = []string{"127.0.0.1:5432"}, nil, []string{"192.0.2.2:8082"}
	l.learn(t.Context())
	require.ElementsMatch(t, ports("127.0.0.1:8080", "127.0.0.1:5432", "192.0.2.2:8082"), l.list())
}

func TestHostOf(t *testing.T) {
	t.Parallel()
	for target, want := range map[string]string{
		"": "", "temporal:7233": "temporal:7233", "dns:///temporal:7233": "temporal:7233", "passthrough:///10.0.0.1:7233": "10.0.0.1:7233",
		"dns://1.1.1.1/temporal:7233": "temporal:7233",
	} {
		require.Equal(t, want, hostOf(target), target)
	}
}
