package webhook

import (
	"net/netip"
	"strings"
	"time"

	"github.com/everpost/everpost/internal/retry"
)

// MaxTenantID is the length of a tenant's id, MaxMetadata the number of metadata entries.
const (
	MaxTenantID = 64
	MaxMetadata = 50
)

// Tenant is whose endpoints these are.
type Tenant struct {
	ID       string // the operator's own id
	Name     string
	Contact  string // "" when unknown
	Metadata map[string]string
	Limits   Limits // what an operator has set for it

	// RetryPolicy is that of its endpoints that have none of their own; zero: the
	// installation's is.
	RetryPolicy retry.Policy

	CreatedAt time.Time
	UpdatedAt time.Time
}

// ValidTenantID reports whether id is 1 to 64 of A–Z, a–z, 0–9, "_" and "-".
func ValidTenantID(id string) bool {
	const allowed = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-"
	return id != "" && len(id) <= MaxTenantID && strings.Trim(id, allowed) == ""
}

// Scope is what a key may do.
type Scope uint8

// The scopes, smallest first.
const (
	ScopeIngest   Scope = iota + 1 // post events of the tenant and read its events and deliveries
	ScopeAdmin                     // everything of the tenant
	ScopeOperator                  // everything
)

// String is the scope's name in the API.
func (s Scope) String() string {
	switch s {
	case ScopeIngest:
		return "ingest"
	case ScopeAdmin:
		return "admin"
	case ScopeOperator:
		return "operator"
	}
	return "none"
}

// MarshalText implements encoding.TextMarshaler.
func (s Scope) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Key is an API key as it is stored: its secret is known only as a hash.
type Key struct {
	ID         KeyID
	TenantID   string // "" for an operator key
	Scope      Scope
	Name       string
	SHA256     [32]byte // of the whole key text
	CreatedAt  time.Time
	ExpiresAt  time.Time // zero: never
	LastUsedAt time.Time // zero: never
}

// KeyError is why a key was not accepted, as the cause of an Error: for metrics, a caller
// is never told.
type KeyError string

// The reasons.
const (
	ErrKeyUnknown     KeyError = "unknown"      // there is none of this id
	ErrKeyWrongSecret KeyError = "wrong_secret" // there is one, and this is not its text
	ErrKeyExpired     KeyError = "expired"
	ErrKeyRevoked     KeyError = "revoked"
)

// Error implements error.
func (r KeyError) Error() string { return "refused: " + string(r) }

// Actor is who makes a change, for the audit log.
type Actor struct {
	KeyID     KeyID  // zero: the system itself or the command line
	Name      string // shown instead when there is no key: "standalone", "cli"
	RequestID string
	Source    netip.Addr // where the request came from; the zero Addr without one
}
