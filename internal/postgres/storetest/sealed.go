package storetest

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/postgres"
	"github.com/everpost/everpost/internal/postgres/encryption"
	"github.com/everpost/everpost/internal/postgres/stores"
	"github.com/everpost/everpost/internal/vault"
	"github.com/everpost/everpost/internal/webhook"
)

// ErrAway is the error of a key that is out of reach.
var ErrAway = &webhook.Error{Code: webhook.CodeUnavailable, Message: "the key is away"}

// TestKEK is a key-encryption key.
func TestKEK(t *testing.T, seed byte) vault.KEK {
	t.Helper()
	kek, err := vault.ParseOldKEK(base64.StdEncoding.EncodeToString(append(bytes.Repeat([]byte{seed}, 31), 0)))
	require.NoError(t, err)
	return kek
}

// SealedWith opens a store that seals with the first key and reads with all.
func SealedWith(t *testing.T, address string, current vault.KEK, older ...vault.KEK) (*Stores, VaultSealer) {
	t.Helper()
	keys := VaultSealer{Vault: vault.New(current, older...)}
	s, err := OpenStores(t.Context(), stores.Config{URL: address, MaxConns: 8, Sealer: keys, MakeSecret: TestSecret})
	require.NoError(t, err)
	t.Cleanup(s.Close)
	return s, keys
}

// SealedEndpoints makes endpoints of acme, each with a secret and headers of its own.
func SealedEndpoints(t *testing.T, s *Stores, n int) []webhook.Endpoint {
	t.Helper()
	_, _, err := s.PutTenant(t.Context(), TestActor(), webhook.Tenant{ID: "acme", Name: "Acme"})
	require.NoError(t, err)
	made := make([]webhook.Endpoint, n)
	for i := range made {
		e := TestEndpoint("acme")
		e.Headers = map[string]string{"X-Key": strconv.Itoa(i)}
		made[i], err = s.CreateEndpoint(t.Context(), TestActor(), e, fmt.Sprintf("whsec_first%d", i))
		require.NoError(t, err)
	}
	return made
}

// Uses is Uses as text.
func Uses(all []encryption.KEKUse) (texts []string) {
	for _, u := range all {
		texts = append(texts, fmt.Sprintf("%s: %d %s", u.KEKID, u.Rows, u.What))
	}
	return texts
}

// CanaryHeader must be found nowhere in plaintext.
const CanaryHeader = "CanaryHeaderValue"

// VaultSealer is a short form of internal/app's sealer. It fails on request.
type VaultSealer struct {
	*vault.Vault

	Rewraps *atomic.Int64 // how many may still be made; nil for any
}

var madeSecrets atomic.Int64 //nolint:gochecknoglobals // so that no two secrets of a process are alike

// Seal implements postgres.Sealer.
func (s VaultSealer) Seal(ctx context.Context, plaintext, additional string) (postgres.Sealed, error) {
	sealed, err := s.Vault.Seal(ctx, plaintext, additional)
	return postgres.Sealed(sealed), err
}

// Open implements postgres.Sealer.
func (s VaultSealer) Open(ctx context.Context, sealed postgres.Sealed, additional string) (string, error) {
	text, err := s.Vault.Open(ctx, vault.Sealed(sealed), additional)
	return text, unreadable(err)
}

// Rewrap implements postgres.Sealer.
func (s VaultSealer) Rewrap(ctx context.Context, sealed postgres.Sealed) (postgres.Sealed, error) {
	if s.Rewraps != nil && s.Rewraps.Add(-1) < 0 {
		return postgres.Sealed{}, ErrAway
	}
	rewrapped, err := s.Vault.Rewrap(ctx, vault.Sealed(sealed))
	return postgres.Sealed(rewrapped), unreadable(err)
}

func unreadable(err error) error {
	if errors.Is(err, vault.ErrTampered) || errors.Is(err, vault.ErrUnknownKEK) {
		return fmt.Errorf("%w: %w", encryption.ErrUnreadable, err)
	}
	return err
}
