package stores_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/postgres/storetest"
	"github.com/everpost/everpost/internal/webhook"
)

// ofBoth makes a visit to the large tenant and one to a small one.
func ofBoth(name string, call func(t *testing.T, l *storetest.Large, tenant string, endpoint webhook.EndpointID)) []visit {
	return []visit{
		{name: name, call: func(t *testing.T, l *storetest.Large) { t.Helper(); call(t, l, l.Tenant, l.Subscriber.ID) }},
		{name: name + ", small tenant", call: func(t *testing.T, l *storetest.Large) { t.Helper(); call(t, l, l.Small, l.Endpoint) }},
	}
}

// listVisits has lists of deliveries with every combination of filters, each with and without matches.
func listVisits() (all []visit) {
	states := [][]webhook.State{
		nil,
		{webhook.StatePending},
		{webhook.StateRetrying},
		{webhook.StateHeld},
		{webhook.StateDelivered},
		{webhook.StateDeadLettered},
		{webhook.StateCancelled},
		{webhook.StateCancelled, webhook.StateDiscarded},
		{webhook.StatePending, webhook.StateRetrying, webhook.StateHeld},
		{webhook.StateRetrying, webhook.StateDeadLettered},
	}
	type others struct {
		name string
		f    webhook.DeliveryFilter
	}
	now := time.Now()
	more := []others{
		{"", webhook.DeliveryFilter{}},
		{" type of many", webhook.DeliveryFilter{EventType: "order.1"}},
		{" type of none", webhook.DeliveryFilter{EventType: "nothing.*"}},
		{" reason", webhook.DeliveryFilter{Reason: "tls"}},
		{" status, type", webhook.DeliveryFilter{Status: 418, EventType: "order.*"}},
		{" since", webhook.DeliveryFilter{Since: now.Add(-48 * time.Hour)}},
		{" since, status", webhook.DeliveryFilter{Since: now.Add(-48 * time.Hour), Status: 418}},
		{" ended since", webhook.DeliveryFilter{EndedSince: now.Add(-time.Hour)}},
		{" ended until, status", webhook.DeliveryFilter{EndedUntil: now.Add(-48 * time.Hour), Status: 418}},
		{" until, reason", webhook.DeliveryFilter{Until: now.Add(-72 * time.Hour), Reason: "tls"}},
	}
	for _, of := range states {
		for _, o := range more {
			for _, endpoint := range []bool{false, true} {
				f := o.f
				f.States = of
				name := fmt.Sprintf("deliveries %v%s", of, o.name)
				if endpoint {
					name += " of an endpoint"
				}
				visits := ofBoth(name, func(t *testing.T, l *storetest.Large, tenant string, of webhook.EndpointID) {
					t.Helper()
					f := f
					if endpoint {
						f.EndpointID = of
					}
					_, _, err := l.ListDeliveries(t.Context(), tenant, f, webhook.Page{Limit: 50})
					require.NoError(t, err)
				})
				if endpoint { // a search of up to 20,000 rows, each of which may be on a page of its own: there are 2,900
					visits[0].most = 3000
				}
				all = append(all, visits...)
			}
		}
	}
	return all
}

