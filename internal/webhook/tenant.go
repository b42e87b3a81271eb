package webhook

import (
	"cmp"
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

// Tenant is the owner of endpoints, events and keys.
type Tenant struct {
	ID       string // chosen by the operator
	Name     string
	Contact  string // "" if unknown
	Metadata map[string]string
	Limits   Limits // set by an operator

	Retention Retention // set by an operator

	// RetryPolicy applies to endpoints without their own; zero: the installation's applies.
	RetryPolicy retry.Policy

	CreatedAt time.Time
	UpdatedAt time.Time
}

// TenantDeletion is the progress of the deletion of everything that is stored of a tenant.
type TenantDeletion struct {
	Since time.Time
	Table string // the last one that rows were removed from; "" if there is none yet
	Rows  int64  // removed so far
}

// ValidTenantID reports whether id is 1 to 64 of A–Z, a–z, 0–9, "_" and "-".
func ValidTenantID(id string) bool {
	const allowed = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-"
	return id != "" && len(id) <= MaxTenantID && strings.Trim(id, allowed) == ""
}

// Scope is the set of operations that a key permits.
type Scope uint8

// The scopes, smallest first.
const (
	ScopeIngest   Scope = iota + 1 // post events, and read events and deliveries, of the tenant
	ScopeAdmin                     // every operation of the tenant
	ScopeOperator                  // every operation
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

// Key is an API key as it is stored: only the hash of its text is known.
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

// KeyError is why a key was refused, as the cause of an Error. It is used for metrics and
// never returned to a caller.
type KeyError string

// The reasons.
const (
	ErrKeyUnknown     KeyError = "unknown"      // no key has this id
	ErrKeyWrongSecret KeyError = "wrong_secret" // the key with this id has another secret
	ErrKeyExpired     KeyError = "expired"
	ErrKeyRevoked     KeyError = "revoked"
)

// Error implements error.
func (r KeyError) Error() string { return "refused: " + string(r) }

// Actor is the originator of a change, for the audit log, which is written in its transaction.
type Actor struct {
	KeyID     KeyID  // zero: the system itself or the command line
	KeyName   string // of the key, for those who see the tenant's resources
	Name      string // used without a key: "standalone", "cli"
	RequestID string
	Source    netip.Addr // of the request; zero if there is none

	// Request is the request's Idempotency-Key, which is stored with the change; nil for none.
	Request *RequestKey
}

// Who names the actor for people.
func (a Actor) Who() string {
	if a.Name == "" && a.KeyName == "" && !a.KeyID.IsZero() {
		return a.KeyID.String()
	}
	return cmp.Or(a.Name, a.KeyName)
}
