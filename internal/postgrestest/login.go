package postgrestest

import (
	"crypto/rand"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// NewLogin creates a login that is a member of the roles, and returns its name and the
// address of the same schema with that login. It is dropped with all that it owns when the
// test ends.
func NewLogin(t testing.TB, address string, roles ...string) (name, its string) {
	t.Helper()
	name, password := "test_"+strings.ToLower(rand.Text()), rand.Text()
	execute(t, address, `create role `+name+` login password '`+password+`'`)
	t.Cleanup(func() {
		execute(t, address, `reassign owned by `+name+` to current_user; drop owned by `+name+`; drop role `+name)
	})
	if len(roles) > 0 {
		execute(t, address, `grant `+strings.Join(roles, ", ")+` to `+name)
	}
	u, err := url.Parse(address)
	require.NoError(t, err)
	u.User = url.UserPassword(name, password)
	return name, u.String()
}
