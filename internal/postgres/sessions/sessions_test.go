package sessions_test

import (
	"crypto/rand"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/postgres/storetest"
	"github.com/everpost/everpost/internal/webhook"
)

func sum() (s [32]byte) {
	_, _ = rand.Read(s[:])
	return s
}

func newLink(tenant string) webhook.ConsoleLink {
	return webhook.ConsoleLink{
		ID: webhook.NewLinkID(), SHA256: sum(), TenantID: tenant, KeyID: webhook.NewKeyID(), KeySHA256: sum(), Access: webhook.AccessView,
		ReturnURL: "https://app.example/", Portal: webhook.PortalOptions{Secrets: true, Lang: "de", RefreshURL: "https://app.example/again"},
		ExpiresAt: time.Now().UTC().Truncate(time.Microsecond).Add(time.Minute),
	}
}

func visitor() webhook.Actor { return webhook.Actor{Source: netip.MustParseAddr("192.0.2.7")} }

func TestLinkOpensItsSessionOnce(t *testing.T) {
	t.Parallel()
	s, _ := storetest.SetupStore(t)
	l := newLink("acme")
	require.NoError(t, s.CreateLink(t.Context(), storetest.TestActor(), l))
	made := webhook.ConsoleSession{SHA256: sum(), ExpiresAt: l.ExpiresAt.Add(time.Hour)}
	opened, err := s.UseLink(t.Context(), visitor(), l.SHA256, made)
	require.NoError(t, err)
	want := webhook.ConsoleSession{
		SHA256: made.SHA256, LinkID: l.ID, TenantID: "acme", KeyID: l.KeyID, KeySHA256: l.KeySHA256, Access: webhook.AccessView,
		ReturnURL: l.ReturnURL, Portal: l.Portal, ExpiresAt: made.ExpiresAt,
	}
	require.Equal(t, want, opened)
	found, err := s.Session(t.Context(), made.SHA256, true)
	require.NoError(t, err)
	require.Equal(t, want, found)

	_, err = s.UseLink(t.Context(), visitor(), l.SHA256, webhook.ConsoleSession{SHA256: sum(), ExpiresAt: made.ExpiresAt})
	storetest.RequireCode(t, webhook.CodeNotFound, err)
	require.Equal(t, []string{"console_link.create", "console.log_in"}, storetest.Actions(t, s, l.ID.String()))
}

// A portal token is the session of a link that nobody opens, and ends as one.
func TestPortalToken(t *testing.T) {
	t.Parallel()
	s, _ := storetest.SetupStore(t)
	l := newLink("acme")
	l.ReturnURL = ""
	require.NoError(t, s.CreateToken(t.Context(), storetest.TestActor(), l))
	found, err := s.Session(t.Context(), l.SHA256, false)
	require.NoError(t, err)
	require.Equal(t, l.Session(), found)
	_, err = s.Link(t.Context(), l.SHA256)
	storetest.RequireCode(t, webhook.CodeNotFound, err)
	_, err = s.UseLink(t.Context(), visitor(), l.SHA256, webhook.ConsoleSession{SHA256: sum(), ExpiresAt: l.ExpiresAt})
	storetest.RequireCode(t, webhook.CodeNotFound, err)
	require.Equal(t, []string{"console_link.create"}, storetest.Actions(t, s, l.ID.String()))
	require.Equal(t, []string{"token view secrets"}, storetest.Query[string](t, s,
		`select concat_ws(' ', detail->>'kind', detail->>'access', detail->'capabilities'->>0) from audit_log where subject = $1`, l.ID.String()))

	old := newLink("acme")
	old.ExpiresAt = time.Now().Add(-time.Second)
	require.NoError(t, s.CreateToken(t.Context(), storetest.TestActor(), old))
	_, err = s.Session(t.Context(), old.SHA256, false)
	storetest.RequireCode(t, webhook.CodeNotFound, err)
	storetest.RequireCode(t, webhook.CodeNotFound, s.CreateToken(t.Context(), storetest.TestActor(), newLink("nobody")))
	require.NoError(t, s.DeleteTenant(t.Context(), storetest.TestActor(), "acme"))
	_, err = s.Session(t.Context(), l.SHA256, false)
	storetest.RequireCode(t, webhook.CodeNotFound, err)
}

// Of many who use a link at the same moment, one gets the session.
func TestLinkIsUsedByOne(t *testing.T) {
	t.Parallel()
	s, _ := storetest.SetupStore(t)
	l := newLink("acme")
	require.NoError(t, s.CreateLink(t.Context(), storetest.TestActor(), l))
	var all sync.WaitGroup
	opened := make(chan struct{}, 8)
	for range cap(opened) {
		all.Go(func() {
			_, err := s.UseLink(t.Context(), visitor(), l.SHA256, webhook.ConsoleSession{SHA256: sum(), ExpiresAt: time.Now().Add(time.Hour)})
			if err == nil {
				opened <- struct{}{}
			}
		})
	}
	all.Wait()
	require.Len(t, opened, 1)
}

