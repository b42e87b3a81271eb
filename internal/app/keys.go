package app

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"time"

	"github.com/everpost/everpost/api"
	"github.com/everpost/everpost/internal/config"
	"github.com/everpost/everpost/internal/postgres"
	"github.com/everpost/everpost/internal/postgres/stores"
	"github.com/everpost/everpost/internal/vault"
	"github.com/everpost/everpost/internal/webhook"
)

// Migrate brings the product's database up to date.
func Migrate(ctx context.Context, c config.Config, logger *slog.Logger) error {
	if err := CheckDatabase(c.DatabaseURL); err != nil {
		return err
	}
	return postgres.Migrate(ctx, c.DatabaseURL, logger)
}

// CheckMigrated returns an error unless the product's database is at the version of this release.
func CheckMigrated(ctx context.Context, databaseURL string, logger *slog.Logger) error {
	store, err := stores.Open(ctx, stores.Config{URL: databaseURL, MaxConns: 2, Logger: logger})
	if err != nil {
		return err
	}
	defer store.Close()
	return store.Migrated(ctx)
}

// CheckDatabase returns an error for an EVERPOST_DATABASE_URL that is not a URL of PostgreSQL, or that
// allows connections over a network without TLS and does not say so.
func CheckDatabase(databaseURL string) error {
	err := config.CheckDatabaseURL(databaseURL)
	if err == nil {
		err = postgres.CheckEncryption(databaseURL)
	}
	if err != nil {
		return fmt.Errorf("EVERPOST_DATABASE_URL: %w", err)
	}
	return nil
}

// SoleUse is the lock that keeps other standalone installations off a database.
type SoleUse = postgres.SoleUse

// TakeSoleUse takes that lock, until Release.
func TakeSoleUse(ctx context.Context, databaseURL string, logger *slog.Logger) (*SoleUse, error) {
	return postgres.TakeSoleUse(ctx, databaseURL, logger)
}

// KeyRing creates, lists and revokes API keys without the API. Close it.
type KeyRing struct {
	store *stores.DB
}

// OpenKeys opens the keys of a database.
func OpenKeys(ctx context.Context, c config.Config, logger *slog.Logger) (*KeyRing, error) {
	if err := CheckDatabase(c.DatabaseURL); err != nil {
		return nil, err
	}
	store, err := stores.Open(ctx, stores.Config{URL: c.DatabaseURL, MaxConns: 2, Logger: logger})
	if err != nil {
		return nil, err
	}
	return &KeyRing{store}, nil
}

// Close closes the database.
func (k *KeyRing) Close() { k.store.Close() }

// Create creates a key and returns its text, which cannot be read again. Without a
// tenant it is an operator key.
func (k *KeyRing) Create(ctx context.Context, tenantID, name string, scope webhook.Scope, expires time.Time) (webhook.Key, string, error) {
	if tenantID == "" {
		scope = webhook.ScopeOperator
	} else if _, err := k.store.Tenants.Tenant(ctx, tenantID); err != nil {
		return webhook.Key{}, "", fmt.Errorf("tenant %s: %w", tenantID, err)
	}
	key := webhook.Key{
		ID: webhook.NewKeyID(), TenantID: tenantID, Scope: scope, Name: name, CreatedAt: time.Now().UTC().Truncate(time.Microsecond), ExpiresAt: expires,
	}
	text, sum := api.NewKey(key.ID)
	key.SHA256 = sum
	if err := k.store.Keys.CreateKey(ctx, webhook.Actor{Name: "command line"}, key); err != nil {
		return webhook.Key{}, "", err
	}
	return key, text, nil
}

// Lives reports whether the text is a valid key.
func (k *KeyRing) Lives(ctx context.Context, text string) (bool, error) {
	id, sum, err := api.ParseKey(text)
	if err != nil {
		return false, nil //nolint:nilerr // a text of another form is no valid key
	}
	_, err = k.store.Keys.Authenticate(ctx, id, sum)
	if webhook.CodeOf(err) == webhook.CodeUnauthenticated {
		return false, nil
	}
	return err == nil, err
}

// List returns the keys of a tenant, or the operator keys for "".
func (k *KeyRing) List(ctx context.Context, tenantID string) ([]webhook.Key, error) {
	return k.store.Keys.ListKeys(ctx, tenantID, webhook.Page{Limit: maxListedKeys})
}

const maxListedKeys = 250

// Revoke revokes a key.
func (k *KeyRing) Revoke(ctx context.Context, tenantID, keyID string) error {
	id, err := webhook.ParseKeyID(keyID)
	if err != nil {
		return errors.New("the key's id " + err.Error())
	}
	return k.store.Keys.RevokeKey(ctx, webhook.Actor{Name: "command line"}, tenantID, id)
}

// EnsureKEKFile makes a file with a new key-encryption key, unless it is there.
func EnsureKEKFile(path string) error {
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	_, err := vault.GenerateKEKFile(path)
	return err
}