// pageVisits has what other pages and requests read.
func pageVisits() (all []visit) {
	now := time.Now()
	for name, f := range map[string]webhook.EventFilter{
		"": {}, " type of none": {Type: "nothing"}, " type of many": {Type: "order.1"}, " since": {Since: now.Add(-100 * time.Hour), Type: "nothing.*"},
		" until": {Until: now.Add(-100 * time.Hour)}, " external id": {ExternalID: "x"},
		" tag of many": {Tag: "third"}, " tag of few": {Tag: "n:1203"}, " tag of none, type": {Tag: "none", Type: "order.*"},
		" tag, since": {Tag: "none", Since: now.Add(-100 * time.Hour)}, " tag, type, until": {Tag: "third", Type: "order.1", Until: now.Add(-100 * time.Hour)},
	} {
		all = append(all, ofBoth("events"+name, func(t *testing.T, l *storetest.Large, tenant string, _ webhook.EndpointID) {
			t.Helper()
			found, _, err := l.ListEvents(t.Context(), tenant, f, webhook.Page{Limit: 50})
			require.NoError(t, err)
			ids := make([]webhook.EventID, len(found))
			for i := range found {
				ids[i] = found[i].ID
			}
			of, err := l.Outcomes(t.Context(), tenant, ids)
			require.NoError(t, err)
			require.Len(t, of, len(ids))
		})...)
	}
	for name, f := range map[string]webhook.DeliveryFilter{
		"": {}, " type": {EventType: "nothing"}, " reason, status": {Reason: "tls", Status: 418}, " since": {Since: now.Add(-100 * time.Hour)},
		" ended since": {EndedSince: now.Add(-time.Hour)},
	} {
		all = append(all, ofBoth("groups"+name, func(t *testing.T, l *storetest.Large, tenant string, endpoint webhook.EndpointID) {
			t.Helper()
			for _, of := range []webhook.EndpointID{{}, endpoint} {
				f := f
				f.EndpointID = of
				_, err := l.GroupDeadLetters(t.Context(), tenant, f)
				require.NoError(t, err)
			}
		})...)
	}
	all = append(all, ofBoth("attempts to an endpoint and of an event", func(t *testing.T, l *storetest.Large, tenant string, endpoint webhook.EndpointID) {
		t.Helper()
		page, _, err := l.ListAttempts(t.Context(), tenant, webhook.AttemptFilter{EndpointID: endpoint}, 25, webhook.DeliveryAttempt{})
		require.NoError(t, err)
		require.NotEmpty(t, page)
		_, _, err = l.ListAttempts(t.Context(), tenant, webhook.AttemptFilter{EndpointID: endpoint}, 25, page[len(page)-1])
		require.NoError(t, err)
		d, err := l.Delivery(t.Context(), tenant, page[0].DeliveryID)
		require.NoError(t, err)
		of, _, err := l.ListAttempts(t.Context(), tenant, webhook.AttemptFilter{EventID: d.EventID}, 25, webhook.DeliveryAttempt{})
		require.NoError(t, err)
		require.NotEmpty(t, of)
	})...)
	for _, source := range []webhook.ReplaySource{webhook.ReplayDeadLetters, webhook.ReplayEvents} {
		counted := ofBoth("preview of a replay of "+source.String(), func(t *testing.T, l *storetest.Large, tenant string, endpoint webhook.EndpointID) {
			t.Helper()
			_, err := l.CountReplay(t.Context(), webhook.Replay{
				TenantID: tenant, Source: source, Filter: webhook.ReplayFilter{EndpointID: endpoint, Since: now.Add(-30 * 24 * time.Hour)},
			})
			require.NoError(t, err)
		})
		for i := range counted {
			counted[i].most = 1 << 30 // it counts, until its time is over
		}
		all = append(all, counted...)
	}
	all = append(all, visit{name: "the catalogue of event types", call: visitEventTypes, most: 20_000}) // it has 1,000 of them at most
	for _, v := range ofBoth("an event, its deliveries and attempts", visitEvent) {
		v.most = 3000 // of the list in which it is found
		all = append(all, v)
	}
	all = append(all, ofBoth("export", visitExport)...)
	all = append(all, ofBoth("statistics", func(t *testing.T, l *storetest.Large, tenant string, endpoint webhook.EndpointID) {
		t.Helper()
		for _, q := range []webhook.StatisticsQuery{
			{TenantID: tenant, EndpointID: endpoint, Since: now.Add(-48 * time.Hour), Until: now, Step: time.Minute},
			{TenantID: tenant, EndpointID: endpoint, Since: now.Add(-90 * 24 * time.Hour), Until: now, Step: time.Hour},
		} {
			points, err := l.ReadStatistics(t.Context(), q)
			require.NoError(t, err)
			require.NotEmpty(t, points)
		}
	})...)
	return all
}

