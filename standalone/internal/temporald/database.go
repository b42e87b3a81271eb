package temporald

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/iancoleman/strcase"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jmoiron/sqlx"
	persistencespb "go.temporal.io/server/api/persistence/v1"
	"go.temporal.io/server/common/config"
	"go.temporal.io/server/common/persistence/sql/sqlplugin/postgresql"
	"go.temporal.io/server/common/persistence/sql/sqlplugin/postgresql/driver"
	v12 "go.temporal.io/server/schema/postgresql/v12"
	"go.temporal.io/server/tools/common/schema"
	sqltool "go.temporal.io/server/tools/sql"
	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/proto"
)

// The databases of the server.
const (
	MainDatabase       = "everpost_temporal"
	VisibilityDatabase = "everpost_visibility"
)

const (
	// Each of the four services has a pool of its own to each database.
	maxConnections     = 12
	maxIdleConnections = maxConnections // fewer, and under load connections are closed and made again all the time

	// Connections is the most that a server opens.
	Connections = 4 * 2 * maxConnections
)

// SQL states, https://www.postgresql.org/docs/current/errcodes-appendix.html.
const (
	duplicateDatabase     = "42P04"
	undefinedTable        = "42P01"
	insufficientPrivilege = "42501"
)

// databases is a PostgreSQL with the two databases of the server in it.
type databases struct {
	url *url.URL
}

