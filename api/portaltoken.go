package api

import (
	"context"
	"crypto/sha256"
	"errors"
	"net/netip"
	"strings"

	"github.com/everpost/everpost/internal/webhook"
)

// A portal token is a text as an API key (key.go), with the prefix "evp_" and the id of a link, which the audit log names. It is stored as a
// portal's session without a browser. Neither can stand for the other: a session's own token is shorter, and both are known by the hash of
// their whole text.
const tokenPrefix = "evp_"

// newPortalToken returns the text of a new portal token with the id, and the hash to store.
func newPortalToken(id webhook.LinkID) (text string, sum [sha256.Size]byte) {
	return newCredential(tokenPrefix, strings.TrimPrefix(id.String(), linkIDPrefix))
}

const linkIDPrefix = "lnk_"

// parsePortalToken returns the hash of a token. It refuses text that newPortalToken cannot have made. The error is a phrase for people that
// does not repeat the text.
func parsePortalToken(text string) (sum [sha256.Size]byte, err error) {
	id, whole := parseCredential(tokenPrefix, text)
	if _, err := webhook.ParseLinkID(linkIDPrefix + id); err != nil || !whole {
		return sum, errors.New("is not a portal token: one is evp_ and 85 characters; it is truncated or mistyped")
	}
	return sha256.Sum256([]byte(text)), nil
}

// isPortalToken reports whether a text is to be a portal token, and no key: the configured operator key may be any text.
func (a *authenticator) isPortalToken(text string) bool {
	return strings.HasPrefix(text, tokenPrefix) && !a.isPreset(text)
}

// authenticateToken returns the caller with this portal token. The key that made it has to be valid still, which its use is no use of.
// CodeUnauthenticated: the token is not valid.
func (a *authenticator) authenticateToken(ctx context.Context, source netip.Addr, text string) (Caller, error) {
	sum, err := parsePortalToken(text)
	if err != nil {
		a.metrics.AuthFailed(AuthMalformed)
		return Caller{}, &webhook.Error{Code: webhook.CodeUnauthenticated, Message: "the given token " + err.Error()}
	}
	found, err := a.findToken(ctx, source, sum)
	code := webhook.CodeOf(err)
	if err != nil && code != webhook.CodeNotFound && code != webhook.CodeUnauthenticated {
		return Caller{}, err
	}
	// A caller without a link would have all rights of the tenant's admin.
	if err != nil || !found.Access.Portal() || found.LinkID.IsZero() {
		a.metrics.AuthFailed(string(webhook.ErrKeyUnknown))
		return Caller{}, &webhook.Error{
			Code: webhook.CodeUnauthenticated, Message: "the portal token is not valid, has expired, or the key that made it is not valid any more",
		}
	}
	return PortalCaller(found), nil
}

// findToken reads a token that has not ended, and confirms its key. CodeNotFound, CodeUnauthenticated: it is not valid.
func (a *authenticator) findToken(ctx context.Context, source netip.Addr, sum [sha256.Size]byte) (webhook.ConsoleSession, error) {
	if a.sessions == nil {
		return webhook.ConsoleSession{}, webhook.NotFound("session")
	}
	found, err := a.lookUps.Session(ctx, a.sessions, source, sum, false)
	if err != nil {
		return webhook.ConsoleSession{}, err
	}
	_, err = a.Confirm(ctx, found.KeyID, found.KeySHA256, false)
	return found, err
}
