package api

import (
	"context"
	"crypto/sha256"
	"net/netip"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/webhook"
)

// noSessions counts look-ups of sessions, of which there are none.
type noSessions struct{ reads int }

func (n *noSessions) Session(context.Context, [sha256.Size]byte, bool) (webhook.ConsoleSession, error) {
	n.reads++
	return webhook.ConsoleSession{}, webhook.NotFound("session")
}

// An invented token is looked up once, and what is remembered of invented ones is bounded.
func TestInventedTokensAreLookedUpOnce(t *testing.T) {
	t.Parallel()
	l, store := NewSessionLookUps(nil), &noSessions{}
	find := func(i int) {
		_, err := l.Session(t.Context(), store, netip.Addr{}, sha256.Sum256([]byte(strconv.Itoa(i))), false)
		require.Equal(t, webhook.CodeNotFound, webhook.CodeOf(err))
	}
	find(0)
	find(0)
	require.Equal(t, 1, store.reads)
	for i := range 2 * maxUnknownTokens {
		find(i)
	}
	require.Equal(t, maxUnknownTokens, l.unknown.Len())
}
