package postgres

import (
	"context"
	"net"

	"github.com/jackc/pgx/v5/pgxpool"
)

// Facts describe a database and a login, for people.
type Facts struct {
	Version   string // of the server, such as 17.11
	Bytes     int64  // of the database on disk
	Login     string
	Superuser bool // or the login bypasses row-level security
	TLS       bool
	Directory string // of the data, on the server; "" if the login may not read it

	Connections int // that logins without special rights may have, all together
	Processes   int // of Everpost that listen to this database now, with this login or another one that it may see

	LocksPerTransaction int64 // max_locks_per_transaction
	Locks               int64 // for which there is room: as many for each connection
	LocksPerDay         int64 // that a statement over all events, deliveries and attempts takes for each day; 0 before the migration
}

// Facts reads facts of the server and the login, with the login's own rights.
func (s *Core) Facts(ctx context.Context) (f Facts, err error) {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	err = s.login.QueryRow(ctx, `
		select current_setting('server_version'), pg_database_size(current_database()), session_user, rolsuper or rolbypassrls,
			coalesce((select ssl from pg_stat_ssl where pid = pg_backend_pid()), false),
			case when pg_has_role(session_user, 'pg_read_all_settings', 'usage') then current_setting('data_directory') else '' end,
			current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int
				- coalesce(current_setting('reserved_connections', true)::int, 0), -- PostgreSQL 16
			(select count(*) from pg_stat_activity where datname = current_database() and application_name like '% listener'),
			current_setting('max_locks_per_transaction')::bigint,
			current_setting('max_locks_per_transaction')::bigint
				* (current_setting('max_connections')::int + current_setting('max_prepared_transactions')::int),
			(select coalesce(sum(1 + (select count(*) from pg_index where indrelid = c.oid)), 0)::bigint
				from pg_class c join pg_namespace n on n.oid = c.relnamespace
				where n.nspname = current_schema() and c.relname in ('events', 'deliveries', 'attempts'))
		from pg_roles where rolname = session_user`).Scan(&f.Version, &f.Bytes, &f.Login, &f.Superuser, &f.TLS, &f.Directory,
		&f.Connections, &f.Processes, &f.LocksPerTransaction, &f.Locks, &f.LocksPerDay)
	return f, Translate("read facts of the database", err)
}

// LocalIP is the address of this machine from which it reaches PostgreSQL; that of the loopback interface if it does so by a socket of
// the file system.
func (s *Core) LocalIP(ctx context.Context) (ip net.IP, err error) {
	err = s.login.AcquireFunc(ctx, func(conn *pgxpool.Conn) error {
		ip = net.IPv4(127, 0, 0, 1)
		if at, ok := conn.Conn().PgConn().Conn().LocalAddr().(*net.TCPAddr); ok {
			ip = at.IP
		}
		return nil
	})
	return ip, Translate("read the address of this machine", err)
}
