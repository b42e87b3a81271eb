package sessions_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/postgres/storetest"
	"github.com/everpost/everpost/internal/webhook"
)

// What is no use does not keep a session.
func TestALookIsNoUseOfASession(t *testing.T) {
	t.Parallel()
	s, _ := storetest.SetupStore(t)
	made := webhook.ConsoleSession{SHA256: sum(), KeyID: webhook.NewKeyID(), Access: webhook.AccessKey, ExpiresAt: time.Now().Add(time.Hour)}
	require.NoError(t, s.CreateSession(t.Context(), visitor(), made))
	_, err := s.Pool().Exec(t.Context(), `update console_sessions set last_seen_at = now() - interval '2 hours'`)
	require.NoError(t, err)
	idle := func() string {
		return storetest.Query[string](t, s, `select (now() - last_seen_at > interval '1 hour')::text from console_sessions`)[0]
	}
	_, err = s.Session(t.Context(), made.SHA256, false)
	require.NoError(t, err)
	require.Equal(t, "true", idle())
	_, err = s.Session(t.Context(), made.SHA256, true)
	require.NoError(t, err)
	require.Equal(t, "false", idle())
}

// Reading a link does not use it up.
func TestALinkIsRead(t *testing.T) {
	t.Parallel()
	s, _ := storetest.SetupStore(t)
	l := newLink("acme")
	require.NoError(t, s.CreateLink(t.Context(), storetest.TestActor(), l))
	for range 2 {
		found, err := s.Link(t.Context(), l.SHA256)
		require.NoError(t, err)
		require.Equal(t, l, found)
	}
	_, err := s.UseLink(t.Context(), visitor(), l.SHA256, webhook.ConsoleSession{SHA256: sum(), ExpiresAt: time.Now().Add(time.Hour)})
	require.NoError(t, err)
	_, err = s.Link(t.Context(), l.SHA256)
	storetest.RequireCode(t, webhook.CodeNotFound, err)
	old := newLink("acme")
	old.ExpiresAt = time.Now().Add(-time.Second)
	require.NoError(t, s.CreateLink(t.Context(), storetest.TestActor(), old))
	_, err = s.Link(t.Context(), old.SHA256)
	storetest.RequireCode(t, webhook.CodeNotFound, err)
}
