package postgres

import (
	"crypto/tls"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// CheckEncryption returns an error when connections to a database might cross a network without TLS
// and the connection string does not allow it: by default the driver goes on without TLS when the
// server, or a machine in between, says that it has none. Connections on this machine, over a socket
// or loopback, need no encryption.
func CheckEncryption(connection string) error {
	config, err := pgconn.ParseConfig(connection)
	if err != nil {
		return fmt.Errorf("parse database URL: %w", err) // pgx leaves the password out
	}
	if asksForNone(connection) {
		return nil
	}
	check := func(host string, port uint16, with *tls.Config) error {
		if with != nil || onThisMachine(host) {
			return nil
		}
		return fmt.Errorf("PostgreSQL at %s, port %d, is not on this machine, and TLS is not required: add sslmode=verify-full to the URL "+
			"(or verify-ca, or require), or sslmode=disable where the network may be trusted", host, port)
	}
	if err := check(config.Host, config.Port, config.TLSConfig); err != nil {
		return err
	}
	for _, next := range config.Fallbacks { // further hosts, and the same ones without TLS
		if err := check(next.Host, next.Port, next.TLSConfig); err != nil {
			return err
		}
	}
	return nil
}

// Hosts are the hosts of a connection string with their ports, without sockets of the file system.
func Hosts(connection string) ([]string, error) {
	config, err := pgconn.ParseConfig(connection)
	if err != nil {
		return nil, fmt.Errorf("parse database URL: %w", err) // pgx leaves the password out
	}
	var all []string
	add := func(host string, port uint16) {
		if !strings.HasPrefix(host, "/") && !strings.HasPrefix(host, "@") {
			all = append(all, net.JoinHostPort(host, strconv.Itoa(int(port))))
		}
	}
	add(config.Host, config.Port)
	for _, next := range config.Fallbacks {
		add(next.Host, next.Port)
	}
	slices.Sort(all)
	return slices.Compact(all), nil
}

// asksForNone reports whether the connection string itself, and not the environment, turns TLS off.
func asksForNone(connection string) bool {
	u, err := url.Parse(connection)
	return err == nil && u.Query().Get("sslmode") == "disable"
}

func onThisMachine(host string) bool {
	if strings.HasPrefix(host, "/") || strings.HasPrefix(host, "@") || host == "localhost" {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback()
}
