package app

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/everpost/everpost/internal/config"
	"github.com/everpost/everpost/internal/postgres"
	"github.com/everpost/everpost/internal/postgres/encryption"
	"github.com/everpost/everpost/internal/signature"
	"github.com/everpost/everpost/internal/vault"
	"github.com/everpost/everpost/internal/webhook"
)

// kmsPause is the Retry-After while the key management service is away.
const kmsPause = 5 * time.Second

// sealer encrypts for the store, with the vault.
type sealer struct{ vault *vault.Vault }

func (s sealer) Seal(ctx context.Context, plaintext, additional string) (postgres.Sealed, error) {
	if s.vault == nil {
		return postgres.Sealed{}, errNoKEK
	}
	sealed, err := s.vault.Seal(ctx, plaintext, additional)
	if err != nil {
		return postgres.Sealed{}, fmt.Errorf("encrypt a secret: %w", ofVault(err))
	}
	return postgres.Sealed(sealed), nil
}

func (s sealer) Open(ctx context.Context, sealed postgres.Sealed, additional string) (string, error) {
	if s.vault == nil {
		return "", errNoKEK
	}
	plaintext, err := s.vault.Open(ctx, vault.Sealed(sealed), additional)
	if err != nil {
		return "", fmt.Errorf("decrypt a secret: %w", ofVault(err))
	}
	return plaintext, nil
}

// Current is the id of the key that encrypts.
func (s sealer) Current(ctx context.Context) (string, error) {
	if s.vault == nil {
		return "", errNoKEK
	}
	id, err := s.vault.Current(ctx)
	return id, ofVault(err)
}

// Rewrap wraps a data key with the key that encrypts.
func (s sealer) Rewrap(ctx context.Context, sealed postgres.Sealed) (postgres.Sealed, error) {
	rewrapped, err := s.vault.Rewrap(ctx, vault.Sealed(sealed))
	return postgres.Sealed(rewrapped), ofVault(err)
}

// ofVault gives CodeUnavailable to an outage of the key management service and to its refusal, which
// pass with time, and returns other errors as the store expects them.
func ofVault(err error) error {
	if errors.Is(err, vault.ErrTampered) || errors.Is(err, vault.ErrUnknownKEK) {
		return fmt.Errorf("%w: %w", encryption.ErrUnreadable, err)
	}
	switch {
	case errors.Is(err, vault.ErrRefused):
		return &webhook.Error{
			Code: webhook.CodeUnavailable, RetryAfter: kmsPause, Err: err,
			Message: "the key management service refuses; an operator has to renew its access",
		}
	case errors.Is(err, vault.ErrUnavailable):
		return &webhook.Error{
			Code: webhook.CodeUnavailable, Message: "the key that encrypts secrets cannot be reached", RetryAfter: kmsPause, Err: err,
		}
	}
	return err
}

var errNoKEK = errors.New("there is no key-encryption key: set EVERPOST_KEK_FILE, EVERPOST_KEK or EVERPOST_KEK_VAULT_ADDR")

// loadVault reads the key-encryption keys; it returns nil if there are none. It does not yet
// contact a key management service.
func loadVault(c config.KEKs) (*vault.Vault, error) {
	if !c.AnyKEK() {
		return nil, nil //nolint:nilnil // a process that handles no secrets needs none
	}
	older, err := oldKEKs(c)
	if err != nil {
		return nil, err
	}
	var current vault.KEK
	switch {
	case c.KEKFile != "":
		current, err = named("EVERPOST_KEK_FILE")(vault.LoadKEKFile(c.KEKFile))
	case c.KEK != "":
		current, err = named("EVERPOST_KEK")(vault.ParseKEK(c.KEK))
	default:
		current, err = openTransit(c)
	}
	if err != nil {
		return nil, err
	}
	return vault.New(current, older...), nil
}

// oldKEKs are the keys that only decrypt.
func oldKEKs(c config.KEKs) (older []vault.KEK, err error) {
	for _, path := range c.KEKOldFiles {
		kek, err := named("EVERPOST_KEK_OLD_FILES")(vault.LoadOldKEKFile(path))
		if err != nil {
			return nil, err
		}
		older = append(older, kek)
	}
	for _, text := range c.KEKOld {
		kek, err := named("EVERPOST_KEK_OLD")(vault.ParseOldKEK(text))
		if err != nil {
			return nil, err
		}
		older = append(older, kek)
	}
	if c.KEKVaultOld {
		kek, err := openTransit(c)
		if err != nil {
			return nil, err
		}
		older = append(older, kek)
	}
	return older, nil
}

// named adds the setting to an error, and to that of a weak key what to do.
func named(setting string) func(*vault.StaticKEK, error) (vault.KEK, error) {
	return func(kek *vault.StaticKEK, err error) (vault.KEK, error) {
		if errors.Is(err, vault.ErrWeakKEK) {
			err = fmt.Errorf("%w; 'openssl rand -base64 32' makes another. What this one has encrypted is read "+
				"if EVERPOST_KEK_OLD_FILES or EVERPOST_KEK_OLD names it, until 'everpost keys rewrap' has replaced it", err)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", setting, err)
		}
		return kek, nil
	}
}

func openTransit(c config.KEKs) (vault.KEK, error) {
	roots, err := c.VaultRootCAs()
	if err != nil {
		return nil, fmt.Errorf("EVERPOST_KEK_VAULT_CA_FILE: %w", err)
	}
	kek, err := vault.NewTransit(vault.TransitConfig{
		Address: c.KEKVaultAddr, Mount: c.KEKVaultMount, Key: c.KEKVaultKey, Namespace: c.KEKVaultNamespace,
		Token: c.KEKVaultToken, TokenFile: c.KEKVaultTokenFile, RootCAs: roots, Timeout: c.KEKVaultTimeout,
	})
	if err != nil {
		return nil, fmt.Errorf("EVERPOST_KEK_VAULT_…: %w", err)
	}
	return kek, nil
}

// makeSecret makes a secret for a signature scheme.
func makeSecret(scheme string) (webhook.NewSecret, error) {
	if scheme != webhook.SignatureV1a {
		secret, err := signature.GenerateHMAC(rand.Reader)
		return webhook.NewSecret{Secret: secret.Reveal()}, err
	}
	secret, err := signature.GenerateEd25519(rand.Reader)
	if err != nil {
		return webhook.NewSecret{}, err
	}
	public, _ := secret.Public()
	return webhook.NewSecret{Secret: secret.Reveal(), PublicKey: public.String()}, nil
}
