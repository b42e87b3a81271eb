package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/everpost/everpost/internal/app"
	"github.com/everpost/everpost/internal/config"
	"github.com/everpost/everpost/internal/credential"
	"github.com/everpost/everpost/internal/localpg"
	"github.com/everpost/everpost/internal/webhook"
)

// keyFile is the path of the file with the operator's key.
func (i *instance) keyFile() string { return filepath.Join(i.command.DataDir, "operator.key") }

// writeAddresses writes the addresses of the API, of the admin listener and of Temporal into the data directory, and removes them at the
// stop. Commands with this data directory find the installation by them, and send its operator's key nowhere else.
func (i *instance) writeAddresses() error {
	for name, address := range map[string]string{
		"api.address": i.app.APIAddr(), "admin.address": i.app.AdminAddr(), "temporal.address": i.temporal.Address(),
	} {
		file := filepath.Join(i.command.DataDir, name)
		if err := localpg.ReplaceFile(file, address+"\n", 0o600); err != nil {
			return fmt.Errorf("write an address: %w", err)
		}
		i.push(func(context.Context) { _ = os.Remove(file) })
	}
	return nil
}

// prepareKeys creates the key-encryption key and the operator's key on the first start.
func (i *instance) prepareKeys(ctx context.Context) error {
	if i.command.KEKFile == config.OwnKEKFile(i.command.DataDir) {
		if err := app.EnsureKEKFile(i.command.KEKFile); err != nil {
			return err
		}
	}
	if i.command.OperatorKey != "" {
		return i.writeKeyFile(i.command.OperatorKey)
	}
	keys, err := app.OpenKeys(ctx, i.command.Config, i.log)
	if err != nil {
		return err
	}
	defer keys.Close()
	if text, err := os.ReadFile(i.keyFile()); err == nil {
		if valid, err := keys.Lives(ctx, credential.Trim(string(text))); err != nil || valid {
			return err
		}
		i.log.WarnContext(ctx, "the operator key in the file is not valid any more; creating a new one", "file", i.keyFile())
	}
	_, text, err := keys.Create(ctx, "", "standalone", webhook.ScopeOperator, time.Time{})
	if err != nil {
		return err
	}
	return i.writeKeyFile(text)
}

// writeKeyFile writes the operator's key with mode 0600.
func (i *instance) writeKeyFile(text string) error {
	if err := localpg.ReplaceFile(i.keyFile(), text+"\n", 0o600); err != nil {
		return fmt.Errorf("write the operator key: %w", err)
	}
	return nil
}
