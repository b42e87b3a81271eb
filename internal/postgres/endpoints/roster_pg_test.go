package endpoints_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/postgres/endpoints"
	"github.com/everpost/everpost/internal/postgres/storetest"
	"github.com/everpost/everpost/internal/webhook"
)

// manyEndpoints stores copies of an endpoint, as many as asked for.
func manyEndpoints(t *testing.T, s *storetest.Stores, of webhook.Endpoint, n int) {
	t.Helper()
	_, err := s.Pool().Exec(t.Context(), `
		insert into endpoints select (jsonb_populate_record(e, jsonb_build_object('id', gen_random_uuid(), 'event_types', jsonb_build_array('type.' || i)))).*
		from endpoints e, generate_series(1, $2) i where e.id = $1`, [16]byte(of.ID), n)
	require.NoError(t, err)
}

// Reading a tenant with many endpoints takes many pages, and a change of one of them only that one.
func TestAChangeOfALargeTenantReadsOneEndpoint(t *testing.T) {
	t.Parallel()
	s, _ := storetest.SetupStore(t)
	first := storetest.CreateEndpoint(t, s, "acme")
	const many = 3 * endpoints.RosterPage
	manyEndpoints(t, s, first, many)
	c := s.Cache()
	all, version := storetest.EndpointsOf(t, c, "acme")
	require.Len(t, all, many+1)
	require.EqualValues(t, 1, version)

	for i := range 20 {
		_, err := s.UpdateEndpoint(t.Context(), storetest.TestActor(), "acme", first.ID, func(e *webhook.Endpoint) error {
			e.EventTypes = []string{fmt.Sprintf("changed.%d", i)}
			return nil
		})
		require.NoError(t, err)
		of, err := c.OfTenant(t.Context(), "acme")
		require.NoError(t, err)
		of.Read(func(v endpoints.View) {
			require.EqualValues(t, i+2, v.Version())
			require.Len(t, v.Match(fmt.Sprintf("changed.%d", i), 10), 1)
			require.Empty(t, v.Match(fmt.Sprintf("changed.%d", i-1), 10))
		})
	}
	after, _ := storetest.EndpointsOf(t, c, "acme")
	for i := range all {
		if all[i].ID != first.ID {
			require.Same(t, all[i], after[i], "it was not read again")
		}
	}
}

// What is committed while a large tenant is being read page by page is found, whichever page it is on.
func TestChangesDuringTheReadingOfALargeTenant(t *testing.T) {
	t.Parallel()
	s, _ := storetest.SetupStore(t)
	first := storetest.CreateEndpoint(t, s, "acme")
	manyEndpoints(t, s, first, 2*endpoints.RosterPage)
	victims := storetest.Query[[16]byte](t, s, `select id from endpoints where id <> $1 order by id limit 30`, [16]byte(first.ID))
	c := s.Cache()
	var work sync.WaitGroup
	work.Go(func() {
		for i, id := range victims {
			switch i % 3 {
			case 0:
				require.NoError(t, s.DeleteEndpoint(t.Context(), storetest.TestActor(), "acme", id))
			case 1:
				_, err := s.UpdateSealed(t.Context(), s.OfTenant("acme"), storetest.TestActor(), "acme", id,
					func(_ context.Context, _ pgx.Tx, e *webhook.Endpoint) error {
						e.EventTypes = []string{"changed"}
						return nil
					}, 0)
				require.NoError(t, err)
			default:
				e := storetest.TestEndpoint("acme")
				e.EventTypes = []string{"new"}
				_, err := s.CreateEndpoint(t.Context(), storetest.TestActor(), e, storetest.CanarySecret)
				require.NoError(t, err)
			}
		}
	})
	for range 2 {
		work.Go(func() {
			c.ForgetAll()
			_, err := c.OfTenant(t.Context(), "acme")
			require.NoError(t, err)
		})
	}
	work.Wait()
	of, err := c.OfTenant(t.Context(), "acme")
	require.NoError(t, err)
	require.EqualValues(t, 31, storetest.Version(t, s, "acme"))
	of.Read(func(v endpoints.View) {
		require.EqualValues(t, 31, v.Version())
		require.Len(t, v.Match("changed", 100), 10)
		require.Len(t, v.Match("new", 100), 10)
	})
	all, _ := of.All()
	require.Len(t, all, 2*endpoints.RosterPage+1)
}

// A tenant that gets the id of a deleted one does not get its endpoints, although both have had as many changes.
func TestARosterIsOfOneTenant(t *testing.T) {
	t.Parallel()
	s, _ := storetest.SetupStore(t)
	e := storetest.CreateEndpoint(t, s, "acme")
	c := s.Cache()
	storetest.EndpointsOf(t, c, "acme")
	_, err := s.Pool().Exec(t.Context(), `delete from tenants where id = 'acme'`)
	require.NoError(t, err)
	c.ForgetTenant("acme")
	_, err = c.OfTenant(t.Context(), "acme")
	storetest.RequireCode(t, webhook.CodeNotFound, err)
	_, err = s.Pool().Exec(t.Context(), `insert into tenants (id, name, endpoints_version) values ('acme', 'another', 1)`)
	require.NoError(t, err)
	all, version := storetest.EndpointsOf(t, c, "acme")
	require.Empty(t, all, "%s was the other's", e.ID)
	require.EqualValues(t, 1, version)
}
