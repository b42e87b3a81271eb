package app

import (
	"context"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/postgrestest"
)

// Everything that has a retention is looked after.
func TestRetention(t *testing.T) {
	t.Parallel()
	a := start(t, options(t, postgrestest.New(t)))
	base := "http://" + a.APIAddr() + "/v1/tenants/acme"
	status, _ := call(t, http.MethodPut, base, `{}`)
	require.Equal(t, http.StatusCreated, status)
	status, _ = call(t, http.MethodDelete, base, "")
	require.Equal(t, http.StatusNoContent, status)
	status, problem := call(t, http.MethodPut, base, `{}`)
	require.Equal(t, http.StatusConflict, status)
	require.Equal(t, "https://everpost.dev/errors/conflict", problem["type"])
	require.Contains(t, problem["detail"], "was deleted")

	sql := func(statement string) {
		_, err := a.store.Pool().Exec(t.Context(), statement)
		require.NoError(t, err)
	}
	sql(`update deleted_tenants set deleted_at = now() - interval '1 day'`)
	sql(`update audit_log set at = now() - interval '3 years', id = '00000000-0000-7000-8000-000000000001' where action = 'tenant.create'`)
	retainer{a.store, &a.options.Config, a.log}.once(context.WithoutCancel(t.Context()))
	status, _ = call(t, http.MethodPut, base, `{}`)
	require.Equal(t, http.StatusCreated, status)
	_, audit := call(t, http.MethodGet, "http://"+a.APIAddr()+"/v1/audit", "")
	require.Len(t, audit["data"], 2, "the deletion, and the second creation")
}
