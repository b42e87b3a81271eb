package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/everpost/everpost/internal/app"
	"github.com/everpost/everpost/internal/config"
	"github.com/everpost/everpost/internal/webhook"
)

// keyFile holds the operator's key.
func (i *instance) keyFile() string { return filepath.Join(i.command.DataDir, "operator.key") }

// prepareKeys makes the key-encryption key and the operator's key on the first start.
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

// writeKeyFile writes the operator's key.
func (i *instance) writeKeyFile(text string) error {
	if err := replaceFile(i.keyFile(), text+"\n"); err != nil {
		return fmt.Errorf("write the operator key: %w", err)
	}
	return nil
}

// replaceFile puts a new file in the place of one in one step: it is never half written, never
// readable by others, and nothing is written through a link that somebody has put there.
func replaceFile(path, text string) error {
	file, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-") // mode 0600
	if err != nil {
		return err //nolint:wrapcheck // names the directory; wrapped above
	}
	defer func() { _ = os.Remove(file.Name()) }()
	_, err = file.WriteString(text)
	if err == nil {
		err = file.Sync() // before it has its name: an empty key would be replaced by another one
	}
	if err = errors.Join(err, file.Close()); err == nil {
		err = os.Rename(file.Name(), path)
	}
	return err //nolint:wrapcheck // as above
}
