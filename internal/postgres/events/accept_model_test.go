package events_test

import (
	"context"
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/everpost/everpost/internal/postgres/storetest"
	"github.com/everpost/everpost/internal/webhook"
)

// model is what accepting should do, without a database: one tenant's events and keys.
type model struct {
	alive     map[webhook.EventID]bool
	externals map[string]modelKey
	keys      map[string]modelKey
	past      []webhook.NewBatch // requests, to be made again
}

type modelKey struct {
	body   [sha256.Size]byte
	events []webhook.EventID
	over   bool // its time is
}

// verdict is what a request should come to. Where it is stored, a zero id is a new event's.
type verdict struct {
	code   webhook.Code
	fields []string
	events []webhook.EventID
	whole  bool // nothing of it is stored, and none of its keys
}

func (m *model) left(k modelKey) (n int) {
	for _, id := range k.events {
		if m.alive[id] {
			n++
		}
	}
	return n
}

// ids are the events that are there, in their order.
func (m *model) ids() []webhook.EventID {
	return slices.SortedFunc(maps.Keys(m.alive), func(a, b webhook.EventID) int { return slices.Compare(a[:], b[:]) })
}

func (m *model) accept(in webhook.NewBatch, batch bool) verdict {
	field := func(i int, name string) string {
		if !batch {
			return name
		}
		return fmt.Sprintf("events[%d].%s", i, name)
	}
	if k, known := m.keys[in.IdempotencyKey]; known && (m.left(k) > 0 || !k.over) {
		switch {
		case k.body != in.BodySHA256:
			return verdict{code: webhook.CodeMismatch, fields: []string{"Idempotency-Key"}}
		case m.left(k) < len(k.events):
			return verdict{code: webhook.CodeConflict, fields: []string{"Idempotency-Key"}}
		}
		return verdict{events: k.events, whole: true}
	}
	v := verdict{events: make([]webhook.EventID, len(in.Events))}
	var mismatches, unknown []string
	for i, e := range in.Events {
		k, known := m.externals[e.ExternalID]
		switch known = known && m.left(k) > 0; {
		case known && k.body != e.BodySHA256:
			mismatches = append(mismatches, field(i, "external_id"))
		case known:
			v.events[i], v.whole = k.events[0], !batch
		case e.EndpointIDs != nil:
			unknown = append(unknown, field(i, "endpoint_ids"))
		}
	}
	switch {
	case mismatches != nil:
		return verdict{code: webhook.CodeMismatch, fields: mismatches}
	case unknown != nil:
		return verdict{code: webhook.CodeInvalid, fields: unknown}
	}
	return v
}

// stored takes the events that the real one has stored.
func (m *model) stored(in webhook.NewBatch, v verdict, ids []webhook.EventID) {
	if v.whole {
		return
	}
	for i, e := range in.Events {
		m.alive[ids[i]] = true
		if e.ExternalID != "" {
			m.externals[e.ExternalID] = modelKey{body: e.BodySHA256, events: ids[i : i+1]}
		}
	}
	if in.IdempotencyKey != "" {
		m.keys[in.IdempotencyKey] = modelKey{body: in.BodySHA256, events: ids}
	}
}

// Whatever is posted, alone and in batches, with keys that are new, known, known with
// another body, or left behind by events that retention has removed: the answers are
// the model's, and so is what is stored.
func TestAcceptIsTheModels(t *testing.T) {
	t.Parallel()
	b := storetest.Setup(t)
	ctx := context.WithoutCancel(t.Context())
	var tenants atomic.Int64
	rapid.Check(t, func(rt *rapid.T) {
		tenant := fmt.Sprintf("t%d", tenants.Add(1))
		_, _, err := b.PutTenant(ctx, storetest.TestActor(), webhook.Tenant{ID: tenant})
		require.NoError(rt, err)
		m := &model{alive: map[webhook.EventID]bool{}, externals: map[string]modelKey{}, keys: map[string]modelKey{}}
		rt.Repeat(map[string]func(*rapid.T){
			"batch":  func(rt *rapid.T) { acceptAs(ctx, rt, b, m, m.drawRequest(rt, tenant, 5), true) },
			"single": func(rt *rapid.T) { acceptAs(ctx, rt, b, m, m.drawRequest(rt, tenant, 1), false) },
			"retention": func(rt *rapid.T) {
				ids := m.ids()
				if len(ids) == 0 {
					rt.Skip("there is nothing to remove")
				}
				id := rapid.SampledFrom(ids).Draw(rt, "removed")
				_, err := b.Pool().Exec(ctx, `delete from events where id = $1`, id)
				require.NoError(rt, err)
				delete(m.alive, id)
			},
			"a day": func(rt *rapid.T) {
				_, err := b.Pool().Exec(ctx, keysEnd+` where tenant_id = $1`, tenant)
				require.NoError(rt, err)
				for name, k := range m.keys {
					k.over = true
					m.keys[name] = k
				}
			},
			"": func(rt *rapid.T) { requireModel(ctx, rt, b, m, tenant) },
		})
	})
}

