package webhook

import "time"

// ConsoleAccess is what a session of the console may do.
type ConsoleAccess uint8

// The kinds of access.
const (
	AccessKey    ConsoleAccess = iota + 1 // whatever the session's key may do
	AccessView                            // a portal: look at one tenant
	AccessManage                          // a portal: also change the tenant's endpoints and deliveries
)

// String is the access's name in the API.
func (a ConsoleAccess) String() string {
	switch a {
	case AccessKey:
		return "key"
	case AccessView:
		return "view"
	case AccessManage:
		return "manage"
	}
	return "none"
}

// MarshalText implements encoding.TextMarshaler.
func (a ConsoleAccess) MarshalText() ([]byte, error) { return []byte(a.String()), nil }

// Portal reports whether the access is that of a portal link.
func (a ConsoleAccess) Portal() bool { return a == AccessView || a == AccessManage }

// Limits of the console's links and sessions.
const (
	DefaultLinkLife = 15 * time.Minute
	MinLinkLife     = time.Minute
	MaxLinkLife     = time.Hour

	SessionIdle  = 12 * time.Hour     // a session ends when it is not used for this long
	SessionLife  = 7 * 24 * time.Hour // and at the latest after this
	PortalLife   = 12 * time.Hour     // the latest end of a portal's session
	MaxReturnURL = 2048               // bytes
)

// ConsoleLink opens a session of the console, once, or is a portal token. Only the hash of its token is stored.
type ConsoleLink struct {
	ID        LinkID
	SHA256    [32]byte // of the token
	TenantID  string   // "" for an operator
	KeyID     KeyID    // the link and its session are valid only while this key is
	KeySHA256 [32]byte
	Access    ConsoleAccess
	ReturnURL string // where a portal's visitor goes back to; "" for nowhere
	Portal    PortalOptions
	ExpiresAt time.Time
}

// Session is the session of a portal token: the link's, without a browser.
func (l ConsoleLink) Session() ConsoleSession {
	return ConsoleSession{
		SHA256: l.SHA256, LinkID: l.ID, TenantID: l.TenantID, KeyID: l.KeyID, KeySHA256: l.KeySHA256, Access: l.Access,
		Portal: l.Portal, ExpiresAt: l.ExpiresAt,
	}
}

// ConsoleSession is a session of the console. Only the hash of its token is stored.
type ConsoleSession struct {
	SHA256    [32]byte // of the token
	LinkID    LinkID   // the link that opened it; zero after a log-in with a key
	TenantID  string   // "" for an operator
	KeyID     KeyID
	KeySHA256 [32]byte
	Access    ConsoleAccess
	ReturnURL string
	Portal    PortalOptions
	ExpiresAt time.Time
}
