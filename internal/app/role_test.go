package app

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/postgres"
	"github.com/everpost/everpost/internal/postgrestest"
)

// A process of the API alone needs no more than the API's role, and leaves to the workers
// what goes over all tenants.
func TestTheAPIRunsOnALoginOfItsOwn(t *testing.T) {
	t.Parallel()
	_, address := postgrestest.NewLogin(t, postgrestest.New(t), postgres.RoleAPI)
	a := start(t, options(t, address))
	base := "http://" + a.APIAddr()
	status, _ := call(t, http.MethodPut, base+"/v1/tenants/acme", `{"name":"Acme"}`)
	require.Equal(t, http.StatusCreated, status)
	status, answer := call(t, http.MethodPost, base+"/v1/tenants/acme/events", `{"type":"order.paid","payload":1}`)
	require.Equal(t, http.StatusAccepted, status, answer)
	status, _ = call(t, http.MethodGet, base+"/v1/audit", "")
	require.Equal(t, http.StatusOK, status)
	require.False(t, a.overAll)
	require.Nil(t, a.intakeConfig().Outbox)
	require.Empty(t, a.recoveryLoops(), "it does not relay")
	a.maintain() // returns at once
}

func TestALoginThatIsNotEnoughIsRefusedAtTheStart(t *testing.T) {
	t.Parallel()
	address := postgrestest.New(t)
	for role, needs := range map[string]string{postgres.RoleAPI: postgres.RoleWorker, postgres.RoleWorker: postgres.RoleAPI} {
		_, its := postgrestest.NewLogin(t, address, role)
		o := options(t, its)
		o.API, o.Worker = role == postgres.RoleWorker, role == postgres.RoleAPI
		a, err := New(t.Context(), o)
		require.NoError(t, err)
		require.ErrorContains(t, a.Start(t.Context()), "the login is not a member of the role "+needs)
	}
	_, its := postgrestest.NewLogin(t, address, postgres.RoleIngest)
	a, err := New(t.Context(), options(t, its))
	require.NoError(t, err)
	require.ErrorContains(t, a.Start(t.Context()), "is not a member of everpost_api or everpost_worker")
}