// drawRequest is a new request, or an earlier one again.
func (m *model) drawRequest(rt *rapid.T, tenant string, most int) webhook.NewBatch {
	if len(m.past) > 0 && rapid.Bool().Draw(rt, "again") {
		if in := rapid.SampledFrom(m.past).Draw(rt, "request"); len(in.Events) <= most {
			return in
		}
	}
	in := drawNewRequest(rt, tenant, most)
	m.past = append(m.past, in)
	return in
}

func drawNewRequest(rt *rapid.T, tenant string, most int) webhook.NewBatch {
	in := webhook.NewBatch{TenantID: tenant, IdempotencyKey: rapid.SampledFrom([]string{"", "", "k", "l"}).Draw(rt, "key")}
	var body []byte
	for i, external := range rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"", "x", "y", "z", "w"}), 1, most, rapid.ID).Draw(rt, "external ids") {
		e := webhook.NewEvent{TenantID: tenant, Type: "order.paid", ExternalID: external}
		version := rapid.SampledFrom([]string{"1", "1", "1", "2"}).Draw(rt, "version")
		e.Payload = fmt.Appendf(nil, "%q", external+version)
		if rapid.IntRange(0, 9).Draw(rt, "named") == 0 {
			e.EndpointIDs = []webhook.EndpointID{{1}}
			version += "named"
		}
		e.BodySHA256 = sha256.Sum256([]byte(external + version))
		in.Events = append(in.Events, e)
		body = fmt.Append(body, i, external, version)
	}
	in.BodySHA256 = sha256.Sum256(body)
	return in
}

// acceptAs posts the request, alone if it is no batch, and holds the answer against the model's.
func acceptAs(ctx context.Context, rt *rapid.T, b *storetest.Bundle, m *model, in webhook.NewBatch, batch bool) {
	var (
		all []webhook.Accepted
		err error
	)
	if batch {
		all, err = b.AcceptBatch(ctx, in)
	} else {
		e := in.Events[0]
		e.IdempotencyKey = in.IdempotencyKey
		in.BodySHA256 = e.BodySHA256
		all = make([]webhook.Accepted, 1)
		all[0], err = b.Accept(ctx, e)
	}
	want := m.accept(in, batch)
	if want.fields != nil {
		known := &webhook.Error{}
		require.ErrorAs(rt, err, &known)
		require.Equal(rt, want.code, known.Code)
		var fields []string
		for _, f := range known.Fields {
			fields = append(fields, f.Field)
		}
		require.Equal(rt, want.fields, fields)
		return
	}
	require.NoError(rt, err)
	require.Len(rt, all, len(in.Events))
	for i, a := range all {
		require.Equal(rt, !want.events[i].IsZero(), a.Repeated, i)
		if a.Repeated {
			require.Equal(rt, want.events[i], a.Event.ID, i)
		}
		require.Equal(rt, in.Events[i].ExternalID, a.Event.ExternalID)
		require.Equal(rt, len(in.Events[i].Payload), a.Event.PayloadSize)
	}
	m.stored(in, want, idsOf(all))
}

// requireModel compares what is stored: the events, and the keys of those that are there.
func requireModel(ctx context.Context, rt *rapid.T, b *storetest.Bundle, m *model, tenant string) {
	var events []webhook.EventID
	require.NoError(rt, b.Pool().QueryRow(ctx, `select coalesce(array_agg(id order by id), '{}') from events where tenant_id = $1`, tenant).Scan(&events))
	require.Equal(rt, m.ids(), append([]webhook.EventID(nil), events...))
	want := 0
	for _, keys := range []map[string]modelKey{m.externals, m.keys} {
		for _, k := range keys {
			if m.left(k) > 0 {
				want++
			}
		}
	}
	var keys int
	require.NoError(rt, b.Pool().QueryRow(ctx, `
		select count(*) from idempotency_keys i where tenant_id = $1
		and exists (select from events e where e.id = any(coalesce(i.event_ids, array[i.event_id])))`, tenant).Scan(&keys))
	require.Equal(rt, want, keys)
}
