package api

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/everpost/everpost/client"
	"github.com/everpost/everpost/internal/webhook"
)

// endpointFields reads the fields of an endpoint.
type endpointFields struct {
	urls URLs
	now  func() time.Time
}

// checkURL notes everything that is wrong with a URL, so that all of it can be fixed at once.
func (f *endpointFields) checkURL(d *jsonDecoder, raw string) {
	for _, wrong := range f.urls.CheckURL(raw) {
		d.note(wrong)
	}
}

func showAuth(a webhook.Auth) *client.Auth {
	if a.Kind == webhook.AuthNone {
		return nil
	}
	return &client.Auth{Type: string(a.Kind), Username: a.Username, TokenURL: a.TokenURL, ClientID: a.ClientID, Scopes: a.Scopes, Audience: a.Audience}
}

func showCertificate(c webhook.ClientCertificate) *client.Certificate {
	if c.IsZero() {
		return nil
	}
	view := &client.Certificate{}
	if c.MaxTLS != webhook.MaxTLSAny {
		view.MaxTLS = new(string(c.MaxTLS))
	}
	leaf, err := c.Leaf()
	if err != nil { // checked when it was set; an attempt's error describes the failure
		return view
	}
	sum := sha256.Sum256(leaf.Raw)
	view.Subject, view.SHA256, view.ExpiresAt = leaf.Subject.String(), hex.EncodeToString(sum[:]), timestamp(leaf.NotAfter)
	return view
}

// authFields returns the fields of an auth object of a kind, besides type.
func authFields(kind webhook.AuthKind) (required, optional []string) {
	switch kind {
	case webhook.AuthBasic:
		return []string{"username", "password"}, nil
	case webhook.AuthBearer:
		return []string{"token"}, nil
	case webhook.AuthClientCredentials:
		return []string{"token_url", "client_id", "client_secret"}, []string{"scopes", "audience"}
	case webhook.AuthNone:
	}
	return nil, nil
}

// readAuth reads the credentials of an endpoint. They are always replaced as a whole, because the
// API never shows the secret parts of the current ones.
func (f *endpointFields) readAuth(d *jsonDecoder) webhook.Auth {
	var a webhook.Auth
	var given []string
	d.object(func(name []byte) {
		given = append(given, string(name))
		switch string(name) {
		case "type":
			a.Kind = readAuthKind(d)
		case "username":
			a.Username = readUsername(d)
		case "password":
			a.Password = readText(d, 0, notControl, "must not contain control characters")
		case "token":
			a.Token = readText(d, 1, visible, "must be printable ASCII without spaces")
		case "token_url":
			a.TokenURL = f.readTokenURL(d)
		case "client_id":
			a.ClientID = readText(d, 1, spaceOrVisible, "must be printable ASCII")
		case "client_secret":
			a.ClientSecret = readText(d, 1, spaceOrVisible, "must be printable ASCII")
		case "scopes":
			set(d, &a.Scopes, nil, readScopes)
		case "audience":
			set(d, &a.Audience, "", func(d *jsonDecoder) string { return readText(d, 1, visible, "must be printable ASCII without spaces") })
		default:
			given = given[:len(given)-1]
			d.unknown()
		}
	}, "type")
	checkAuthFields(d, a.Kind, given)
	return a
}

// checkAuthFields notes the missing fields of the kind, and the fields of other kinds.
func checkAuthFields(d *jsonDecoder, kind webhook.AuthKind, given []string) {
	if kind == webhook.AuthNone {
		return
	}
	required, optional := authFields(kind)
	for _, name := range required {
		if !slices.Contains(given, name) {
			d.noteIn(name, "is required")
		}
	}
	for _, name := range given {
		if name != "type" && !slices.Contains(required, name) && !slices.Contains(optional, name) {
			d.noteIn(name, `does not belong to the type "`+string(kind)+`"`)
		}
	}
}

func readAuthKind(d *jsonDecoder) webhook.AuthKind {
	text, ok := d.str()
	if !ok {
		return webhook.AuthNone
	}
	if required, _ := authFields(webhook.AuthKind(text)); required == nil {
		d.note(`must be "basic", "bearer" or "oauth2_client_credentials"`)
		return webhook.AuthNone
	}
	return webhook.AuthKind(text)
}

// readUsername refuses a colon, which ends the user name (RFC 7617, section 2).
func readUsername(d *jsonDecoder) string {
	name := readText(d, 1, notControl, "must not contain control characters")
	if strings.Contains(name, ":") {
		d.note("must not contain a colon")
	}
	return name
}

func (f *endpointFields) readTokenURL(d *jsonDecoder) string {
	raw, ok := d.str()
	if !ok {
		return ""
	}
	f.checkURL(d, raw)
	return raw
}

