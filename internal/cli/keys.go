package cli

import (
	"context"
	"fmt"
	"path/filepath"
	"text/tabwriter"
	"time"

	"github.com/everpost/everpost/internal/app"
	"github.com/everpost/everpost/internal/config"
	"github.com/everpost/everpost/internal/credential"
	"github.com/everpost/everpost/internal/webhook"
)

// KeysCommand manages API keys and rotates the key-encryption key.
type KeysCommand struct {
	Create KeysCreateCommand `cmd:"" help:"Create a key and print it. It cannot be shown again."`
	List   KeysListCommand   `cmd:"" help:"List keys."`
	Revoke KeysRevokeCommand `cmd:"" help:"Revoke a key."`
	Rewrap KeysRewrapCommand `cmd:"" help:"Re-encrypt all secrets at rest with a new key-encryption key, without downtime."`
}

// database holds the flags of the commands that use PostgreSQL directly.
type database struct {
	DatabaseURL string `env:"EVERPOST_DATABASE_URL" help:"PostgreSQL of the product, as a postgres:// URL. Without one, that of the standalone installation in the data directory." placeholder:"URL"` //nolint:lll // a struct tag cannot be wrapped
	DataDir     string `default:".everpost" env:"EVERPOST_DATA_DIR" help:"Data directory of 'everpost standalone', which has to be running." placeholder:"DIR"`
}

// find sets the URL of the database.
func (d *database) find(p Process) error {
	if d.DatabaseURL != "" {
		return checkDatabase(&d.DatabaseURL)
	}
	if p.FindDatabase == nil {
		return usage("--database-url: is required, here or as $EVERPOST_DATABASE_URL")
	}
	dir := d.DataDir
	if absolute, err := filepath.Abs(dir); err == nil {
		dir = absolute
	}
	running, err := p.FindDatabase(dir)
	if err != nil {
		return usagef("%w; start it with 'make run', name its data directory with --data-dir, or another database with --database-url", err)
	}
	d.DatabaseURL = running
	return nil
}

// checkDatabase trims and checks the URL of a database before anything is sent to it.
func checkDatabase(url *string) (err error) {
	if *url, err = credential.Clean(*url, false); err != nil {
		return usagef("--database-url: %w", err)
	}
	if err := app.CheckDatabase(*url); err != nil {
		return Usage(err)
	}
	return nil
}

func (d *database) open(ctx context.Context, p Process) (*app.KeyRing, error) {
	if err := d.find(p); err != nil {
		return nil, err
	}
	return app.OpenKeys(ctx, config.Config{DatabaseURL: d.DatabaseURL}, p.Logger("warn"))
}

// KeysCreateCommand creates a key.
type KeysCreateCommand struct {
	database `embed:""`

	Operator  bool          `help:"Create an operator key, which may do everything." xor:"whose"`
	Tenant    string        `help:"Create a key of this tenant." placeholder:"ID" xor:"whose"`
	Scope     string        `default:"ingest" enum:"ingest,admin" help:"Scope of a tenant's key: ingest (events) or admin (everything)." placeholder:"SCOPE"`
	Name      string        `help:"A name for the key." placeholder:"NAME"`
	ExpiresIn time.Duration `help:"How long the key is valid; unlimited without it." placeholder:"DURATION"`
}

// Run creates the key and prints it.
func (c *KeysCreateCommand) Run(ctx context.Context, p Process) error {
	if !c.Operator && c.Tenant == "" {
		return usage("keys create: say whose key it is, with --operator or --tenant ID")
	}
	if c.ExpiresIn < 0 {
		return usage("keys create: --expires-in must not be negative")
	}
	keys, err := c.open(ctx, p)
	if err != nil {
		return err
	}
	defer keys.Close()
	scope, expires := webhook.ScopeIngest, time.Time{}
	if c.Scope == "admin" {
		scope = webhook.ScopeAdmin
	}
	if c.ExpiresIn > 0 {
		expires = time.Now().UTC().Add(c.ExpiresIn).Truncate(time.Microsecond)
	}
	_, text, err := keys.Create(ctx, c.Tenant, c.Name, scope, expires)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(p.Stdout, text)
	return err
}

// KeysListCommand lists keys.
type KeysListCommand struct {
	database `embed:""`

	Tenant string `help:"List the keys of this tenant; without it, the operator keys." placeholder:"ID"`
}

// Run lists them.
func (c *KeysListCommand) Run(ctx context.Context, p Process) error {
	keys, err := c.open(ctx, p)
	if err != nil {
		return err
	}
	defer keys.Close()
	found, err := keys.List(ctx, c.Tenant)
	if err != nil {
		return err
	}
	table := tabwriter.NewWriter(p.Stdout, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(table, "ID\tSCOPE\tNAME\tCREATED\tEXPIRES\tLAST USED")
	for i := range found {
		k := &found[i]
		_, _ = fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\n", k.ID, k.Scope, k.Name, formatTime(k.CreatedAt), formatTime(k.ExpiresAt), formatTime(k.LastUsedAt))
	}
	return table.Flush()
}

func formatTime(t time.Time) string {
	if t.IsZero() {
		return "never"
	}
	return t.UTC().Format(time.DateTime)
}

// KeysRevokeCommand revokes a key.
type KeysRevokeCommand struct {
	database `embed:""`

	Tenant string        `help:"The tenant whose key it is; without it, an operator key." placeholder:"ID"`
	ID     webhook.KeyID `arg:"" help:"The key's id, key_..."`
}

// Run revokes it.
func (c *KeysRevokeCommand) Run(ctx context.Context, p Process) error {
	keys, err := c.open(ctx, p)
	if err != nil {
		return err
	}
	defer keys.Close()
	if err := keys.Revoke(ctx, c.Tenant, c.ID.String()); err != nil {
		return err
	}
	_, err = fmt.Fprintln(p.Stdout, "revoked "+c.ID.String())
	return err
}