// openDatabases checks the PostgreSQL and makes the databases when absent.
func openDatabases(ctx context.Context, databaseURL string) (*databases, error) {
	u, err := parseURL(databaseURL)
	if err != nil {
		return nil, err
	}
	conn, err := pgx.Connect(ctx, databaseURL)
	if err != nil {
		return nil, fmt.Errorf("connect to PostgreSQL: %w", err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()

	// Passwords also come from the environment and from files, which only pgx knows how to read.
	u.User = url.UserPassword(conn.Config().User, conn.Config().Password)
	dbs := &databases{url: u}

	var allowed int
	const limit = `SELECT current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int`
	if err := conn.QueryRow(ctx, limit).Scan(&allowed); err != nil {
		return nil, fmt.Errorf("read max_connections: %w", err)
	}
	if allowed < Connections {
		return nil, fmt.Errorf("PostgreSQL allows %d connections, Temporal alone opens up to %d: set max_connections to 200 or more", allowed, Connections)
	}
	for _, name := range []string{MainDatabase, VisibilityDatabase} {
		if err := createDatabase(ctx, conn, name); err != nil {
			return nil, err
		}
	}
	return dbs, nil
}

// CreateDatabases makes the two databases in a PostgreSQL when absent, and returns the address of
// MainDatabase: the process that holds its lock owns the server, whichever other databases it uses.
func CreateDatabases(ctx context.Context, databaseURL string) (address string, err error) {
	dbs, err := openDatabases(ctx, databaseURL)
	if err != nil {
		return "", err
	}
	return dbs.urlOf(MainDatabase), nil
}

func parseURL(s string) (*url.URL, error) {
	u, err := url.Parse(s)
	if err != nil || (u.Scheme != "postgres" && u.Scheme != "postgresql") {
		// What was given is not quoted: it may hold a password.
		return nil, errors.New("database URL: want postgres://user:password@host:port/database")
	}
	return u, nil
}

func createDatabase(ctx context.Context, conn *pgx.Conn, name string) error {
	var found bool
	if err := conn.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)`, name).Scan(&found); err != nil {
		return fmt.Errorf("look for database %s: %w", name, err)
	}
	if found {
		return nil
	}
	_, err := conn.Exec(ctx, "CREATE DATABASE "+pgx.Identifier{name}.Sanitize())
	switch sqlState(err) {
	case "", duplicateDatabase:
		return nil
	case insufficientPrivilege:
		return fmt.Errorf("make database %s: user %s may not: make it yourself, with that user as its owner: %w", name, conn.Config().User, err)
	default:
		return fmt.Errorf("make database %s: %w", name, err)
	}
}

// sqlState returns the code of a database error, "" for nil, and "?" for any other error.
func sqlState(err error) string {
	if err == nil {
		return ""
	}
	if pgErr, ok := errors.AsType[*pgconn.PgError](err); ok {
		return pgErr.Code
	}
	return "?"
}

// connect opens a connection to one of the databases.
func (d *databases) connect(ctx context.Context, name string) (*pgx.Conn, error) {
	conn, err := pgx.Connect(ctx, d.urlOf(name))
	if err != nil {
		return nil, fmt.Errorf("connect to database %s: %w", name, err)
	}
	return conn, nil
}

// urlOf is the address of one of the databases, with what the given one says else.
func (d *databases) urlOf(name string) string {
	u := *d.url
	u.Path = "/" + name
	return u.String()
}

// store says how the server reaches one of the databases: by the plugin's own driver, with storeURL as the address. An
// address that the plugin composes has a plus sign for a space in a password, and no TLS unless the URL asks for it.
func (d *databases) store(name string) *config.SQL {
	return &config.SQL{
		PluginName:   postgresql.PluginNamePGX,
		DatabaseName: name,
		Connect: func(*config.SQL) (*sqlx.DB, error) {
			db, err := new(driver.PGXDriver).CreateConnection(d.storeURL(name))
			if err != nil {
				return nil, fmt.Errorf("connect to database %s: %w", name, err)
			}
			db.SetMaxOpenConns(maxConnections)
			db.SetMaxIdleConns(maxIdleConnections)
			db.MapperFunc(strcase.ToSnake) // as the plugin does: its rows have no tags
			return db, nil
		},
	}
}

// storeURL is the address by which the server reaches one of the databases.
//
// The visibility database does not wait for the disk when it commits. The write-ahead log is the same for all databases
// of a PostgreSQL and is flushed in order. The task that writes a visibility row is removed from the main database after
// the row is committed. So once the removal is on disk, the row is too; otherwise the task writes the row again.
func (d *databases) storeURL(name string) string {
	u := *d.url
	u.Path = "/" + name
	query := url.Values{"application_name": {"everpost-temporal"}}
	for key, values := range d.url.Query() {
		if !strings.HasPrefix(key, "pool_") { // for pgxpool; database/sql does not know these parameters
			query[key] = values
		}
	}
	if name == VisibilityDatabase {
		query.Set("synchronous_commit", "off")
	}
	u.RawQuery = query.Encode()
	return u.String()
}

// schemaOf names the schema of a database as the server embeds it, and its current version.
func schemaOf(database string) (name, version string) {
	if database == MainDatabase {
		return "postgresql/v12/temporal", v12.Version
	}
	return "postgresql/v12/visibility", v12.VisibilityVersion
}

// migrate brings the schemas up to date. A current one costs a query.
func (d *databases) migrate(ctx context.Context, log *logger) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, name := range []string{MainDatabase, VisibilityDatabase} {
		group.Go(func() error {
			if err := d.migrateOne(ctx, name, log); err != nil {
				return fmt.Errorf("update database %s: %w", name, err)
			}
			return nil
		})
	}
	return group.Wait() //nolint:wrapcheck // wrapped above
}

func (d *databases) migrateOne(ctx context.Context, name string, log *logger) error {
	conn, err := d.connect(ctx, name)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()

	schemaName, latest := schemaOf(name)
	current, err := schemaVersion(ctx, conn, name)
	if err != nil || current == latest {
		return err
	}
	if name == VisibilityDatabase {
		// A migration may name any index that the server once made.
		if err := restoreIndexes(ctx, conn, everyIndex); err != nil {
			return err
		}
	}
	// The tool that RunTool wraps: that one ends the process on an error, or swallows it, and talks
	// on standard output.
	db, err := sqltool.NewConnection(d.store(name), log)
	if err != nil {
		return fmt.Errorf("open: %w", err)
	}
	defer db.Close()
	if current == "" {
		if err := schema.NewSetupSchemaTask(db, &schema.SetupConfig{InitialVersion: "0.0"}, log).Run(); err != nil {
			return fmt.Errorf("set up %s: %w", schemaName, err)
		}
	}
	if err := schema.NewUpdateSchemaTask(db, &schema.UpdateConfig{SchemaName: schemaName}, log).Run(); err != nil {
		return fmt.Errorf("apply %s from %q to %s: %w", schemaName, current, latest, err)
	}
	return nil
}

// schemaVersion returns the version of a schema, "" when it has not been set up.
func schemaVersion(ctx context.Context, conn *pgx.Conn, database string) (version string, err error) {
	err = conn.QueryRow(ctx, `SELECT curr_version FROM schema_version WHERE version_partition = 0 AND db_name = $1`, database).Scan(&version)
	if errors.Is(err, pgx.ErrNoRows) || sqlState(err) == undefinedTable {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read schema version: %w", err)
	}
	return version, nil
}

// shards returns the number of history shards to run with. The server itself would go on with the
// recorded number and only warn, so that the operator who asked for another number might not notice.
func (d *databases) shards(ctx context.Context, want int) (int, error) {
	conn, err := d.connect(ctx, MainDatabase)
	if err != nil {
		return 0, err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()

	var blob []byte
	err = conn.QueryRow(ctx, `SELECT data FROM cluster_metadata_info WHERE metadata_partition = 0 AND cluster_name = $1`, clusterName).Scan(&blob)
	if errors.Is(err, pgx.ErrNoRows) {
		if want == 0 {
			want = DefaultShards
		}
		return want, nil
	}
	if err != nil {
		return 0, fmt.Errorf("read number of shards: %w", err)
	}
	var metadata persistencespb.ClusterMetadata
	if err := proto.Unmarshal(blob, &metadata); err != nil {
		return 0, fmt.Errorf("read number of shards: %w", err)
	}
	has := int(metadata.GetHistoryShardCount())
	if want != 0 && want != has {
		return 0, fmt.Errorf("shards %d: the databases were made with %d, and that cannot be changed", want, has)
	}
	return has, nil
}
