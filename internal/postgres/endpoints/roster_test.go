package endpoints

import (
	"bytes"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/everpost/everpost/internal/webhook"
)

// A roster that is changed endpoint by endpoint is the set of endpoints, and matches what a walk over all of them does.
func TestRosterModel(t *testing.T) {
	t.Parallel()
	filters := rapid.SliceOfN(rapid.SampledFrom([]string{"*", "a.*", "a.b", "a.b.*", "c", "everpost.*", "everpost.endpoint.paused"}), 1, 4)
	types := []string{"a.b", "a.b.c", "a.", "c", "d", "everpost.endpoint.paused", "everpost.replay.completed"}
	rapid.Check(t, func(t *rapid.T) {
		ids := make([]webhook.EndpointID, 6)
		for i := range ids {
			ids[i] = webhook.NewEndpointID()
		}
		model := map[webhook.EndpointID][]string{}
		r := &roster{byFilter: map[string][]*webhook.Endpoint{}}
		t.Repeat(map[string]func(*rapid.T){
			"change": func(t *rapid.T) {
				var rows []rosterRow
				for range rapid.IntRange(1, 3).Draw(t, "rows") {
					row := rosterRow{deleted: rapid.Bool().Draw(t, "deleted")}
					row.ID, row.EventTypes = rapid.SampledFrom(ids).Draw(t, "id"), filters.Draw(t, "filters")
					rows = append(rows, row)
					if model[row.ID] = row.EventTypes; row.deleted {
						delete(model, row.ID)
					}
				}
				r.apply(rows)
			},
			"": func(t *rapid.T) {
				v := View{r}
				require.Len(t, r.all, len(model))
				weights := 0
				for id, of := range model {
					require.Equal(t, of, v.Endpoint(id).EventTypes)
					weights += weight(v.Endpoint(id))
				}
				require.Equal(t, weights, r.weight)
				for _, eventType := range types {
					var want []webhook.EndpointID
					for _, e := range r.all {
						if e.Wants(eventType) {
							want = append(want, e.ID)
						}
					}
					require.True(t, slices.IsSortedFunc(want, func(a, b webhook.EndpointID) int { return bytes.Compare(a[:], b[:]) }))
					for _, most := range []int{1, 2, math.MaxInt} {
						var got []webhook.EndpointID
						for _, e := range v.Match(eventType, most) {
							got = append(got, e.ID)
						}
						require.Equal(t, want[:min(most, len(want))], got, eventType)
					}
				}
			},
		})
		for id := range model {
			r.apply([]rosterRow{{Endpoint: webhook.Endpoint{ID: id}, deleted: true}})
		}
		require.Empty(t, r.byFilter, "nothing is left of what is deleted")
		require.Zero(t, r.weight)
	})
}
