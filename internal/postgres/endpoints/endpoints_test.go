package endpoints_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/everpost/everpost/internal/postgres/storetest"
	"github.com/everpost/everpost/internal/retry"
	"github.com/everpost/everpost/internal/webhook"
)

func TestAnEndpointIsReadAsItWasWritten(t *testing.T) {
	t.Parallel()
	s, _ := storetest.SetupStore(t)
	in := storetest.TestEndpoint("acme")
	created, err := s.CreateEndpoint(t.Context(), storetest.TestActor(), in, storetest.CanarySecret)
	require.NoError(t, err)
	require.WithinDuration(t, time.Now(), created.CreatedAt, time.Minute)
	in.Version, in.CreatedAt, in.UpdatedAt = 1, created.CreatedAt, created.UpdatedAt
	in.Inherited.Policy = retry.Default() // of the installation; its own is in force
	require.Equal(t, in, created)

	read, err := s.Endpoint(t.Context(), "acme", in.ID)
	require.NoError(t, err)
	require.Equal(t, in, read)
	list, err := s.ListEndpoints(t.Context(), "acme", webhook.Page{Limit: 10})
	require.NoError(t, err)
	require.Equal(t, []webhook.Endpoint{in}, list)
	target, err := s.Target(t.Context(), in.ID)
	require.NoError(t, err)
	require.Equal(t, webhook.Target{Endpoint: in, Secrets: []string{storetest.CanarySecret}}, target)

	of, at, err := storetest.ReadEndpoints(t.Context(), s.Cache(), "acme")
	require.NoError(t, err)
	in.Headers = nil
	require.Equal(t, []webhook.Endpoint{in}, of)
	require.Equal(t, storetest.Version(t, s, "acme"), at)
	require.EqualValues(t, 1, at)
}

// A timeout that follows the answers is stored so that a process of the release before
// takes the default, and that what such a process sets counts.
func TestAnAutoTimeoutBesideTheReleaseBefore(t *testing.T) {
	t.Parallel()
	s, _ := storetest.SetupStore(t)
	in := storetest.TestEndpoint("acme")
	in.Timeout, in.AutoTimeout = webhook.DefaultTimeout, true
	created, err := s.CreateEndpoint(t.Context(), storetest.TestActor(), in, storetest.CanarySecret)
	require.NoError(t, err)
	requireTimeout := func(want time.Duration, auto bool) {
		t.Helper()
		read, err := s.Endpoint(t.Context(), "acme", in.ID)
		require.NoError(t, err)
		require.Equal(t, []any{want, auto}, []any{read.Timeout, read.AutoTimeout})
	}
	stored := func() []string {
		return storetest.Query[string](t, s, `select timeout_ns || ' ' || timeout_auto from endpoints`)
	}
	require.True(t, created.AutoTimeout)
	requireTimeout(webhook.DefaultTimeout, true)
	require.Equal(t, []string{"15000000000 true"}, stored())

	_, err = s.Pool().Exec(t.Context(), `update endpoints set timeout_ns = 7000000000`) // it knows of no other column
	require.NoError(t, err)
	requireTimeout(7*time.Second, false)
	change := func(auto bool) {
		t.Helper()
		_, err := s.UpdateEndpoint(t.Context(), storetest.TestActor(), "acme", in.ID, func(e *webhook.Endpoint) error {
			e.MaxInFlight++
			e.AutoTimeout = auto
			return nil
		})
		require.NoError(t, err)
	}
	change(false)
	require.Equal(t, []string{"7000000000 false"}, stored(), "the next change makes it plain")
	change(true) // whatever the value of Timeout
	require.Equal(t, []string{"15000000000 true"}, stored())
	requireTimeout(webhook.DefaultTimeout, true)
	require.Equal(t, []string{`["max_in_flight"]`, `["timeout", "max_in_flight"]`},
		storetest.Query[string](t, s, `select (detail -> 'changed')::text from audit_log where action = 'endpoint.update' order by id`))
}

