package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/everpost/everpost/internal/app"
	"github.com/everpost/everpost/internal/config"
	"github.com/everpost/everpost/internal/printable"
)

// KeysRewrapCommand rotates the key-encryption key.
type KeysRewrapCommand struct {
	database    `embed:""`
	config.KEKs `embed:""`

	Check bool `help:"Only list the keys in use; change nothing."`
}

// Run rewraps all secrets with the current key and prints the result.
func (c *KeysRewrapCommand) Run(ctx context.Context, p Process) error {
	named := c.DatabaseURL != ""
	if err := c.find(p); err != nil {
		return err
	}
	if !named {
		c.AddOwn(config.OwnKEKFile(c.DataDir))
	}
	if err := c.RequireKEK(); err != nil {
		return usageError{err}
	}
	keys, err := app.OpenRewraps(ctx, c.DatabaseURL, c.KEKs, p.Logger("warn"))
	if err != nil {
		return err
	}
	defer keys.Close()
	if c.Check {
		found, err := keys.Look(ctx)
		if err != nil {
			return err
		}
		return printUses(p.Stdout, found)
	}
	done, err := keys.Rewrap(ctx, func(at app.RewrapProgress) {
		_, _ = fmt.Fprintf(p.Stdout, "%s: %d rewrapped, %d to go\n", at.What, at.Done, at.Remaining)
	})
	if err != nil {
		return fmt.Errorf("%w; %d rows were rewrapped and stay so: run it again to go on", err, done.Rows)
	}
	return printRewrapped(p.Stdout, done)
}

// printUses lists which key encrypts what.
func printUses(out io.Writer, found app.Rewrapping) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(table, "KEY\tSTATE\tENCRYPTS\tROWS")
	for _, use := range found.Uses {
		state := "old"
		switch {
		case use.Current:
			state = "current"
		case !use.Known:
			state = "NOT KNOWN"
		}
		_, _ = fmt.Fprintf(table, "%s\t%s\t%s\t%d\n", printable.Text(use.KEKID), state, use.What, use.Rows)
	}
	return table.Flush()
}

// printRewrapped prints the result. The error says what is left to do.
func printRewrapped(out io.Writer, done app.Rewrapping) error {
	if err := printUses(out, done); err != nil {
		return err
	}
	_, _ = fmt.Fprintf(out, "%d rows rewrapped\n", done.Rows)
	switch {
	case done.Unreadable > 0:
		for _, name := range done.Named {
			_, _ = fmt.Fprintln(out, printable.Text(name))
		}
		return fmt.Errorf("%d rows cannot be decrypted with the keys that are set, and were left as they are; "+
			"name the missing keys in EVERPOST_KEK_OLD_FILES, or create those endpoints again", done.Unreadable)
	case done.Left > 0:
		return errors.New("some rows still need an older key: a process writes with it, or held them; " +
			"see that every process has the new settings, and run it again")
	}
	_, err := fmt.Fprintln(out, "no older key is needed any more")
	return err
}
