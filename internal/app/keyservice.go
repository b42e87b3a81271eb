package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"github.com/everpost/everpost/internal/config"
	"github.com/everpost/everpost/internal/postgres/encryption"
	"github.com/everpost/everpost/internal/vault"
)

// keyServiceEvery is how often the key management service is checked, for /readyz: without
// that, an outage would show only when a secret is read or written.
const keyServiceEvery = 15 * time.Second

// keyService is the key management service that holds the current key.
type keyService struct {
	keys  *vault.Vault
	every time.Duration // keyServiceEvery, except in tests
	log   *slog.Logger
	last  atomic.Pointer[string] // the result of the last check
}

// usesKeyService reports whether a key management service holds the current key.
func usesKeyService(k *config.KEKs) bool { return k.KEKVaultAddr != "" && !k.KEKVaultOld }

// watch checks the service until ctx ends.
func (k *keyService) watch(ctx context.Context) {
	tick := time.Tick(k.every)
	for {
		was, is := k.state(), k.ask(ctx)
		if ctx.Err() != nil {
			return
		}
		k.last.Store(&is)
		if is != "ok" && is != was {
			k.log.WarnContext(ctx, "the key management service cannot be used: requests that need encryption get 503, "+
				"and endpoints that are not in the cache get no requests", "it", is)
		}
		select {
		case <-tick:
		case <-ctx.Done():
			return
		}
	}
}

func (k *keyService) ask(ctx context.Context) string {
	_, err := k.keys.Current(ctx)
	switch {
	case err == nil:
		return "ok"
	case errors.Is(err, vault.ErrRefused):
		return "refuses"
	}
	return "does not answer"
}

// state is the result of the last check: ok, refuses or does not answer; "" before the first one, and without a service.
func (k *keyService) state() string {
	if state := k.last.Load(); state != nil {
		return *state
	}
	return ""
}

// checkKeys returns an error if a key that stored secrets need is missing. Without this check,
// endpoints would fail one by one, and an API with another key would encrypt secrets that no
// other process can read. Keys in EVERPOST_KEK_LOST are not required.
func checkKeys(ctx context.Context, c *config.Config, keys *vault.Vault, store *encryption.Encryption) error {
	if keys == nil {
		return nil
	}
	uses, err := store.KEKUses(ctx)
	if err != nil {
		return err
	}
	missing := usesOf(uses, func(id string) bool { return !keys.Knows(id) && !c.IsLost(id) })
	if missing == "" {
		return nil
	}
	return fmt.Errorf("EVERPOST_KEK_OLD_FILES: the key that encrypts %s is not known; add it there, to EVERPOST_KEK_OLD, "+
		"or as Vault's with EVERPOST_KEK_VAULT_OLD (if it is permanently lost, name its id in EVERPOST_KEK_LOST)", missing)
}

// usesOf describes what is encrypted with the keys that match, "" for nothing.
func usesOf(uses []encryption.KEKUse, match func(kekID string) bool) string {
	var texts []string
	for _, use := range uses {
		if match(use.KEKID) {
			texts = append(texts, fmt.Sprintf("%d %s (%s)", use.Rows, use.What, use.KEKID))
		}
	}
	return strings.Join(texts, " and ")
}