func TestAnEndpointOfZeroValuesIsReadBackToo(t *testing.T) {
	t.Parallel()
	s, _ := storetest.SetupStore(t)
	created, err := s.CreateEndpoint(t.Context(), storetest.TestActor(),
		webhook.Endpoint{TenantID: "acme", URL: "https://a.example", RetryPolicy: retry.Default()}, "whsec_x")
	require.NoError(t, err)
	require.False(t, created.ID.IsZero())
	read, err := s.Endpoint(t.Context(), "acme", created.ID)
	require.NoError(t, err)
	require.Empty(t, read.EventTypes)
	require.Empty(t, read.Headers)
	require.Empty(t, read.Metadata)
	created.EventTypes, created.Metadata = read.EventTypes, read.Metadata
	require.Equal(t, created, read)
}

func TestEndpointsOfOthersAreNotThere(t *testing.T) {
	t.Parallel()
	s, _ := storetest.SetupStore(t)
	_, _, err := s.PutTenant(t.Context(), storetest.TestActor(), webhook.Tenant{ID: "beta"})
	require.NoError(t, err)
	e := storetest.CreateEndpoint(t, s, "acme")

	nothing := func(*webhook.Endpoint) error { return errors.New("must not be called") }
	var words []string
	for _, who := range []struct {
		tenant string
		id     webhook.EndpointID
	}{{"beta", e.ID}, {"acme", webhook.NewEndpointID()}, {"nobody", e.ID}} {
		_, readErr := s.Endpoint(t.Context(), who.tenant, who.id)
		_, updateErr := s.UpdateEndpoint(t.Context(), storetest.TestActor(), who.tenant, who.id, nothing)
		_, secretErr := s.EndpointSecret(t.Context(), storetest.TestActor(), who.tenant, who.id)
		for _, err := range []error{readErr, updateErr, secretErr, s.DeleteEndpoint(t.Context(), storetest.TestActor(), who.tenant, who.id)} {
			storetest.RequireCode(t, webhook.CodeNotFound, err)
			domain, _ := errors.AsType[*webhook.Error](err)
			words = append(words, domain.Message)
		}
	}
	for _, message := range words {
		require.Equal(t, "no such endpoint", message)
	}
	require.EqualValues(t, 1, storetest.Version(t, s, "acme"), "what failed is undone")
	require.EqualValues(t, 0, storetest.Version(t, s, "beta"))
	list, err := s.ListEndpoints(t.Context(), "beta", webhook.Page{Limit: 10})
	require.NoError(t, err)
	require.Empty(t, list)

	_, err = s.CreateEndpoint(t.Context(), storetest.TestActor(), storetest.TestEndpoint("nobody"), "whsec_x")
	storetest.RequireCode(t, webhook.CodeNotFound, err)
	_, _, err = storetest.ReadEndpoints(t.Context(), s.Cache(), "nobody")
	storetest.RequireCode(t, webhook.CodeNotFound, err)
	_, err = s.CreateEndpoint(t.Context(), storetest.TestActor(), e, "whsec_x")
	storetest.RequireCode(t, webhook.CodeConflict, err)
}

