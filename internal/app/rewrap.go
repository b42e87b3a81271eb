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

// rewrapConns serve a rewrapping, which makes one statement at a time.
const rewrapConns = 2

// RewrapProgress is where a rewrapping is.
type RewrapProgress = encryption.RewrapProgress

// KEKUse is how much is sealed with a key-encryption key.
type KEKUse struct {
	encryption.KEKUse

	Current bool // it seals what is sealed now
	Known   bool // it is among the settings
}

// Rewrapping is what a rewrapping did, and what it left.
type Rewrapping struct {
	Rows       int64    // moved to the current key
	Unreadable int64    // do not open, and were left
	Named      []string // the first of those
	Left       int64    // need another key than the current one, the unreadable among them
	Uses       []KEKUse
}

// Rewraps are the key-encryption keys of a store and what they seal. Close it.
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

// Look says which keys are in use, and changes nothing.
func (r *Rewraps) Look(ctx context.Context) (Rewrapping, error) {
	current, err := sealer{r.keys}.Current(ctx)
	if err != nil {
		return Rewrapping{}, fmt.Errorf("ask for the key that encrypts: %w", err)
	}
	found, err := r.store.Encryption.KEKUses(ctx)
	return r.said(encryption.Rewrapped{Current: current, Uses: found}), err
}

// Rewrap moves everything to the current key.
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
