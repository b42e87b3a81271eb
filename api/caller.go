package api

import (
	"context"
	"crypto/pbkdf2"
	"crypto/sha256"
	"crypto/subtle"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"github.com/everpost/everpost/internal/credential"
	"github.com/everpost/everpost/internal/webhook"
)

// Caller makes requests inside the process, as the console does for its sessions. It was authenticated
// before: see Authenticate and Confirm.
type Caller struct {
	Key webhook.Key

	// Link is the portal link that the caller came by; zero for a key of its own. A portal sees the
	// resources of one tenant and nothing of the operator's. The audit log names the link.
	Link webhook.LinkID
	// ReadOnly refuses every change.
	ReadOnly bool
}

// callerKey is the context key of a Caller. It is unexported, and no part of a request from outside
// sets it.
type callerKey struct{}

// As returns the API for requests of a caller inside the process. The API authorises, validates, limits
// and audits them as it does requests with a key. It reads no credentials from them.
func (s *Server) As(caller Caller) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.echo.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), callerKey{}, caller)))
	})
}

// Authenticate returns the valid key with this text, as for a request with it: a refusal is counted. What is invisible around the text does
// not matter. CodeUnauthenticated: it is not valid; the error says why if no key can have that text.
func (s *Server) Authenticate(ctx context.Context, text string) (webhook.Key, error) {
	text = credential.Trim(text)
	if s.isPreset(text) {
		return presetKey(), nil
	}
	cause := AuthMalformed
	id, sum, err := ParseKey(text)
	if err == nil {
		var key webhook.Key
		if key, err = s.config.Keys.Authenticate(ctx, id, sum); err == nil {
			return key, nil
		}
		if webhook.CodeOf(err) != webhook.CodeUnauthenticated {
			return webhook.Key{}, err
		}
		cause = refusalCause(err)
	}
	s.config.Metrics.AuthFailed(cause)
	if cause == AuthMalformed {
		if _, fault := credential.Clean(text, !strings.HasPrefix(text, keyPrefix)); fault != nil {
			err = fault
		}
		return webhook.Key{}, &webhook.Error{Code: webhook.CodeUnauthenticated, Message: "the given key " + err.Error()}
	}
	return webhook.Key{}, errInvalidKey()
}

// Confirm returns the key with this id and hash if it is still valid, as Authenticate does for its text.
// Revocation and expiry are seen within 2 s. Unless used is set, it does not count as a use of the key.
func (s *Server) Confirm(ctx context.Context, id webhook.KeyID, sum [sha256.Size]byte, used bool) (webhook.Key, error) {
	if id == presetKeyID() {
		preset := s.presetHash()
		if s.config.OperatorKey == "" || subtle.ConstantTimeCompare(preset[:], sum[:]) != 1 {
			return webhook.Key{}, errInvalidKey()
		}
		return presetKey(), nil
	}
	if !used {
		return s.config.Keys.Check(ctx, id, sum)
	}
	return s.config.Keys.Authenticate(ctx, id, sum)
}

// KeyHash is the hash by which Confirm knows an authenticated key again.
func (s *Server) KeyHash(key webhook.Key) [sha256.Size]byte {
	if key.ID == presetKeyID() {
		return s.presetHash()
	}
	return key.SHA256
}

// SourceAddress is the source of a request from outside, as the audit log has it.
func (s *Server) SourceAddress(r *http.Request) netip.Addr {
	return sourceAddress(r, s.config.TrustedProxies)
}

// presetKey is the configured operator key, without its hash.
func presetKey() webhook.Key {
	return webhook.Key{ID: presetKeyID(), Scope: webhook.ScopeOperator, Name: "EVERPOST_OPERATOR_KEY"}
}

// presetRounds makes a guess at a preset key cost about 0.2 s (OWASP's figure for PBKDF2 with SHA-256):
// people choose that key, and its hash is stored with the sessions and links that it opens.
const presetRounds = 600_000

// presetHash returns a function that hashes the configured operator key at its first call.
func presetHash(key string) func() [sha256.Size]byte {
	return sync.OnceValue(func() (sum [sha256.Size]byte) {
		derived, err := pbkdf2.Key(sha256.New, key, []byte("everpost console"), presetRounds, len(sum))
		if err == nil { // an error: FIPS mode refuses the parameters; then no session of this key is confirmed
			copy(sum[:], derived)
		}
		return sum
	})
}

// permits refuses what a portal may not do. It comes after the check of the key's scope.
func (c Caller) permits(r route) error {
	if !c.Link.IsZero() && !inPortal(r.path) {
		return &webhook.Error{Code: webhook.CodeForbidden, Message: "a console link does not permit this"}
	}
	if c.ReadOnly && !readsOnly(r) {
		return &webhook.Error{Code: webhook.CodeForbidden, Message: "this console link is read-only"}
	}
	return nil
}

// inPortal reports whether a portal may use a route: those of the resources that it shows. A new
// resource is not among them until it is named here.
func inPortal(path string) bool {
	const tenant = "/v1/tenants/{tenant}/"
	if strings.HasPrefix(path, "/v1/retry-policies") {
		return true
	}
	resource, found := strings.CutPrefix(path, tenant)
	resource, _, _ = strings.Cut(resource, "/")
	shown := []string{"endpoints", "endpoint-conditions", "events", "deliveries", "dead-letters", "replays", "stats"}
	return found && slices.Contains(shown, resource)
}

// readsOnly reports whether a route changes nothing and reveals no secret.
func readsOnly(r route) bool {
	switch r.id {
	case "previewRetryPolicy", "previewReplay":
		return true
	case "getEndpointSecret":
		return false
	}
	return r.method == http.MethodGet
}