func TestUpdateEndpoint(t *testing.T) {
	t.Parallel()
	s, _ := storetest.SetupStore(t)
	e := storetest.CreateEndpoint(t, s, "acme")

	got, err := s.UpdateEndpoint(t.Context(), storetest.TestActor(), "acme", e.ID, func(c *webhook.Endpoint) error {
		require.Equal(t, e, *c)
		c.State, c.StateReason = webhook.EndpointActive, ""
		c.Headers = map[string]string{}
		c.Metadata["team"] = "billing"
		c.ID, c.TenantID, c.Version, c.CreatedAt = webhook.EndpointID{}, "beta", 99, time.Time{} // not its to change
		return nil
	})
	require.NoError(t, err)
	want := e
	want.State, want.StateReason, want.Headers, want.Metadata = webhook.EndpointActive, "", map[string]string{}, map[string]string{"team": "billing"}
	want.Version, want.UpdatedAt = 2, got.UpdatedAt
	want.StateSince, want.StateBy = got.StateSince, got.StateBy
	require.Equal(t, want, got)
	require.NotEmpty(t, got.StateBy)
	require.WithinDuration(t, got.UpdatedAt, got.StateSince, time.Minute)
	require.True(t, got.UpdatedAt.After(e.UpdatedAt))
	require.EqualValues(t, 2, storetest.Version(t, s, "acme"))
	read, err := s.Endpoint(t.Context(), "acme", e.ID)
	require.NoError(t, err)
	want.Headers = nil
	require.Equal(t, want, read)
	require.Equal(t, []string{`["state", "state_reason", "headers", "metadata"]`},
		storetest.Query[string](t, s, `select (detail -> 'changed')::text from audit_log where action = 'endpoint.resume'`))

	mine := errors.New("not like this")
	_, err = s.UpdateEndpoint(t.Context(), storetest.TestActor(), "acme", e.ID, func(c *webhook.Endpoint) error {
		c.URL = "https://elsewhere.example"
		return mine
	})
	require.Same(t, mine, err)

	same, err := s.UpdateEndpoint(t.Context(), storetest.TestActor(), "acme", e.ID, func(c *webhook.Endpoint) error {
		c.Headers = map[string]string{} // nil before: the same
		return nil
	})
	require.NoError(t, err)
	require.EqualValues(t, 2, same.Version)
	require.EqualValues(t, 2, storetest.Version(t, s, "acme"), "neither a refusal nor a change that is none counts")
	require.Equal(t, []string{"endpoint.create", "endpoint.resume"}, storetest.Actions(t, s, e.ID.String()))
}

func TestConcurrentUpdatesLoseNothing(t *testing.T) {
	t.Parallel()
	s, address := storetest.SetupStore(t)
	stores := []*storetest.Stores{s, storetest.OpenStore(t, address)}
	first, second := storetest.CreateEndpoint(t, s, "acme"), storetest.CreateEndpoint(t, s, "acme")
	const each = 10
	var group errgroup.Group
	for _, store := range stores {
		for _, e := range []webhook.Endpoint{first, second} {
			group.Go(func() error {
				for range each {
					_, err := store.UpdateEndpoint(t.Context(), storetest.TestActor(), "acme", e.ID, func(e *webhook.Endpoint) error {
						e.MaxInFlight++
						return nil
					})
					if err != nil {
						return err
					}
				}
				return nil
			})
		}
	}
	require.NoError(t, group.Wait())
	for _, e := range []webhook.Endpoint{first, second} {
		got, err := s.Endpoint(t.Context(), "acme", e.ID)
		require.NoError(t, err)
		require.Equal(t, e.MaxInFlight+2*each, got.MaxInFlight)
		require.EqualValues(t, 1+2*each, got.Version)
	}
	require.EqualValues(t, 2+4*each, storetest.Version(t, s, "acme"))
}

func TestListEndpointsPagesNewestFirst(t *testing.T) {
	t.Parallel()
	s, _ := storetest.SetupStore(t)
	var all []webhook.Endpoint
	for range 5 {
		all = append([]webhook.Endpoint{storetest.CreateEndpoint(t, s, "acme")}, all...)
	}
	require.NoError(t, s.DeleteEndpoint(t.Context(), storetest.TestActor(), "acme", all[1].ID))
	page, err := s.ListEndpoints(t.Context(), "acme", webhook.Page{Limit: 2})
	require.NoError(t, err)
	require.Equal(t, []webhook.Endpoint{all[0], all[2]}, page)
	page, err = s.ListEndpoints(t.Context(), "acme", webhook.Page{Limit: 9, After: page[1].ID})
	require.NoError(t, err)
	require.Equal(t, all[3:], page)
}

