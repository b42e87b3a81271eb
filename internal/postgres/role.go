package postgres

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/everpost/everpost/internal/webhook"
)

// The group roles that the product's tables are granted to: see docs/security-database.md
// and migrations/00001_schema.sql. A login takes those that it is a member of.
const (
	RoleAPI      = "everpost_api"      // one tenant at a time: the one that its transaction names
	RoleOperator = "everpost_operator" // tenants, keys and the audit log; taken for a transaction
	RoleIngest   = "everpost_ingest"   // adds events
	RoleWorker   = "everpost_worker"   // deliveries of all tenants
)

// The settings that row-level security looks at.
const (
	SettingTenant = "everpost.tenant"
	SettingRole   = "role"
)

// Caller is the identity of statements: a pool, whose connections have a role, and a setting
// for the length of a statement or transaction.
type Caller struct {
	pool           *pgxpool.Pool
	setting, value string // "" for none

	timeout time.Duration // of single statements, with a setting; zero: the connection's
	byIndex bool          // see ByIndex
}

// ByIndex returns the same caller for statements that read the first rows in the order of an index, and find what else they need by key.
//
// The planner would often rather gather all that matches, and sort it: it multiplies the selectivities of conditions that depend on each
// other, such as a tenant and one of its endpoints, and expects fewer rows than there are; and it knows little about a partitioned table
// as a whole, whose statistics autovacuum never makes. ByIndex forbids it the plans that begin with reading everything.
func (c Caller) ByIndex() Caller {
	c.byIndex = true
	return c
}

// OfTenant reads and writes the rows of a tenant. A process that is only a worker does so in
// the worker's role.
func (s *Core) OfTenant(tenantID string) Caller {
	if s.misnamed != "" {
		tenantID = s.misnamed
	}
	return Caller{pool: s.pool, setting: SettingTenant, value: tenantID}
}

// AsOperator reads and writes rows that belong to no tenant, and does what tenants may not.
func (s *Core) AsOperator() Caller {
	return Caller{pool: s.pool, setting: SettingRole, value: RoleOperator}
}

// OfTenantOrOperator is OfTenant, or AsOperator for "".
func (s *Core) OfTenantOrOperator(tenantID string) Caller {
	if tenantID == "" {
		return s.AsOperator()
	}
	return s.OfTenant(tenantID)
}

// AsIngest adds what events of all tenants lead to, and counts.
func (s *Core) AsIngest() Caller {
	return Caller{pool: s.pool, setting: SettingRole, value: RoleIngest}
}

// AsWorker reads and writes the deliveries of all tenants.
func (s *Core) AsWorker() Caller { return Caller{pool: s.WorkPool} }

// May reports whether the login may take a role. A login with RoleAPI also has RoleOperator
// and RoleIngest, one with RoleWorker has RoleIngest.
func (s *Core) May(ctx context.Context, role string) (may bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	err = s.pool.QueryRow(ctx, `select exists (select from pg_roles where rolname = $1 and `+mayTake+`)`, role).Scan(&may)
	return may, Translate("look up the roles of this login", err)
}

// mayTake is an SQL condition: whether the login may take the role of a row of pg_roles. Since
// PostgreSQL 16 membership alone is not enough.
const mayTake = `pg_has_role(session_user, rolname, case when current_setting('server_version_num')::int >= 160000 then 'SET' else 'MEMBER' end)`

// takeRole makes new connections take the first of the roles that their login may take. It is a
// setting of the session: no statement runs with the login's own rights.
func takeRole(config *pgxpool.Config, roles ...string) *pgxpool.Config {
	config.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		var taken *string
		err := conn.QueryRow(ctx, `
			select set_config('role', (
				select rolname from pg_roles where rolname = any($1) and `+mayTake+` order by array_position($1, rolname::text) limit 1), false)`,
			roles).Scan(&taken)
		if err == nil && (taken == nil || *taken == "" || *taken == "none") {
			return noRole(ctx, conn, roles)
		}
		if err != nil {
			return fmt.Errorf("take the role %s: %w", roles[0], err)
		}
		return nil
	}
	return config
}

