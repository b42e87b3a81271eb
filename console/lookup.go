package console

import (
	"crypto/sha256"
	"net/http"

	"github.com/everpost/everpost/internal/webhook"
)

// findSession returns the session of a request's cookie, or none: that of a portal below its root, else that of a key. An error means
// that it could not be looked up. A stream is no use of a session or a key: a page that is left open keeps neither.
func (s *Console) findSession(r *http.Request) (session, error) {
	portal := isBelow(r.URL.Path, PortalRoot)
	token := cookieOf(r, sessionCookie(portal))
	if !validToken(token) {
		return session{}, nil
	}
	found, err := s.confirm(r, token, r.Header.Get("Accept") != eventStream)
	if code := webhook.CodeOf(err); err != nil && code != webhook.CodeNotFound && code != webhook.CodeUnauthenticated {
		return session{}, err
	}
	if err == nil && found.Access.Portal() == portal {
		return found, nil
	}
	return session{}, nil
}

// confirm reads a session and checks its key. What visitors of a portal do is no use of the key that made its link.
func (s *Console) confirm(r *http.Request, token string, used bool) (session, error) {
	stored, err := s.lookUp(r, sha256.Sum256([]byte(token)), used)
	if err != nil {
		return session{}, err
	}
	key, err := s.config.API.Confirm(r.Context(), stored.KeyID, stored.KeySHA256, used && !stored.Access.Portal())
	if err != nil {
		return session{}, err
	}
	return session{ConsoleSession: stored, key: key, token: token}, nil
}

// lookUp reads a session.
func (s *Console) lookUp(r *http.Request, sum [sha256.Size]byte, used bool) (webhook.ConsoleSession, error) {
	return s.lookUps.Session(r.Context(), s.config.Sessions, s.config.API.SourceAddress(r), sum, used)
}

// IsOperator reports whether a request to Temporal's Web UI has the session of an operator.
func (s *Console) IsOperator(r *http.Request) bool {
	token := cookieOf(r, uiCookie)
	if !validToken(token) {
		return false
	}
	found, err := s.confirm(r, token, true)
	return err == nil && found.operator()
}