func TestADeletedEndpointIsGoneWithItsSecrets(t *testing.T) {
	t.Parallel()
	s, _ := storetest.SetupStore(t)
	e := storetest.CreateEndpoint(t, s, "acme")
	open := webhook.NewEventID()
	_, err := s.Pool().Exec(t.Context(), `
		insert into deliveries (id, event_id, endpoint_id, tenant_id, event_type, created_at, run, seq, state, give_up_at)
		values ($1, $2, $3, 'acme', 'a', now(), 1, 1, 1, now())`,
		[16]byte(webhook.DeliveryIDOf(open, e.ID)), [16]byte(open), [16]byte(e.ID))
	require.NoError(t, err)

	require.NoError(t, s.DeleteEndpoint(t.Context(), storetest.TestActor(), "acme", e.ID))
	storetest.RequireCode(t, webhook.CodeNotFound, s.DeleteEndpoint(t.Context(), storetest.TestActor(), "acme", e.ID))
	_, err = s.Endpoint(t.Context(), "acme", e.ID)
	storetest.RequireCode(t, webhook.CodeNotFound, err)
	_, err = s.Target(t.Context(), e.ID)
	storetest.RequireCode(t, webhook.CodeNotFound, err)
	of, at, err := storetest.ReadEndpoints(t.Context(), s.Cache(), "acme")
	require.NoError(t, err)
	require.Empty(t, of)
	require.EqualValues(t, 2, at)
	require.Equal(t, []int64{0}, storetest.Query[int64](t, s, `select count(*) from endpoint_secrets`))
	require.Equal(t, []bool{true}, storetest.Query[bool](t, s, `select headers_ciphertext is null from endpoints`))
	require.Equal(t, []int16{int16(webhook.CommandCancel)}, storetest.Query[int16](t, s, `select command from deliveries`),
		"its open delivery is to be cancelled")
	require.Equal(t, []string{"endpoint.create", "endpoint.delete"}, storetest.Actions(t, s, e.ID.String()))
}

func TestNoSecretLiesInTheDatabaseAsItIs(t *testing.T) {
	t.Parallel()
	s, _ := storetest.SetupStore(t)
	e := storetest.CreateEndpoint(t, s, "acme")
	_, err := s.UpdateEndpoint(t.Context(), storetest.TestActor(), "acme", e.ID, func(e *webhook.Endpoint) error {
		e.Headers["X-Other"], e.URL = storetest.CanaryHeader, e.URL+"2"
		return nil
	})
	require.NoError(t, err)
	_, err = s.EndpointSecret(t.Context(), storetest.TestActor(), "acme", e.ID)
	require.NoError(t, err)
	for _, table := range []string{"endpoints", "endpoint_secrets", "audit_log"} {
		// Bytes are shown escaped: what is readable in them stays readable.
		rows := storetest.Query[string](t, s, `select t::text from (select set_config('bytea_output', 'escape', true)) c, `+table+` t`)
		require.NotEmpty(t, rows)
		for _, row := range rows {
			require.NotContains(t, row, storetest.CanaryHeader, table)
			require.NotContains(t, row, "CanarySecret", table)
			require.False(t, table == "audit_log" && strings.Contains(row, "CanaryURLToken"), row)
		}
	}
}

// The endpoints that were deleted last come first, up to the limit, and only the tenant's.
func TestDeletedEndpoints(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	deleted, err := b.DeletedEndpoints(t.Context(), "acme", 10)
	require.NoError(t, err)
	require.Empty(t, deleted)
	var ids []webhook.EndpointID
	for range 3 {
		e := b.AddEndpoint(t, "user.*")
		require.NoError(t, b.DeleteEndpoint(t.Context(), storetest.TestActor(), "acme", e.ID))
		ids = append([]webhook.EndpointID{e.ID}, ids...)
	}
	deleted, err = b.DeletedEndpoints(t.Context(), "acme", 2)
	require.NoError(t, err)
	require.Len(t, deleted, 2)
	require.Equal(t, ids[0], deleted[0].ID)
	require.Equal(t, ids[1], deleted[1].ID)
	require.Equal(t, []string{"user.*"}, deleted[0].EventTypes)
	require.NotEmpty(t, deleted[0].URL)
	require.WithinDuration(t, time.Now(), deleted[0].DeletedAt, time.Minute)
	deleted, err = b.DeletedEndpoints(t.Context(), "other", 10)
	require.NoError(t, err)
	require.Empty(t, deleted)
}