// noRole is the error when none of the roles can be taken: why, and what to do.
func noRole(ctx context.Context, conn *pgx.Conn, roles []string) error {
	var (
		there bool
		login string
	)
	err := conn.QueryRow(ctx, `select exists (select from pg_roles where rolname = any($1)), session_user`, roles).Scan(&there, &login)
	if err != nil {
		return fmt.Errorf("take the role %s: %w", roles[0], err)
	}
	if !there {
		return fmt.Errorf("%w: there is no role %s: run 'everpost migrate'", errNoRole, roles[0])
	}
	return fmt.Errorf("%w: the login %s is not a member of %s: grant it, see docs/security-database.md", errNoRole, login, strings.Join(roles, " or "))
}

var errNoRole = errors.New("the database is not set up for this login")

// Querier is a connection or a transaction.
type Querier interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
	SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults
}

// on returns conn with each statement run as c.
func (c Caller) on(conn *pgxpool.Conn) Querier {
	if c.setting == "" && !c.byIndex {
		return conn
	}
	return &named{conn, c}
}

// begin is the statement that begins a transaction as c, in one round trip. The value is in
// hexadecimal, so that no text can break out of the literal.
func (c Caller) begin(mode string) string {
	begin := "begin " + mode
	if c.setting != "" {
		begin += "; select set_config('" + c.setting + `', convert_from('\x` + hex.EncodeToString([]byte(c.value)) + `', 'UTF8'), true)`
	}
	if c.byIndex {
		begin += "; select " + planByIndex
	}
	return begin
}

// check returns CodeInvalid for a value that PostgreSQL cannot hold.
func (c Caller) check() error {
	if strings.ContainsRune(c.value, 0) || !utf8.ValidString(c.value) {
		return &webhook.Error{Code: webhook.CodeInvalid, Message: "text with a NUL or invalid UTF-8 cannot be stored"}
	}
	return nil
}

// SetLocally changes a setting until the end of a transaction.
const SetLocally = `select set_config($1, $2, true)`

// planByIndex is what ByIndex sets.
const planByIndex = `set_config('enable_bitmapscan', 'off', true), set_config('enable_sort', 'off', true),
	set_config('enable_hashjoin', 'off', true), set_config('enable_mergejoin', 'off', true)`

// set is the statement that sets what c needs for the statements after it.
func (c Caller) set() (sql string, args []any) {
	var settings []string
	if c.setting != "" {
		settings, args = append(settings, `set_config($1, $2, true)`), append(args, c.setting, c.value)
	}
	if c.timeout > 0 {
		args = append(args, Milliseconds(c.timeout))
		settings = append(settings, fmt.Sprintf(`set_config('statement_timeout', $%d, true)`, len(args)))
	}
	if c.byIndex {
		settings = append(settings, planByIndex)
	}
	return "select " + strings.Join(settings, ", "), args
}

// named sends c's settings ahead of each statement, in the same round trip: both are one
// transaction, with whose end the setting ends.
type named struct {
	conn *pgxpool.Conn
	c    Caller
}

func (n *named) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	results := n.send(ctx, sql, args)
	tag, err := results.Exec()
	return tag, errors.Join(err, results.Close())
}

func (n *named) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	results := n.send(ctx, sql, args)
	rows, err := results.Query()
	if err != nil {
		_ = results.Close() // says the same
		return nil, err
	}
	return &namedRows{rows, results}, nil
}

func (n *named) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	rows, err := n.Query(ctx, sql, args...)
	return namedRow{rows, err}
}

func (n *named) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	all := &pgx.Batch{}
	set, args := n.c.set()
	all.Queue(set, args...)
	all.QueuedQueries = append(all.QueuedQueries, b.QueuedQueries...)
	return n.conn.SendBatch(ctx, all)
}

// send sends one statement; its results come next.
func (n *named) send(ctx context.Context, sql string, args []any) pgx.BatchResults {
	batch := &pgx.Batch{}
	batch.Queue(sql, args...)
	results := n.SendBatch(ctx, batch)
	_, _ = results.Exec() // its error is that of what comes next
	return results
}

// namedRows ends the batch with its rows.
type namedRows struct {
	pgx.Rows

	results pgx.BatchResults
}

func (r *namedRows) Close() {
	r.Rows.Close()
	_ = r.results.Close() // says the same as Err
}

type namedRow struct {
	rows pgx.Rows
	err  error
}

func (r namedRow) Scan(into ...any) error {
	if r.err != nil {
		return r.err
	}
	defer r.rows.Close()
	if !r.rows.Next() {
		if err := r.rows.Err(); err != nil {
			return err
		}
		return pgx.ErrNoRows
	}
	if err := r.rows.Scan(into...); err != nil {
		return err
	}
	r.rows.Close()
	return r.rows.Err()
}
