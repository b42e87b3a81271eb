package postgres

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCheckEncryption(t *testing.T) {
	for _, name := range []string{"PGSSLMODE", "PGHOST", "PGSSLROOTCERT"} {
		t.Setenv(name, "")
	}
	for connection, good := range map[string]bool{
		"postgres://u:canary@127.0.0.1/x":                                     true,
		"postgres://u:canary@127.8.9.1:5433/x":                                true,
		"postgres://u:canary@[::1]/x":                                         true,
		"postgres://u:canary@localhost/x?sslmode=prefer":                      true,
		"postgres:///x?host=/run/postgresql":                                  true,
		"postgres://u:canary@/x?host=@abstract":                               true,
		"postgres://u:canary@db/x?sslmode=disable":                            true,
		"postgres://u:canary@db/x?sslmode=require":                            true,
		"postgres://u:canary@db/x?sslmode=verify-ca":                          true,
		"postgres://u:canary@db/x?sslmode=verify-full":                        true,
		"postgres://u:canary@10.0.0.1,db/x?sslmode=require":                   true,
		"postgres://u:canary@db/x":                                            false,
		"postgres://u:canary@db/x?sslmode=prefer":                             false,
		"postgres://u:canary@db/x?sslmode=allow":                              false,
		"postgres://u:canary@10.0.0.1/x":                                      false,
		"postgres://u:canary@[2001:db8::1]/x":                                 false,
		"postgres://u:canary@localhost,db/x":                                  false,
		"postgres://u:canary@localhost.example/x":                             false,
		"postgres:///x?host=db.example":                                       false,
		"postgres://u:canary@db/x?application_name=sslmode%3Ddisable":         false,
		"postgres://u:canary@db/x?sslmode=perhaps":                            false,
		"postgres://u:canary@db/x?sslmode=verify-full&sslrootcert=/not/there": false,
	} {
		err := CheckEncryption(connection)
		if good {
			require.NoError(t, err, connection)
			continue
		}
		require.Error(t, err, connection)
		require.NotContains(t, err.Error(), "canary", connection)
	}
	require.ErrorContains(t, CheckEncryption("postgres://u:canary@db:5433/x"),
		"PostgreSQL at db, port 5433, is not on this machine, and TLS is not required: add sslmode=verify-full to the URL")

	// The driver reads the environment too: what makes TLS certain is enough, what drops it has to be in the URL.
	t.Setenv("PGSSLMODE", "verify-full")
	require.NoError(t, CheckEncryption("postgres://u:canary@db/x"))
	t.Setenv("PGSSLMODE", "disable")
	require.Error(t, CheckEncryption("postgres://u:canary@db/x"))
}