func visitEvent(t *testing.T, l *storetest.Large, tenant string, endpoint webhook.EndpointID) {
	t.Helper()
	page, _, err := l.ListDeliveries(t.Context(), tenant, webhook.DeliveryFilter{EndpointID: endpoint, Until: time.Now().Add(-24 * time.Hour)},
		webhook.Page{Limit: 1})
	require.NoError(t, err)
	_, of, err := l.Event(t.Context(), tenant, page[0].EventID)
	require.NoError(t, err)
	require.Len(t, of, 1)
	_, err = l.Payload(t.Context(), tenant, page[0].EventID)
	require.NoError(t, err)
	_, err = l.Attempts(t.Context(), tenant, of[0].DeliveryID, 50, 0)
	require.NoError(t, err)
	for _, state := range []webhook.State{webhook.StateRetrying, webhook.StateHeld} {
		d := of[0]
		d.State, d.DueAt = state, time.Now().Add(30*time.Minute)
		_, _, err = l.Ahead(t.Context(), d)
		require.NoError(t, err)
	}
	_, err = l.DeliveryStatus(t.Context(), of[0].Ref)
	require.NoError(t, err)
	_, err = l.ClaimStatus(t.Context(), of[0].Ref, "me")
	require.NoError(t, err)
}

func visitExport(t *testing.T, l *storetest.Large, tenant string, _ webhook.EndpointID) {
	t.Helper()
	p := webhook.Page{Limit: 100}
	for {
		page, _, err := l.ListDeliveries(t.Context(), tenant, webhook.DeliveryFilter{Until: time.Now()}, p)
		require.NoError(t, err)
		var ids []webhook.DeliveryID
		var events []webhook.EventID
		for _, d := range page {
			ids, events = append(ids, d.DeliveryID), append(events, d.EventID)
		}
		for after := (webhook.DeliveryAttempt{}); ; {
			attempts, err := l.AttemptsOf(t.Context(), tenant, ids, 100, after)
			require.NoError(t, err)
			if len(attempts) < 100 {
				break
			}
			after = attempts[99]
		}
		_, err = l.Contents(t.Context(), tenant, events)
		require.NoError(t, err)
		_, err = l.RemovedPayloads(t.Context(), tenant, events)
		require.NoError(t, err)
		_, err = l.ExternalIDs(t.Context(), tenant, events)
		require.NoError(t, err)
		if len(page) < 100 || tenant == l.Tenant {
			return
		}
		p.After = page[99].DeliveryID
	}
}

// visitEventTypes fills the catalogue, reads and changes it, and posts events of its types.
func visitEventTypes(t *testing.T, l *storetest.Large) {
	t.Helper()
	_, err := l.Pool().Exec(t.Context(), `
		with made as (insert into event_types (name) select 'type.' || n from generate_series(1, 990) n on conflict do nothing returning name)
		insert into event_type_versions (type, version, schema) select name, v, '{"type":"integer"}' from made, generate_series(1, 3) v`)
	require.NoError(t, err)
	types, by := l.EventTypes, storetest.TestActor()
	e := webhook.EventType{
		Name: "the.type", Validation: webhook.ValidationEnforce, Versions: []webhook.EventTypeVersion{{Version: 1, Schema: []byte(`{"type":"integer"}`)}},
	}
	_, _, err = types.PutEventType(t.Context(), by, e, webhook.MatchAny)
	require.NoError(t, err)
	_, _, err = types.UpdateEventType(t.Context(), by, e.Name, webhook.MatchAny, func(e *webhook.EventType) error {
		e.Group = "A"
		return nil
	})
	require.NoError(t, err)
	_, err = types.EventType(t.Context(), e.Name)
	require.NoError(t, err)
	_, err = types.ListEventTypes(t.Context(), webhook.EventTypeFilter{Group: "none", Prefix: "type.", State: new(webhook.EventTypeArchived)}, 50, "")
	require.NoError(t, err)
	schemas, err := types.NewestSchemas(t.Context(), []string{"type.1", "type.2", e.Name}, 1<<10)
	require.NoError(t, err)
	require.Len(t, schemas, 3)
	verdict, err := types.Check(t.Context(), "acme", &webhook.NewEvent{Type: e.Name, Payload: []byte(`"x"`)})
	require.NoError(t, err)
	require.NotEmpty(t, verdict.Refused)
	require.NoError(t, types.DeleteEventType(t.Context(), by, e.Name, webhook.MatchAny))
	_, err = l.Pool().Exec(t.Context(), `delete from event_types`) // other visits may read the catalogue, too
	require.NoError(t, err)
	types.ForgetAll()
}
