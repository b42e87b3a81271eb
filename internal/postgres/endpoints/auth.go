package endpoints

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/everpost/everpost/internal/postgres"
	"github.com/everpost/everpost/internal/webhook"
)

// authRow is the encrypted part of an endpoint's credentials, as JSON. Fields may be added; a name never
// changes its meaning.
type authRow struct {
	Kind         webhook.AuthKind `json:"kind,omitempty"`
	Username     string           `json:"username,omitempty"`
	Password     string           `json:"password,omitempty"`
	Token        string           `json:"token,omitempty"`
	TokenURL     string           `json:"token_url,omitempty"`
	ClientID     string           `json:"client_id,omitempty"`
	ClientSecret string           `json:"client_secret,omitempty"`
	Scopes       []string         `json:"scopes,omitempty"`
	Audience     string           `json:"audience,omitempty"`

	Certificate string         `json:"certificate,omitempty"`
	Key         string         `json:"key,omitempty"`
	MaxTLS      webhook.MaxTLS `json:"max_tls,omitempty"`

	URL string `json:"url,omitempty"` // of an internal endpoint
}

// AuthPlace is what the sealed credentials of an endpoint are bound to.
func AuthPlace(e *webhook.Endpoint) string { return e.TenantID + "|" + e.ID.String() + "|auth" }

func (s *Endpoints) sealAuth(ctx context.Context, e *webhook.Endpoint) (sealedColumns, error) {
	if e.Auth.Kind == webhook.AuthNone && e.Certificate.IsZero() && !e.Internal {
		return sealedColumns{}, nil
	}
	url := ""
	if e.Internal {
		url = e.URL
	}
	text, err := json.Marshal(authRow{ //nolint:gosec // it is sealed in the next step
		Kind: e.Auth.Kind, Username: e.Auth.Username, Password: e.Auth.Password, Token: e.Auth.Token,
		TokenURL: e.Auth.TokenURL, ClientID: e.Auth.ClientID, ClientSecret: e.Auth.ClientSecret, Scopes: e.Auth.Scopes, Audience: e.Auth.Audience,
		Certificate: e.Certificate.Certificate, Key: e.Certificate.Key, MaxTLS: e.Certificate.MaxTLS,
		URL: url,
	})
	if err != nil {
		return sealedColumns{}, fmt.Errorf("seal credentials: %w", err)
	}
	sealed, err := s.sealer.Seal(ctx, string(text), AuthPlace(e))
	if err != nil {
		return sealedColumns{}, fmt.Errorf("seal credentials: %w", err)
	}
	return sealedColumns{&sealed.KEKID, sealed.WrappedKey, sealed.Nonce, sealed.Ciphertext}, nil
}

func (s Reader) openAuth(ctx context.Context, e *webhook.Endpoint, c sealedColumns) error {
	if c.kekID == nil {
		return nil
	}
	text, err := s.sealer.Open(ctx, postgres.Sealed{KEKID: *c.kekID, WrappedKey: c.wrappedKey, Nonce: c.nonce, Ciphertext: c.ciphertext}, AuthPlace(e))
	if err != nil {
		return fmt.Errorf("open credentials: %w", err)
	}
	var row authRow
	if err := json.Unmarshal([]byte(text), &row); err != nil {
		return fmt.Errorf("open credentials: %w", errAuth)
	}
	e.Auth = webhook.Auth{
		Kind: row.Kind, Username: row.Username, Password: row.Password, Token: row.Token,
		TokenURL: row.TokenURL, ClientID: row.ClientID, ClientSecret: row.ClientSecret, Scopes: row.Scopes, Audience: row.Audience,
	}
	e.Certificate = webhook.ClientCertificate{Certificate: row.Certificate, Key: row.Key, MaxTLS: row.MaxTLS}
	if e.Internal {
		e.URL = row.URL
	}
	return nil
}

// errAuth replaces the decoder's error, which would quote the credentials.
var errAuth = errors.New("not a JSON object of credentials")
