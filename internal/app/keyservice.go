package app

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/everpost/everpost/internal/vault"
)

// keyServiceEvery is how often a key management service is asked whether it still
// encrypts, for /readyz: a refusal is else seen only when something is to be encrypted.
const keyServiceEvery = 15 * time.Second

// usesKeyService reports whether it is a key management service that encrypts.
func (a *App) usesKeyService() bool {
	k := &a.options.Config.KEKs
	return a.keys != nil && k.KEKVaultAddr != "" && !k.KEKVaultOld
}

// watchKeyService asks the key management service, until ctx ends.
func (a *App) watchKeyService(ctx context.Context) {
	tick := time.NewTicker(a.keyServiceEvery)
	defer tick.Stop()
	for {
		was, is := a.keyServiceState(), a.askKeyService(ctx)
		if ctx.Err() != nil {
			return
		}
		a.keyService.Store(&is)
		if is != "ok" && is != was {
			a.log.WarnContext(ctx, "the key management service cannot be used: what has to be encrypted is answered with 503, "+
				"and endpoints that are not known cannot be sent to", "it", is)
		}
		select {
		case <-tick.C:
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

// keyServiceState is what was found out last: ok, refuses or does not answer; "" as long
// as nothing was, and without a key management service.
func (a *App) keyServiceState() string {
	if state := a.keyService.Load(); state != nil {
		return *state
	}
	return ""
}

// checkKeys refuses to start without a key that something in the store is encrypted
// with: endpoints that cannot be signed for would else be noticed one by one, and what an
// API with another key encrypts could be opened by nobody else. Keys that are named as lost
// are not missed.
func (a *App) checkKeys(ctx context.Context) error {
	if a.keys == nil {
		return nil
	}
	missing, err := a.missingKeys(ctx)
	if err != nil || len(missing) == 0 {
		return err
	}
	return fmt.Errorf("EVERPOST_KEK_OLD_FILES: the key that encrypts %s is not known; add it there, to EVERPOST_KEK_OLD, "+
		"or as Vault's with EVERPOST_KEK_VAULT_OLD (if it is lost for good, name its id in EVERPOST_KEK_LOST)", strings.Join(missing, " and "))
}

// missingKeys are the uses of keys that are neither known nor given up, for people.
func (a *App) missingKeys(ctx context.Context) ([]string, error) {
	uses, err := a.store.Encryption.KEKUses(ctx)
	if err != nil {
		return nil, err
	}
	var missing []string
	for _, use := range uses {
		if !a.keys.Knows(use.KEKID) && !a.options.Config.IsLost(use.KEKID) {
			missing = append(missing, fmt.Sprintf("%d %s (%s)", use.Rows, use.What, use.KEKID))
		}
	}
	return missing, nil
}
