package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/everpost/everpost/internal/app"
	"github.com/everpost/everpost/internal/webhook"
)

// keyFile holds the operator's key.
func (i *instance) keyFile() string { return filepath.Join(i.command.DataDir, "operator.key") }

// ownKEKFile holds the key-encryption key of a data directory.
func (c *standaloneCommand) ownKEKFile() string { return filepath.Join(c.DataDir, "kek") }

// resolveKEK settles which key encrypts: the data directory's own, unless another one is
// set. Then the own one, if there is one, is known for reading: what it has encrypted is
// in the record until it is rewrapped.
func (c *standaloneCommand) resolveKEK() {
	own := c.ownKEKFile()
	if !c.AnyKEK() {
		c.KEKFile = own
		return
	}
	known := slices.ContainsFunc(append([]string{c.KEKFile}, c.KEKOldFiles...), func(file string) bool { return sameFile(file, own) })
	if _, err := os.Stat(own); err == nil && !known {
		c.KEKOldFiles = append(c.KEKOldFiles, own)
	}
}

func sameFile(a, b string) bool {
	one, err := os.Stat(a)
	if err != nil {
		return false
	}
	other, err := os.Stat(b)
	return err == nil && os.SameFile(one, other)
}

// prepareKeys makes the key-encryption key and the operator's key on the first start.
func (i *instance) prepareKeys(ctx context.Context) error {
	if i.command.KEKFile == i.command.ownKEKFile() {
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
		if lives, err := keys.Lives(ctx, strings.TrimSpace(string(text))); err != nil || lives {
			return err
		}
		i.log.WarnContext(ctx, "the operator key in the file is not valid any more; making a new one", "file", i.keyFile())
	}
	_, text, err := keys.Create(ctx, "", "standalone", webhook.ScopeOperator, time.Time{})
	if err != nil {
		return err
	}
	return i.writeKeyFile(text)
}

// writeKeyFile replaces the file in one step: it is never half written and never
// readable by others.
func (i *instance) writeKeyFile(text string) error {
	file, err := os.CreateTemp(i.command.DataDir, ".operator.key-") // mode 0600
	if err != nil {
		return fmt.Errorf("write the operator key: %w", err)
	}
	defer func() { _ = os.Remove(file.Name()) }()
	_, err = file.WriteString(text + "\n")
	if err = errors.Join(err, file.Close()); err == nil {
		err = os.Rename(file.Name(), i.keyFile())
	}
	if err != nil {
		return fmt.Errorf("write the operator key: %w", err)
	}
	return nil
}