// readScopes reads scope tokens (RFC 6749, section 3.3).
func readScopes(d *jsonDecoder) []string {
	var scopes []string
	d.array(func(i int) {
		if i == webhook.MaxTokenScopes {
			d.noteParent("has more than " + strconv.Itoa(webhook.MaxTokenScopes) + " entries")
		}
		if i >= webhook.MaxTokenScopes { // each entry is compared with all earlier ones
			d.skip()
			return
		}
		scope := readText(d, 1, inScope, "must be printable ASCII without spaces, quotes and backslashes")
		if slices.Contains(scopes, scope) {
			d.note("is listed more than once")
		}
		scopes = append(scopes, scope)
	})
	return scopes
}

// readText reads a string of at least the given number of bytes and at most MaxCredentialBytes
// whose characters are all allowed.
func readText(d *jsonDecoder, least int, allowed func(rune) bool, otherwise string) string {
	text, ok := d.str()
	switch {
	case !ok:
	case len(text) < least:
		d.note("must not be empty")
	case text == webhook.Redacted:
		d.note("is " + webhook.Redacted + ", which is not accepted here; send the value itself")
	case len(text) > webhook.MaxCredentialBytes:
		d.note("must not be longer than " + strconv.Itoa(webhook.MaxCredentialBytes) + " bytes")
	case strings.ContainsFunc(text, func(c rune) bool { return !allowed(c) }):
		d.note(otherwise)
	}
	return text
}

func notControl(c rune) bool     { return c >= ' ' && (c < 0x7f || c > 0x9f) }
func spaceOrVisible(c rune) bool { return c >= ' ' && c <= '~' }
func inScope(c rune) bool        { return visible(c) && c != '"' && c != '\\' }
func visible(c rune) bool        { return c > ' ' && c <= '~' }

// readCertificate reads a client certificate with its private key. An object without both keeps those of the current one, if there
// is one; unknown reports that there may be.
func (f *endpointFields) readCertificate(d *jsonDecoder, current webhook.ClientCertificate, unknown bool) webhook.ClientCertificate {
	var c webhook.ClientCertificate
	var given []string
	before := len(d.errs)
	d.object(func(name []byte) {
		given = append(given, string(name))
		switch string(name) {
		case "certificate":
			c.Certificate = readPEM(d)
		case "key":
			c.Key = readPEM(d)
		case "max_tls":
			set(d, &c.MaxTLS, webhook.MaxTLSAny, readMaxTLS)
		default:
			given = given[:len(given)-1]
			d.unknown()
		}
	})
	if slices.Equal(given, []string{"max_tls"}) && (unknown || !current.IsZero()) {
		c.Certificate, c.Key = current.Certificate, current.Key
		return c
	}
	if d.broken || len(d.errs) > before {
		return c
	}
	for _, name := range []string{"certificate", "key"} {
		if !slices.Contains(given, name) {
			d.noteIn(name, "is required")
		}
	}
	if len(d.errs) > before {
		return c
	}
	if err := c.Check(f.now()); errors.Is(err, webhook.ErrKey) {
		d.noteIn("key", err.Error())
	} else if err != nil {
		d.noteIn("certificate", err.Error())
	}
	return c
}

func readMaxTLS(d *jsonDecoder) webhook.MaxTLS {
	text, ok := d.str()
	if ok && text != string(webhook.MaxTLS12) {
		d.note(`must be "1.2" or null`)
	}
	return webhook.MaxTLS(text)
}

func readPEM(d *jsonDecoder) string {
	text, ok := d.str()
	if ok && len(text) > webhook.MaxCertificateBytes {
		d.note("must not be longer than " + strconv.Itoa(webhook.MaxCertificateBytes) + " bytes")
	}
	return text
}

// checkAuth checks the credentials against the other fields of the endpoint.
func checkAuth(e *webhook.Endpoint) error {
	var fields []webhook.FieldError
	if e.Auth.Kind != webhook.AuthNone {
		for name := range e.Headers {
			if strings.EqualFold(name, "Authorization") {
				fields = append(fields, webhook.FieldError{Field: "headers." + name, Message: "cannot be set together with auth, which sets this header"})
			}
		}
	}
	if !e.Certificate.IsZero() && strings.HasPrefix(strings.ToLower(e.URL), "http:") {
		fields = append(fields, webhook.FieldError{Field: "client_certificate", Message: "needs an https URL"})
	}
	if fields == nil {
		return nil
	}
	return &webhook.Error{Code: webhook.CodeInvalid, Message: invalidRequest, Fields: fields}
}
