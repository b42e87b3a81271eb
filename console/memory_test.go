package console

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/api"
	"github.com/everpost/everpost/internal/webhook"
)

// memory is a store of sessions and an API whose answers a test can choose. What both do for the console is tested over
// the real ones; this is for what they do seldom.
type memory struct {
	mu       sync.Mutex
	sessions map[[sha256.Size]byte]webhook.ConsoleSession
	links    map[[sha256.Size]byte]webhook.ConsoleLink
	lookUps  int
	uses     []bool        // used of each look-up of a session
	keyUses  []bool        // used of each confirmation of a key
	hold     chan struct{} // look-ups wait for it
	confirm  error
	answer   http.HandlerFunc // of the API
}

func newMemory() *memory {
	return &memory{sessions: map[[sha256.Size]byte]webhook.ConsoleSession{}, links: map[[sha256.Size]byte]webhook.ConsoleLink{}}
}

func (m *memory) console(t *testing.T, change ...func(*Config)) *Console {
	t.Helper()
	c := Config{API: m, Sessions: m}
	for _, f := range change {
		f(&c)
	}
	s, err := New(c)
	require.NoError(t, err)
	return s
}

// session opens a session and returns its token.
func (m *memory) session(of webhook.ConsoleSession) (token string) {
	token = rand.Text()
	of.SHA256, of.ExpiresAt = sha256.Sum256([]byte(token)), time.Now().Add(time.Hour)
	m.sessions[of.SHA256] = of
	return token
}

func (m *memory) CreateSession(_ context.Context, _ webhook.Actor, made webhook.ConsoleSession) error {
	m.sessions[made.SHA256] = made
	return nil
}

func (m *memory) Link(_ context.Context, sum [sha256.Size]byte) (webhook.ConsoleLink, error) {
	m.lookUps++
	if l, ok := m.links[sum]; ok {
		return l, nil
	}
	return webhook.ConsoleLink{}, webhook.NotFound("link")
}

func (m *memory) UseLink(
	_ context.Context, _ webhook.Actor, link [sha256.Size]byte, made webhook.ConsoleSession,
) (webhook.ConsoleSession, error) {
	l, ok := m.links[link]
	if !ok {
		return made, webhook.NotFound("link")
	}
	delete(m.links, link)
	made.TenantID, made.Access = l.TenantID, l.Access
	m.sessions[made.SHA256] = made
	return made, nil
}

func (m *memory) Session(_ context.Context, sum [sha256.Size]byte, used bool) (webhook.ConsoleSession, error) {
	m.mu.Lock()
	m.lookUps++
	m.uses = append(m.uses, used)
	found, ok := m.sessions[sum]
	m.mu.Unlock()
	if m.hold != nil {
		<-m.hold
	}
	if !ok {
		return found, webhook.NotFound("session")
	}
	return found, nil
}

func (m *memory) EndSession(_ context.Context, sum [sha256.Size]byte) error {
	delete(m.sessions, sum)
	return nil
}

func (m *memory) Authenticate(context.Context, string) (webhook.Key, error) {
	return webhook.Key{Scope: webhook.ScopeOperator}, nil
}

func (m *memory) Confirm(_ context.Context, _ webhook.KeyID, _ [sha256.Size]byte, used bool) (webhook.Key, error) {
	m.keyUses = append(m.keyUses, used)
	return webhook.Key{Scope: webhook.ScopeOperator}, m.confirm
}

func (m *memory) KeyHash(webhook.Key) (sum [sha256.Size]byte) { return sum }
func (m *memory) As(api.Caller) http.Handler                  { return m.answer }
func (m *memory) Secure(*http.Request) bool                   { return false }
func (m *memory) SourceAddress(r *http.Request) (from netip.Addr) {
	port, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return from
	}
	return port.Addr()
}

// looked is how many tokens were looked up.
func (m *memory) looked() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.lookUps
}

// request makes a request with a session's token. Pairs are the form's names and values; its token is added.
func request(s *Console, method, path, cookie, token string, pairs ...string) *httptest.ResponseRecorder {
	form := url.Values{csrfField: {csrfToken(token)}}
	for i := 0; i+1 < len(pairs); i += 2 {
		form.Add(pairs[i], pairs[i+1])
	}
	r := httptest.NewRequest(method, path, strings.NewReader(form.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	r.AddCookie(&http.Cookie{Name: cookie, Value: token})
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w
}