func TestWhatIsOverIsNotFound(t *testing.T) {
	t.Parallel()
	s, _ := storetest.SetupStore(t)
	storetest.RequireCode(t, webhook.CodeNotFound, s.CreateLink(t.Context(), storetest.TestActor(), newLink("nobody")))
	old := newLink("")
	old.ExpiresAt = time.Now().Add(-time.Second)
	require.NoError(t, s.CreateLink(t.Context(), storetest.TestActor(), old))
	_, err := s.UseLink(t.Context(), visitor(), old.SHA256, webhook.ConsoleSession{SHA256: sum(), ExpiresAt: time.Now().Add(time.Hour)})
	storetest.RequireCode(t, webhook.CodeNotFound, err)

	session := func(expires time.Time) webhook.ConsoleSession {
		made := webhook.ConsoleSession{SHA256: sum(), KeyID: webhook.NewKeyID(), Access: webhook.AccessKey, ExpiresAt: expires}
		require.NoError(t, s.CreateSession(t.Context(), visitor(), made))
		return made
	}
	for name, over := range map[string]func(webhook.ConsoleSession){
		"ended": func(made webhook.ConsoleSession) { require.NoError(t, s.EndSession(t.Context(), made.SHA256)) },
		"idle": func(made webhook.ConsoleSession) {
			_, err := s.Pool().Exec(t.Context(), `
				update console_sessions set last_seen_at = now() - interval '12 hours 1 second' where sha256 = $1`, made.SHA256[:])
			require.NoError(t, err)
		},
		"too old": func(made webhook.ConsoleSession) {
			_, err := s.Pool().Exec(t.Context(), `update console_sessions set expires_at = now() where sha256 = $1`, made.SHA256[:])
			require.NoError(t, err)
		},
	} {
		made := session(time.Now().Add(time.Hour))
		_, err := s.Session(t.Context(), made.SHA256, true)
		require.NoError(t, err, name)
		over(made)
		_, err = s.Session(t.Context(), made.SHA256, true)
		storetest.RequireCode(t, webhook.CodeNotFound, err)
	}
	_, err = s.Session(t.Context(), sum(), true)
	storetest.RequireCode(t, webhook.CodeNotFound, err)
	require.NoError(t, s.EndSession(t.Context(), sum()))
}

// Use keeps a session, and is written at most once a minute.
func TestUseOfASessionIsNoted(t *testing.T) {
	t.Parallel()
	s, _ := storetest.SetupStore(t)
	made := webhook.ConsoleSession{SHA256: sum(), KeyID: webhook.NewKeyID(), Access: webhook.AccessKey, ExpiresAt: time.Now().Add(time.Hour)}
	require.NoError(t, s.CreateSession(t.Context(), visitor(), made))
	seen := func() string {
		return storetest.Query[string](t, s, `select (now() - last_seen_at < interval '30 seconds')::text from console_sessions`)[0]
	}
	set := func(ago string) {
		_, err := s.Pool().Exec(t.Context(), `update console_sessions set last_seen_at = now() - $1::interval`, ago)
		require.NoError(t, err)
		_, err = s.Session(t.Context(), made.SHA256, true)
		require.NoError(t, err)
	}
	set("2 minutes")
	require.Equal(t, "true", seen())
	set("40 seconds")
	require.Equal(t, "false", seen())
}

// Rows that are over go with later ones, and a tenant's with the tenant.
func TestOldRowsGo(t *testing.T) {
	t.Parallel()
	s, _ := storetest.SetupStore(t)
	for range 3 {
		l := newLink("acme")
		require.NoError(t, s.CreateLink(t.Context(), storetest.TestActor(), l))
		require.NoError(t, s.CreateSession(t.Context(), visitor(), webhook.ConsoleSession{
			SHA256: sum(), TenantID: "acme", KeyID: l.KeyID, Access: webhook.AccessKey, ExpiresAt: time.Now().Add(time.Hour),
		}))
	}
	_, err := s.Pool().Exec(t.Context(), `update console_links set expires_at = now() - interval '1 second'`)
	require.NoError(t, err)
	_, err = s.Pool().Exec(t.Context(), `update console_sessions set expires_at = now() - interval '1 second'`)
	require.NoError(t, err)
	l := newLink("acme")
	require.NoError(t, s.CreateLink(t.Context(), storetest.TestActor(), l))
	_, err = s.UseLink(t.Context(), visitor(), l.SHA256, webhook.ConsoleSession{SHA256: sum(), ExpiresAt: time.Now().Add(time.Hour)})
	require.NoError(t, err)
	require.NoError(t, s.CreateLink(t.Context(), storetest.TestActor(), newLink("acme")))
	require.Equal(t, []int64{1, 1}, storetest.Query[int64](t, s, `select count(*) from console_links union all select count(*) from console_sessions`))

	require.NoError(t, s.DeleteTenant(t.Context(), storetest.TestActor(), "acme"))
	require.Equal(t, []int64{0, 0}, storetest.Query[int64](t, s, `select count(*) from console_links union all select count(*) from console_sessions`))
}
