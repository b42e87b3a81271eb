package app

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/everpost/everpost/internal/config"
	"github.com/everpost/everpost/internal/postgres/encryption"
	"github.com/everpost/everpost/internal/postgres/stores"
	"github.com/everpost/everpost/internal/vault"
	"github.com/everpost/everpost/internal/webhook"
)

// rewrapConns is enough for a rewrap, which runs one statement at a time.
const rewrapConns = 2

// RewrapProgress is the progress of a rewrap.
type RewrapProgress = encryption.RewrapProgress

// KEKUse is how many rows are encrypted with a key-encryption key.
type KEKUse struct {
	encryption.KEKUse

	Current bool // the key encrypts new secrets
	Known   bool // the key is in the settings
}

// Rewrapping is the result of a rewrap.
type Rewrapping struct {
	Rows       int64    // re-encrypted with the current key
	Unreadable int64    // cannot be decrypted, and are unchanged
	Named      []string // the first of those
	Left       int64    // still need another key, the unreadable included
	Uses       []KEKUse
}

// Rewraps are a store and its key-encryption keys. Close it.
type Rewraps struct {
	store *stores.DB
	keys  *vault.Vault
}

// OpenRewraps opens a store with its keys.
func OpenRewraps(ctx context.Context, databaseURL string, keks config.KEKs, logger *slog.Logger) (*Rewraps, error) {
	if err := CheckDatabase(databaseURL); err != nil {
		return nil, err
	}
	keys, err := loadVault(keks)
	if err != nil {
		return nil, err
	}
	if keys == nil {
		return nil, errNoKEK
	}
	store, err := stores.Open(ctx, stores.Config{URL: databaseURL, MaxConns: rewrapConns, Sealer: sealer{keys}, Logger: logger})
	if err != nil {
		keys.Close()
		return nil, err
	}
	return &Rewraps{store, keys}, nil
}

// Close closes the store.
func (r *Rewraps) Close() {
	r.store.Close()
	r.keys.Close()
}

// Look reads which keys are in use. It changes nothing.
func (r *Rewraps) Look(ctx context.Context) (Rewrapping, error) {
	current, err := sealer{r.keys}.Current(ctx)
	if err != nil {
		return Rewrapping{}, fmt.Errorf("ask for the key that encrypts: %w", err)
	}
	found, err := r.store.Encryption.KEKUses(ctx)
	return r.said(encryption.Rewrapped{Current: current, Uses: found}), err
}

// Rewrap re-encrypts everything with the current key.
func (r *Rewraps) Rewrap(ctx context.Context, progress func(RewrapProgress)) (Rewrapping, error) {
	done, err := r.store.Encryption.Rewrap(ctx, webhook.Actor{Name: "command line"}, sealer{r.keys}, progress)
	return r.said(done), err
}

func (r *Rewraps) said(done encryption.Rewrapped) Rewrapping {
	said := Rewrapping{Rows: done.Rows, Unreadable: done.Unreadable, Named: done.Named}
	for _, use := range done.Uses {
		current := use.KEKID == done.Current
		if !current {
			said.Left += use.Rows
		}
		said.Uses = append(said.Uses, KEKUse{use, current, r.keys.Knows(use.KEKID)})
	}
	return said
}
