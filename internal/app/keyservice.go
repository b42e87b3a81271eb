package app

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/everpost/everpost/internal/postgres/encryption"
	"github.com/everpost/everpost/internal/vault"
)

// keyServiceEvery is how often the key management service is checked, for /readyz: without
// that, an outage would show only when a secret is read or written.
const keyServiceEvery = 15 * time.Second

// usesKeyService reports whether a key management service holds the current key.
func (a *App) usesKeyService() bool {
	k := &a.options.Config.KEKs
	return a.keys != nil && k.KEKVaultAddr != "" && !k.KEKVaultOld
}

// watchKeyService checks the key management service until ctx ends.
func (a *App) watchKeyService(ctx context.Context) {
	tick := time.Tick(a.keyServiceEvery)
	for {
		was, is := a.keyServiceState(), a.askKeyService(ctx)
		if ctx.Err() != nil {
			return
		}
		a.keyService.Store(&is)
		if is != "ok" && is != was {
			a.log.WarnContext(ctx, "the key management service cannot be used: requests that need encryption get 503, "+
				"and endpoints that are not in the cache get no requests", "it", is)
		}
		select {
		case <-tick:
		case <-ctx.Done():
			return
		}
	}
}

func (a *App) askKeyService(ctx context.Context) string {
	_, err := a.keys.Current(ctx)
	switch {
	case err == nil:
		return "ok"
	case errors.Is(err, vault.ErrRefused):
		return "refuses"
	}
	return "does not answer"
}

// keyServiceState is the result of the last check: ok, refuses or does not answer; "" before the
// first one, and without a key management service.
func (a *App) keyServiceState() string {
	if state := a.keyService.Load(); state != nil {
		return *state
	}
	return ""
}

// checkKeys returns an error if a key that stored secrets need is missing. Without this check,
// endpoints would fail one by one, and an API with another key would encrypt secrets that no
// other process can read. Keys in EVERPOST_KEK_LOST are not required.
func (a *App) checkKeys(ctx context.Context) error {
	if a.keys == nil {
		return nil
	}
	uses, err := a.store.Encryption.KEKUses(ctx)
	if err != nil {
		return err
	}
	missing := usesOf(uses, func(id string) bool { return !a.keys.Knows(id) && !a.options.Config.IsLost(id) })
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
